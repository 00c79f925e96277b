"""Preflight in real containers: what Kubernetes gives a pod, and what the pod is told about it.

All pods run at once, and each test looks at one of them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from hisparse_runtime.geometry import complete_config
from hisparse_runtime.vllm.pod_plan import CONFIG_FILE, FOLDER, PLAN_FILE, Mode, PodPlan, pod_plan_to_json
from hisparse_runtime.vllm.preflight import EXIT_REFUSED
from tests.cluster.kit import Cluster, wait_until
from tools.images import build_images

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

MIB = 1 << 20
CONFIG = complete_config("glm-5.3", {})[0]
# Of the size of a test: 12 MiB of pools in 16 MiB of shared memory.
PLAN = PodPlan(
    vllm_version="0.33",
    mode=Mode.ON,
    gpus=1,
    tensor_parallel_size=1,
    data_parallel_size=1,
    host_pool_bytes=8 * MIB,
    host_pool_copies=1,
    shares_host_pool=True,
    cpu_bytes_to_use=4 * MIB,
    device_block_bytes=0,
    working_set_bytes=64 * MIB,
    weights_bytes=None,
    shm_bytes=16 * MIB,
    memory_bytes=128 * MIB,
    drain_seconds=0,
    unpin_seconds=0,
    startup_seconds=60,
)
NIXL = (
    "vllm",
    "serve",
    "zai-org/GLM-5.3",
    "--kv-transfer-config",
    json.dumps(
        {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "connectors": [
                    {"kv_connector": "HiSparseConnector", "kv_role": "kv_both"},
                    {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
                ]
            },
        }
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A pod and its plan. `devices`: names in /dev; preflight counts names. `shm_bytes` None: what every container gets."""

    plan: PodPlan = PLAN
    limit_bytes: int | None = 128 * MIB
    shm_bytes: int | None = 16 * MIB
    devices: tuple[str, ...] = ("nvidia0",)
    installed: str = "0.33.0"
    checkpoint: dict[str, Any] = field(default_factory=lambda: CONFIG)
    words: tuple[str, ...] = ()
    security: dict[str, Any] = field(default_factory=dict)
    leftover_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the pod ended. `message`: what Kubernetes keeps of it."""

    exit_code: int
    message: str
    log: str


BOXES = {
    "fits": Box(),
    "small-limit": Box(limit_bytes=72 * MIB),
    "default-shm": Box(plan=replace(PLAN, host_pool_bytes=80 * MIB, shm_bytes=96 * MIB), shm_bytes=None, limit_bytes=256 * MIB),
    "low-memlock": Box(devices=("nvidia0", "infiniband/uverbs0"), words=NIXL),
    "may-lock": Box(
        devices=("nvidia0", "infiniband/uverbs0"),
        words=NIXL,
        security={"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}},
    ),
    # with it, 7 of the 12 MiB are free
    "leftover": Box(leftover_bytes=9 * MIB),
    "no-gpu": Box(devices=()),
    "baseline-on-cpu": Box(plan=replace(PLAN, mode=Mode.OFF, host_pool_bytes=0), devices=()),
    "wrong-version": Box(installed="0.32.0"),
    "other-model": Box(checkpoint=CONFIG | {"num_hidden_layers": 61}),
    "small-node": Box(plan=replace(PLAN, host_pool_bytes=4096 << 30, shares_host_pool=False), limit_bytes=None),
}


@pytest.fixture(scope="module")
def ended(cluster: Cluster) -> Iterator[dict[str, Ended]]:
    image = build_images()["embedded"]
    cluster.box.load(image.archive)
    namespace = cluster.new_namespace()
    items = [resource for name, box in BOXES.items() for resource in (_config_map(name, box), _pod(name, box, image.reference))]
    cluster.apply(namespace, {"apiVersion": "v1", "kind": "List", "items": items})
    wait_until(
        lambda: all(pod["status"].get("phase") in {"Succeeded", "Failed"} for pod in cluster.list(namespace, "pods")),
        seconds=90,
        what=lambda: cluster.kubectl("-n", namespace, "describe", "pods"),
    )
    yield {pod["metadata"]["name"]: _ended(cluster, pod) for pod in cluster.list(namespace, "pods")}
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def test_a_container_that_fits_starts_its_engine(ended: dict[str, Ended]) -> None:
    assert ended["fits"].exit_code == 0
    assert ended["fits"].message == ""
    assert ended["fits"].log.startswith("preflight: passed\n")


@pytest.mark.parametrize(
    ("name", "reason", "says"),
    [
        ("small-limit", "HostMemoryLimitTooSmall", "may use 72.0 MiB, and needs 76.0 MiB (8.0 MiB host pools + 4.0 MiB offload"),
        ("default-shm", "SharedMemoryTooSmall", "64.0 MiB in /dev/shm, 64.0 MiB of it free, and the pools in it need 84.0 MiB"),
        ("low-memlock", "MemlockTooLow", "NIXL cannot register its memory with the RDMA devices"),
        ("no-gpu", "NotEnoughGpus", "the container has 0 GPUs (no NVIDIA driver), and the plan has 1"),
        ("wrong-version", "WrongVllmVersion", "vLLM 0.32.0 is installed, the plan is for 0.33"),
        ("other-model", "ModelDiffersFromPlan", "num_hidden_layers is 61, planned 78"),
        ("small-node", "NodeMemoryTooSmall", "vLLM would refuse its host pool after the weights are loaded: 1 x 4,096.00 GiB"),
    ],
)
def test_a_container_that_does_not_fit_says_why_to_kubernetes(ended: dict[str, Ended], name: str, reason: str, says: str) -> None:
    pod = ended[name]
    assert pod.exit_code == EXIT_REFUSED, pod.log
    # one reason and no other
    assert pod.message.startswith(f"{reason}: ")
    assert len(pod.message.splitlines()) == 1
    assert says in pod.message
    assert pod.message in pod.log


def test_memory_that_may_be_locked_is_no_matter_for_nixl(ended: dict[str, Ended]) -> None:
    assert ended["may-lock"].exit_code == 0, ended["may-lock"].log
    assert "MemlockTooLow" not in ended["may-lock"].log


def test_what_a_killed_engine_left_is_removed_and_the_next_one_starts(ended: dict[str, Ended]) -> None:
    pod = ended["leftover"]
    assert pod.exit_code == 0, pod.log
    assert "note: StaleSharedMemory: removed what an engine that was killed had left in /dev/shm" in pod.log
    assert "vllm_offload_x.mmap (9.0 MiB," in pod.log


def test_the_baseline_may_serve_on_a_cpu(ended: dict[str, Ended]) -> None:
    assert ended["baseline-on-cpu"].exit_code == 0, ended["baseline-on-cpu"].log
    assert "note: GpusNotChecked" in ended["baseline-on-cpu"].log


def _config_map(name: str, box: Box) -> dict[str, Any]:
    metadata = f"Metadata-Version: 2.4\nName: vllm\nVersion: {box.installed}\n"
    data = {
        PLAN_FILE: json.dumps(pod_plan_to_json(box.plan)),
        CONFIG_FILE: json.dumps(CONFIG),
        "checkpoint.json": json.dumps(box.checkpoint),
        "METADATA": metadata,
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _pod(name: str, box: Box, image: str) -> dict[str, Any]:
    """vLLM is there by its metadata alone, which is all that preflight reads of it without a HiSparseConfig."""
    files = {
        "plan": (FOLDER, {PLAN_FILE: PLAN_FILE, CONFIG_FILE: CONFIG_FILE}),
        "model": ("/models/glm", {"checkpoint.json": "config.json"}),
        "site": ("/site", {"METADATA": f"vllm-{box.installed}.dist-info/METADATA"}),
    }
    volumes: list[dict[str, Any]] = [
        {"name": volume, "configMap": {"name": name, "items": [{"key": key, "path": path} for key, path in items.items()]}}
        for volume, (_, items) in files.items()
    ]
    mounts = [{"name": volume, "mountPath": folder} for volume, (folder, _) in files.items()]
    if box.shm_bytes is not None:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(box.shm_bytes)}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - of the container
    for index, device in enumerate(box.devices):
        volumes.append({"name": f"device-{index}", "emptyDir": {}})
        mounts.append({"name": f"device-{index}", "mountPath": f"/dev/{device}"})
    container = {
        "image": image,
        "env": [{"name": "PYTHONPATH", "value": "/site"}],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {} if box.limit_bytes is None else {"memory": str(box.limit_bytes)},
        },
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            **box.security,
        },
        "volumeMounts": mounts,
    }
    command = [
        "python",
        "-m",
        "hisparse_runtime.vllm.preflight",
        "--model",
        "/models/glm",
        *(["--", *box.words] if box.words else []),
    ]
    leave = f"open('/dev/shm/vllm_offload_x.mmap', 'wb').write(bytes({box.leftover_bytes}))"
    before = [container | {"name": "killed", "command": ["python", "-c", leave]}] if box.leftover_bytes else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "initContainers": before,
            "containers": [container | {"name": "engine", "command": command}],
            "volumes": volumes,
        },
    }


def _ended(cluster: Cluster, pod: dict[str, Any]) -> Ended:
    metadata = pod["metadata"]
    terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return Ended(
        exit_code=terminated["exitCode"],
        message=terminated.get("message", ""),
        log=cluster.kubectl("-n", metadata["namespace"], "logs", metadata["name"], "-c", "engine"),
    )
