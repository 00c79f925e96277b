"""The container's memory limit: a pool above it ends in a kill while it is filled, minutes after the start."""

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight.facts import Facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, refused, warning


def check_memory_limit(plan: PodPlan, facts: Facts) -> Finding | None:
    limit_bytes = facts.memory_limit_bytes
    if limit_bytes is None or limit_bytes >= plan.memory_bytes:
        return None
    offload_bytes = plan.cpu_bytes_to_use * plan.data_parallel_size
    needed_bytes = plan.all_host_pools_bytes + offload_bytes + plan.working_set_bytes
    next_step = f"set the container's resources.limits.memory to {human_bytes(plan.memory_bytes)}, or lower the pools"
    if limit_bytes < needed_bytes:
        return refused(
            Reason.HOST_MEMORY_LIMIT_TOO_SMALL,
            f"the container may use {human_bytes(limit_bytes)}, and needs {human_bytes(needed_bytes)}:"
            f" {human_bytes(plan.all_host_pools_bytes)} host pools + {human_bytes(offload_bytes)} offload"
            f" + {human_bytes(plan.working_set_bytes)} working set; {next_step}",
        )
    return warning(
        Reason.HOST_MEMORY_LIMIT_TOO_SMALL,
        f"the container may use {human_bytes(limit_bytes)}, which holds pools and working set ({human_bytes(needed_bytes)}),"
        f" without the headroom of the planned {human_bytes(plan.memory_bytes)}: it can be killed when all pools are full;"
        f" {next_step}",
    )
