"""What an engine fills of host memory, and as text."""

from dataclasses import dataclass

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.vllm.pod_plan import PodPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeded:
    """Of the whole pod. `pools_bytes`: host pools and offload tiers."""

    pools_bytes: int
    total_bytes: int
    arithmetic: str


def memory_needed(plan: PodPlan) -> MemoryNeeded:
    offload_bytes = plan.cpu_bytes_to_use * plan.data_parallel_size
    parts = {"host pools": plan.all_host_pools_bytes, "offload": offload_bytes, "working set": plan.working_set_bytes}
    total_bytes = sum(parts.values())
    terms = " + ".join(f"{human_bytes(size)} {name}" for name, size in parts.items() if size)
    return MemoryNeeded(
        pools_bytes=plan.all_host_pools_bytes + offload_bytes,
        total_bytes=total_bytes,
        arithmetic=f"{human_bytes(total_bytes)} ({terms})",
    )
