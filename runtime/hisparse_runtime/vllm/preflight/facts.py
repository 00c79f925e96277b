"""What the container is: the only part of preflight that looks at the machine."""

import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight.container.cgroup import memory_limit_bytes
from hisparse_runtime.vllm.preflight.container.devices import Devices, devices
from hisparse_runtime.vllm.preflight.container.installed import InstalledVllm, installed_vllm
from hisparse_runtime.vllm.preflight.container.locking import Memlock, can_populate, try_memlock
from hisparse_runtime.vllm.preflight.container.model_files import FoundModel, find_model
from hisparse_runtime.vllm.preflight.container.node import NodeMemory, NumaNode, node_memory, numa_nodes
from hisparse_runtime.vllm.preflight.container.shared_memory import Leftover, SharedMemory, shared_memory, sweep_leftovers


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """None where something is not there, or could not be told. `leftovers` were swept before the rest was looked at."""

    memory_limit_bytes: int | None
    shared_memory: SharedMemory | None
    leftovers: tuple[Leftover, ...]
    node: NodeMemory | None
    numa_nodes: tuple[NumaNode, ...]
    memlock: Memlock
    can_populate: bool
    devices: Devices
    vllm: InstalledVllm | None
    model: FoundModel | None


def gather_facts(plan: PodPlan, *, model: str, revision: str | None, root: Path) -> Facts:
    """`root`: the folder that stands for / ."""
    leftovers = sweep_leftovers(root, planned_bytes=plan.shm_bytes, now_seconds=time.time())
    return Facts(
        memory_limit_bytes=memory_limit_bytes(root),
        shared_memory=shared_memory(root),
        leftovers=leftovers,
        node=node_memory(root),
        numa_nodes=numa_nodes(root),
        memlock=try_memlock(plan.host_pool_bytes),
        can_populate=can_populate(),
        devices=devices(root),
        vllm=installed_vllm(root),
        model=find_model(root, model, revision=revision, environment=os.environ),
    )


def facts_to_json(facts: Facts) -> dict[str, Any]:
    """Without the model's config.json, which is long and read elsewhere."""
    content = asdict(replace(facts, model=None))
    content["model"] = None if facts.model is None else str(facts.model.path)
    return content
