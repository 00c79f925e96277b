"""Space in /dev/shm: vLLM refuses a pool that does not fit, after the weights are loaded."""

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight.container.shared_memory import Fate, Leftover
from hisparse_runtime.vllm.preflight.facts import Facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, note, refused, warning

_MOST_NAMES = 4


def check_shared_memory(plan: PodPlan, facts: Facts) -> Finding | None:
    pools_bytes, space = plan.shared_pools_bytes, facts.shared_memory
    next_step = f"mount an emptyDir with medium Memory and sizeLimit {human_bytes(plan.shm_bytes)} at /dev/shm"
    if space is None:
        missing = f"there is no /dev/shm, and pools of {human_bytes(pools_bytes)} need one: {next_step}"
        return refused(Reason.SHARED_MEMORY_TOO_SMALL, missing) if pools_bytes else None
    size = f"{human_bytes(space.total_bytes)} in /dev/shm, {human_bytes(space.free_bytes)} of it free"
    if space.free_bytes < pools_bytes:
        kept = _names([leftover for leftover in facts.leftovers if leftover.fate is not Fate.REMOVED])
        return refused(
            Reason.SHARED_MEMORY_TOO_SMALL,
            f"{size}, and the pools in it need {human_bytes(pools_bytes)}{f' beside {kept}' if kept else ''}: {next_step}",
        )
    if space.total_bytes < plan.shm_bytes:
        return warning(
            Reason.SHARED_MEMORY_TOO_SMALL,
            f"{size}: enough for pools of {human_bytes(pools_bytes)}, and less than the planned {human_bytes(plan.shm_bytes)}, of"
            f" which the rest is for NCCL and message queues; {next_step}",
        )
    return None


def check_leftovers(facts: Facts) -> Finding | None:
    """What was swept, as far as it matters most."""
    for fate in (Fate.STUCK, Fate.HELD, Fate.FOREIGN, Fate.REMOVED):
        files = [leftover for leftover in facts.leftovers if leftover.fate is fate]
        if files:
            return _FINDINGS[fate](files)
    return None


def _stuck(files: list[Leftover]) -> Finding:
    return refused(
        Reason.STALE_SHARED_MEMORY,
        f"{_names(files)} in /dev/shm: left by an engine that was killed, and could not be removed ({files[0].detail}):"
        " delete the pod, its /dev/shm goes with it",
    )


def _held(files: list[Leftover]) -> Finding:
    return warning(
        Reason.STALE_SHARED_MEMORY,
        f"{_names(files)} in /dev/shm: held by {files[0].detail}; another engine runs in this pod, or is about to end",
    )


def _foreign(files: list[Leftover]) -> Finding:
    return warning(
        Reason.STALE_SHARED_MEMORY,
        f"{_names(files)}: left alone, as /dev/shm is not of the planned size and so may be the node's or another pod's; mount an"
        " emptyDir of the plan's size at /dev/shm",
    )


def _removed(files: list[Leftover]) -> Finding:
    return note(Reason.STALE_SHARED_MEMORY, f"removed what an engine that was killed had left in /dev/shm: {_names(files)}")


_FINDINGS = {Fate.STUCK: _stuck, Fate.HELD: _held, Fate.FOREIGN: _foreign, Fate.REMOVED: _removed}


def _names(files: list[Leftover]) -> str:
    """The largest by name, all by size; empty for none."""
    if not files:
        return ""
    largest = sorted(files, key=lambda file: -file.size_bytes)[:_MOST_NAMES]
    named = [f"{file.name} ({human_bytes(file.size_bytes)}, {file.age_seconds:,} s old)" for file in largest]
    if len(files) > _MOST_NAMES:
        rest_bytes = sum(file.size_bytes for file in files) - sum(file.size_bytes for file in largest)
        named.append(f"{len(files) - _MOST_NAMES} more ({human_bytes(rest_bytes)})")
    return ", ".join(named)
