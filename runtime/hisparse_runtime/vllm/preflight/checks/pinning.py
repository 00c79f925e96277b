"""Whether pools can be filled at once, and registered with the devices that read them."""

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight.facts import Facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, refused, warning


def check_memlock(plan: PodPlan, facts: Facts, *, has_nixl: bool) -> Finding | None:
    """CUDA registers memory through the driver, which normally asks for no limit; RDMA does by the kernel, which does.

    So a low limit ends an engine only where NIXL registers the pool with an RDMA device.
    """
    memlock = facts.memlock
    if memlock.error is None or not (plan.host_pool_bytes or has_nixl):
        return None
    tried = f"{human_bytes(memlock.tried_bytes)} could not be locked ({memlock.error}; RLIMIT_MEMLOCK is {_limit(facts)})"
    next_step = (
        "add the capability IPC_LOCK to the container (for a user other than root, set LimitMEMLOCK=infinity of the container"
        " runtime's service on the node)"
    )
    if has_nixl and facts.devices.has_rdma:
        return refused(
            Reason.MEMLOCK_TOO_LOW,
            f"{tried}: NIXL cannot register its memory with the RDMA devices, {human_bytes(plan.host_pool_bytes)} of it host"
            f" pool: {next_step}",
        )
    why = "no RDMA device is here, so NIXL has nothing to register it with" if has_nixl else "CUDA normally needs no limit"
    return warning(
        Reason.MEMLOCK_TOO_LOW,
        f"{tried}; {why}: if the engine ends while it pins {human_bytes(plan.host_pool_bytes)}, {next_step}",
    )


def check_populate(plan: PodPlan, facts: Facts) -> Finding | None:
    """Only regions in /dev/shm are filled before they are pinned."""
    if facts.can_populate or not plan.shared_pools_bytes:
        return None
    return warning(
        Reason.KERNEL_TOO_OLD,
        "the kernel has no MADV_POPULATE_WRITE (Linux 5.14): vLLM touches the pages of"
        f" {human_bytes(plan.shared_pools_bytes)} one by one, which can take minutes longer at the start; use nodes with a newer"
        " kernel",
    )


def _limit(facts: Facts) -> str:
    limit_bytes = facts.memlock.limit_bytes
    return "unlimited" if limit_bytes is None else human_bytes(limit_bytes)
