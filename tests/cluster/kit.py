"""What cluster tests say over and over: kubectl, objects, waiting until something holds."""

import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tools.devcluster import DevCluster

ROOT = Path(__file__).resolve().parents[2]
OPERATOR_NAMESPACE = "hisparse-system"
_NUMBERS = itertools.count(1)
_TINY_MODEL = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "index_topk": 32,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "vocab_size": 512,
    "intermediate_size": 64,
    "max_position_embeddings": 4096,
    "rope_theta": 10000,
    "rms_norm_eps": 1e-6,
}

# Of that model: 16 tokens x 2 layers x (16 + 8) float32 of KV, and x 8 float32 of indexer keys.
HOST_PAGE_BYTES = 16 * 2 * (16 + 8) * 4
INDEXER_PAGE_BYTES = 16 * 2 * 8 * 4


class Cluster:
    """A running cluster, by kubectl."""

    def __init__(self, box: DevCluster) -> None:
        self.box = box

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - subprocess's name for it
        """Standard output; subprocess.CalledProcessError, with stderr, when kubectl fails."""
        run = partial(
            subprocess.run,
            self.box.command("kubectl", *arguments),
            env={**os.environ, **self.box.environment()},
            input=input,
            capture_output=True,
            text=True,
            timeout=90,
        )
        done = run()
        if done.returncode and "TLS handshake timeout" in done.stderr:
            done = run()  # nothing was asked yet; a machine that swaps has such moments
        try:
            done.check_returncode()
        except subprocess.CalledProcessError as error:
            error.add_note(f"kubectl said: {error.stderr}")
            raise
        stdout: str = done.stdout
        return stdout

    def apply(self, namespace: str, resource: dict[str, Any]) -> None:
        self.kubectl("-n", namespace, "apply", "-f", "-", input=yaml.safe_dump(resource))

    def get(self, namespace: str, kind: str, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.kubectl("-n", namespace, "get", kind, name, "-o", "json"))
        return answer

    def list(self, namespace: str, kind: str, *, selector: str = "") -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("-n", namespace, "get", kind, "-l", selector, "-o", "json"))[
            "items"
        ]
        return items

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.get(namespace, "hsd", name).get("status", {})
        return status

    def condition(self, namespace: str, name: str, condition_type: str) -> dict[str, Any]:
        """The condition, or an empty one while the operator has not written it for the present generation."""
        resource = self.get(namespace, "hsd", name)
        found = [c for c in resource.get("status", {}).get("conditions", []) if c["type"] == condition_type]
        if not found or found[0]["observedGeneration"] != resource["metadata"]["generation"]:
            return {"status": "", "reason": "", "message": ""}
        condition: dict[str, Any] = found[0]
        return condition

    def wait_ready(self, namespace: str, name: str, *, seconds: float = 60) -> None:
        wait_until(
            lambda: self.condition(namespace, name, "Ready")["status"] == "True",
            seconds=seconds,
            what=lambda: self.describe(namespace, name),
        )

    def residency(self, namespace: str, name: str) -> dict[str, Any]:
        """status.residency, once there is one: Ready comes first, the first scrape a moment later."""
        wait_until(lambda: "residency" in self.status(namespace, name), seconds=30, what=lambda: self.describe(namespace, name))
        residency: dict[str, Any] = self.status(namespace, name)["residency"]
        return residency

    def describe(self, namespace: str, name: str) -> str:
        return self.kubectl("-n", namespace, "describe", "hsd", name)

    def new_namespace(self) -> str:
        name = f"test-{next(_NUMBERS)}"
        self.kubectl("create", "namespace", name)
        # pods are refused without it, and after an outage of the API server the controller that makes it is late
        self.kubectl("-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        return name

    def install_crd(self) -> None:
        self.kubectl("apply", "--server-side", "-f", str(ROOT / "crds" / "hisparsedeployments.yaml"))
        self.kubectl("wait", "--for=condition=Established", "crd/hisparsedeployments.hisparse.dev", "--timeout=30s")


def deployment(name: str, **engine: Any) -> dict[str, Any]:
    """A HiSparseDeployment that fits in a corner of a small machine. Keywords replace fields of spec.engine."""
    return {
        "apiVersion": "hisparse.dev/v1alpha1",
        "kind": "HiSparseDeployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "model": {"name": "tiny", "config": dict(_TINY_MODEL)},
            "engine": {"type": "Embedded", "maxModelLen": 1024, "gpuKVCache": "1Mi", "gpus": 1, "cpu": "50m", **engine},
            "hostMemory": {"max": "400Mi"},
        },
    }


def wait_until(holds: Callable[[], bool], *, seconds: float, what: Callable[[], str]) -> None:
    """Returns once it holds; fails with the text of `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {seconds:.0f} s:\n{what()}")
        time.sleep(0.3)
