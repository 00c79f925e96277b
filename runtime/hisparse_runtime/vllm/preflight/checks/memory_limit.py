"""The container's memory limit: a pool above it ends in a kill while it is filled, minutes after the start."""

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight.checks.needs import memory_needed
from hisparse_runtime.vllm.preflight.facts import Facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, refused, warning


def check_memory_limit(plan: PodPlan, facts: Facts) -> Finding | None:
    limit_bytes = facts.memory_limit_bytes
    if limit_bytes is None or limit_bytes >= plan.memory_bytes:
        return None
    needed = memory_needed(plan)
    may_use = f"the container may use {human_bytes(limit_bytes)}"
    next_step = f"set resources.limits.memory of the container to {human_bytes(plan.memory_bytes)}, or lower the pools"
    if limit_bytes < needed.total_bytes:
        return refused(Reason.HOST_MEMORY_LIMIT_TOO_SMALL, f"{may_use}, and needs {needed.arithmetic}: {next_step}")
    return warning(
        Reason.HOST_MEMORY_LIMIT_TOO_SMALL,
        f"{may_use}; that holds {needed.arithmetic}, without the headroom of the planned {human_bytes(plan.memory_bytes)}: it can"
        f" be killed when all pools are full; {next_step}",
    )
