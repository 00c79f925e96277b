"""A real vLLM under the operator: 0.32 for a CPU and a tiny model, without HiSparse, which needs a GPU."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.cluster import vllm_pod
from tests.cluster.kit import Cluster, wait_until
from tools.images import build_images

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.contract,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(vllm_pod.reason_impossible()), reason=vllm_pod.reason_impossible() or "possible"),
]
NAME = "llama"
CANARY = "canary-7f3a9c51"
KEYS = "engine-keys"
# Our own reading of the three processes' memory, the pod's request and a node with a quarter of that left must go together.
START_SECONDS = 400
MAX_MODEL_LEN = 262_144
# Of a request that is to outlive the routers' 15 s at a machine's whole speed and end in the 120 s after them at a part of it.
LONG_SECONDS = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The object's engine: its cluster, its namespace, and where its Service answers outside."""

    cluster: Cluster
    namespace: str
    url: str

    def complete(self, *, tokens: int) -> dict[str, Any]:
        with self._ask(tokens=tokens, stream=False) as answer:
            content: dict[str, Any] = json.loads(answer.read())
        return content

    def stream(self, *, tokens: int, has_begun: threading.Event) -> list[str]:
        """All events of it. `has_begun` is set with the first token, or when there will be none."""
        events = []
        try:
            with self._ask(tokens=tokens, stream=True) as answer:
                for line in filter(None, answer.iter_lines()):
                    events.append(line.removeprefix("data: "))
                    has_begun.set()
        finally:
            has_begun.set()
        return events

    @contextmanager
    def _ask(self, *, tokens: int, stream: bool) -> Iterator[httpx.Response]:
        body: dict[str, Any] = {
            "model": NAME,
            "prompt": "once upon a time",
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
        }
        body |= {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        headers = {"Authorization": f"Bearer {CANARY}"}
        url = f"{self.url}/v1/completions"
        with httpx.stream("POST", url, json=body, headers=headers, timeout=180, trust_env=False) as answer:
            answer.raise_for_status()
            yield answer

    def tokens_in(self, seconds: float) -> int:
        """How many this machine makes in that time for one request; what it does beside makes them take longer."""
        sample = 4000
        began = time.monotonic()
        self.complete(tokens=sample)
        return int(sample * seconds / (time.monotonic() - began))

    @contextmanager
    def always_one_request(self) -> Iterator[None]:
        """One after the other: on a fast machine the longest that fits ends before the operator has asked the pod again."""
        is_enough = threading.Event()

        def complete() -> None:
            while not is_enough.is_set():
                self.complete(tokens=3000)

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(complete)
            try:
                yield
            finally:
                is_enough.set()
                running.result()

    def pod(self) -> dict[str, Any]:
        (pod,) = [
            pod
            for pod in self.cluster.list(self.namespace, "pods", selector=f"hisparse.dev/deployment={NAME}")
            if "deletionTimestamp" not in pod["metadata"]
        ]
        return pod


@pytest.fixture(scope="module")
def image(operator: Cluster) -> str:
    """Of the engine, loaded."""
    (built,) = build_images(names=[vllm_pod.IMAGE]).values()
    operator.box.load(built.archive)
    return built.reference


@pytest.fixture(scope="module")
def engine(operator: Cluster, image: str) -> Iterator[Engine]:
    """One start for all tests of this file: importing vLLM three times takes most of it."""
    cluster, namespace = operator, operator.new_namespace()
    cluster.kubectl("-n", namespace, "create", "secret", "generic", KEYS, f"--from-literal=api={CANARY}")
    cluster.apply(namespace, _object(NAME, image=image, mode="Off"))
    cluster.wait_ready(namespace, NAME, seconds=START_SECONDS)
    port = cluster.box.forward(namespace=namespace, service=NAME, port=8000)
    yield Engine(cluster=cluster, namespace=namespace, url=f"http://127.0.0.1:{port}")
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def test_it_answers_completions(engine: Engine) -> None:
    answer = engine.complete(tokens=16)
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["choices"][0]["finish_reason"] == "length"


def test_vllms_own_metrics_are_on_the_object(engine: Engine) -> None:
    engine.cluster.residency(engine.namespace, NAME)
    status = engine.cluster.status(engine.namespace, NAME)
    assert status["version"].startswith("0.32")
    assert "hostPool" not in status["summary"]
    assert engine.cluster.condition(engine.namespace, NAME, "TelemetryAvailable")["status"] == "True"
    with engine.always_one_request():
        wait_until(
            lambda: engine.cluster.residency(engine.namespace, NAME)["requests"]["full"] == 1,
            seconds=60,
            what=lambda: engine.cluster.describe(engine.namespace, NAME),
        )
    pool_of_vllm = engine.cluster.residency(engine.namespace, NAME)["devicePool"]
    assert pool_of_vllm["capacityBytes"] > 0


def test_at33_a_secret_is_seen_nowhere(engine: Engine) -> None:
    engine.complete(tokens=1)
    cluster, namespace, pod = engine.cluster, engine.namespace, engine.pod()["metadata"]["name"]
    seen = {
        "objects": cluster.kubectl("-n", namespace, "get", "hsd,deployments,replicasets,pods,configmaps,events", "-o", "yaml"),
        "description": cluster.describe(namespace, NAME),
        "log": cluster.kubectl("-n", namespace, "logs", pod),
        "argv": cluster.kubectl("-n", namespace, "exec", pod, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"),
        "progress": _status(engine, "/hisparse/progress"),
        "residency": _status(engine, "/hisparse/residency"),
        "operator": cluster.kubectl("-n", "hisparse-system", "logs", "deployment/hisparse-hisparse-operator"),
    }
    assert {name for name, text in seen.items() if CANARY in text} == set()
    assert all(seen.values())


def test_at17_a_running_request_is_answered_whole_when_its_pod_is_deleted(engine: Engine) -> None:
    pod = engine.pod()["metadata"]["name"]
    num_tokens = engine.tokens_in(LONG_SECONDS)
    assert num_tokens < MAX_MODEL_LEN
    has_begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.stream, tokens=num_tokens, has_begun=has_begun)
        assert has_begun.wait(60), "no token came"
        engine.cluster.kubectl("-n", engine.namespace, "delete", "pod", pod, "--wait=false")
        wait_until(
            lambda: "SIGTERM: running requests get" in engine.cluster.kubectl("-n", engine.namespace, "logs", pod),
            seconds=60,
            what=lambda: engine.cluster.kubectl("-n", engine.namespace, "logs", pod),
        )
        assert not running.done(), f"the request was to run longer: {running.exception()}"
        *_, last, usage, end = running.result()
    assert json.loads(last)["choices"][0]["finish_reason"] == "length"
    assert json.loads(usage)["usage"]["completion_tokens"] == num_tokens
    assert end == "[DONE]"


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        # all that stands against it: a build for CPUs, no GPU, and a model without an indexer
        ({"mode": "On"}, ("WrongVllmVersion", "is built for CPUs", "NotEnoughGpus: ", "ModelDiffersFromPlan: ")),
        ({"mode": "Off", "version": "0.33"}, ("WrongVllmVersion", "0.33")),
    ],
)
def test_at31_what_preflight_refuses_stands_on_the_object(
    operator: Cluster, image: str, namespace: str, changes: dict[str, str], refusal: tuple[str, ...]
) -> None:
    reason, *words = refusal
    operator.kubectl("-n", namespace, "create", "secret", "generic", KEYS, f"--from-literal=api={CANARY}")
    operator.apply(namespace, _object("refused", image=image, **changes))
    began = time.monotonic()
    wait_until(
        lambda: operator.condition(namespace, "refused", "Ready")["reason"] == reason,
        seconds=60,
        what=lambda: operator.describe(namespace, "refused"),
    )
    print(f"{reason} stands on the object {time.monotonic() - began:.1f} s after it was applied")
    message = operator.condition(namespace, "refused", "Ready")["message"]
    assert all(word in message for word in words), message
    # and nothing heavy was started before
    (pod,) = operator.list(namespace, "pods", selector="hisparse.dev/deployment=refused")
    assert "vllm.entrypoints" not in operator.kubectl("-n", namespace, "logs", pod["metadata"]["name"], "--all-containers")


