"""A plan that fits a container, and that container."""

import dataclasses
from pathlib import Path
from typing import Any

from hisparse_runtime.geometry import complete_config
from hisparse_runtime.vllm.pod_plan import Mode, PodPlan
from hisparse_runtime.vllm.preflight.container.devices import Devices
from hisparse_runtime.vllm.preflight.container.installed import InstalledVllm
from hisparse_runtime.vllm.preflight.container.locking import Memlock
from hisparse_runtime.vllm.preflight.container.model_files import FoundModel
from hisparse_runtime.vllm.preflight.container.node import NodeMemory, NumaNode
from hisparse_runtime.vllm.preflight.container.shared_memory import SharedMemory
from hisparse_runtime.vllm.preflight.facts import Facts

MIB = 1 << 20
GIB = 1 << 30
CONFIG = complete_config("glm-5.3", {})[0]

# 8 + 2 GiB of pools and 4 GiB of working set: 14 GiB
_PLAN = PodPlan(
    vllm_version="0.33",
    mode=Mode.ON,
    gpus=2,
    tensor_parallel_size=2,
    data_parallel_size=1,
    host_pool_bytes=8 * GIB,
    host_pool_copies=1,
    shares_host_pool=True,
    cpu_bytes_to_use=2 * GIB,
    device_block_bytes=0,
    working_set_bytes=4 * GIB,
    weights_bytes=None,
    shm_bytes=12 * GIB,
    memory_bytes=17 * GIB,
    drain_seconds=120,
    unpin_seconds=30,
    startup_seconds=600,
)
_FACTS = Facts(
    memory_limit_bytes=17 * GIB,
    shared_memory=SharedMemory(total_bytes=12 * GIB, free_bytes=12 * GIB),
    leftovers=(),
    node=NodeMemory(total_bytes=64 * GIB, available_bytes=60 * GIB, huge_pages_bytes=0),
    numa_nodes=(
        NumaNode(number=0, total_bytes=32 * GIB, is_allowed=True),
        NumaNode(number=1, total_bytes=32 * GIB, is_allowed=True),
    ),
    memlock=Memlock(limit_bytes=None, tried_bytes=16 * MIB, error=None),
    can_populate=True,
    devices=Devices(num_gpus=2, driver_version="570.124.06", has_rdma=False),
    vllm=InstalledVllm(version="0.33.0", is_for_cpu=False, hisparse_fields=("device_buffer_size", "eager_host_mirror")),
    model=FoundModel(path=Path("/models/glm/config.json"), config=CONFIG),
)


def plan(**changes: Any) -> PodPlan:
    return dataclasses.replace(_PLAN, **changes)


def facts(**changes: Any) -> Facts:
    return dataclasses.replace(_FACTS, **changes)


def available(available_bytes: int, *, huge_pages_bytes: int = 0) -> NodeMemory:
    return NodeMemory(total_bytes=64 * GIB, available_bytes=available_bytes, huge_pages_bytes=huge_pages_bytes)


def write(root: Path, path: str, text: str) -> Path:
    """A file of a tree that stands for the container's."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file