def _status(engine: Engine, path: str) -> str:
    pod = engine.pod()["metadata"]["name"]
    read = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8001{path}', timeout=10).read().decode())"
    return engine.cluster.kubectl("-n", engine.namespace, "exec", pod, "--", "python3", "-S", "-c", read)


def _object(name: str, *, image: str, mode: str, version: str = vllm_pod.VERSION) -> dict[str, Any]:
    model: dict[str, Any] = {"name": NAME, "source": vllm_pod.MODEL_PATH}
    vllm: dict[str, Any] = {
        "version": version,
        "gpu": "H200",
        "asyncScheduling": False,
        "extraArgs": ["--dtype", "bfloat16", "--enforce-eager"],
    }
    if mode == "On":
        model = {"name": "zai-org/GLM-5.3", "source": vllm_pod.MODEL_PATH}
        vllm["kvCacheDtype"] = "fp8"
    return {
        "apiVersion": "hisparse.dev/v1alpha1",
        "kind": "HiSparseDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": model,
            "engine": {
                "type": "VLLM",
                "image": image,
                "maxModelLen": MAX_MODEL_LEN if mode == "Off" else 4096,
                "maxNumSeqs": 8,
                "cpu": "100m",
                **({"gpuKVCache": "20Gi"} if mode == "On" else {}),
                "vllm": vllm,
            },
            "hiSparse": {"mode": mode},
            "offload": {"enabled": mode == "On"},
            "pod": {
                "env": [
                    *vllm_pod.environment(),
                    {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": KEYS, "key": "api"}}},
                ],
                "volumes": vllm_pod.volumes(),
                "volumeMounts": vllm_pod.mounts(),
            },
        },
    }
