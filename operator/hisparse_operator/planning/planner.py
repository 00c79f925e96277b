"""The plan of one HiSparseDeployment: what the nodes have left, shared by its pods, split into pools."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hisparse_operator.api.quantity import quantity_bytes
from hisparse_operator.api.spec import HiSparseDeploymentSpec
from hisparse_operator.planning.demand import Demand, demand
from hisparse_operator.planning.eligibility import eligible_nodes
from hisparse_operator.planning.facts import NodeFacts, PodRequest
from hisparse_operator.planning.plan import Infeasible, InfeasibleReason, Plan
from hisparse_operator.planning.sharing import room, share_of_one_pod
from hisparse_operator.planning.vllm_pod import ordinary_pod, vllm_pod
from hisparse_runtime.capacity import (
    GIB,
    SPEC_NAMES,
    HostMemoryError,
    OrdinaryRequest,
    human_bytes,
    split_budget,
    tier_arithmetic,
)

# The embedded engine makes its weights itself and answers within seconds; this is for a node that is busy with something else.
_EMBEDDED_STARTUP_SECONDS = 120
# Time for endpoints to leave the routers before the engine hears SIGTERM, then for running requests, then to go.
_EMBEDDED_TERMINATION_SECONDS = 45


def plan(spec: HiSparseDeploymentSpec, *, deployment: str, nodes: Sequence[NodeFacts], pods: Sequence[PodRequest]) -> Plan:
    """Sizes of one pod of `deployment` (namespace/name), whose own pods in `pods` count as not there. Raises Infeasible.

    Wrong values of the spec come first, then sizes that could fit on no node, then the nodes.
    """
    wanted = demand(spec)
    smallest = wanted.smallest
    bound_bytes = None if spec.host_memory.max is None else quantity_bytes(spec.host_memory.max)
    if bound_bytes is not None and smallest.memory_bytes > bound_bytes:
        raise Infeasible(
            InfeasibleReason.INSUFFICIENT_HOST_MEMORY,
            f"hostMemory.max is {human_bytes(bound_bytes)} and one pod needs at least {human_bytes(smallest.memory_bytes)}"
            f" ({'; '.join(smallest.arithmetic)}): raise hostMemory.max to at least that, or lower engine.maxModelLen,"
            " engine.gpuKVCache or the pool sizes that are given",
        )
    gpus = spec.engine.pod_gpus
    rooms = [room(node, gpus=gpus, deployment=deployment, pods=pods) for node in eligible_nodes(spec, nodes)]
    share = share_of_one_pod(rooms, replicas=spec.replicas, smallest=smallest, what_fits=partial(_what_fits, wanted))
    budget_bytes, arithmetic = share.share_bytes, share.arithmetic
    if bound_bytes is not None and bound_bytes < budget_bytes:
        budget_bytes, arithmetic = bound_bytes, (*arithmetic, f"hostMemory.max: {human_bytes(bound_bytes)} of that for one pod")
    sized = _pod(spec, wanted, budget_bytes, pods_per_node=share.num_pods)
    return replace(
        sized,
        node=share.room.node,
        eligible_nodes=len(rooms),
        pods_per_node=share.num_pods,
        arithmetic=(*arithmetic, *sized.arithmetic),
    )


def _pod(spec: HiSparseDeploymentSpec, wanted: Demand | OrdinaryRequest, budget_bytes: int, *, pods_per_node: int) -> Plan:
    if isinstance(wanted, OrdinaryRequest):
        return ordinary_pod(spec, replace(wanted, pods_per_node=pods_per_node), budget_bytes=budget_bytes)
    if wanted.request is not None:
        request = replace(wanted.request, budget_bytes=budget_bytes, pods_per_node=pods_per_node)
        return vllm_pod(spec, wanted, request)
    return _embedded_pod(wanted, budget_bytes)


def _embedded_pod(wanted: Demand, budget_bytes: int) -> Plan:
    memory = split_budget(wanted.tiers, wanted.shape, budget_bytes=budget_bytes, names=SPEC_NAMES)
    tiers = tier_arithmetic(wanted.tiers, host_pool_bytes=memory.host_pool_bytes, cpu_bytes_to_use=memory.cpu_bytes_to_use)
    return Plan(
        host_pool_bytes=memory.host_pool_bytes,
        # a power of two divides without rounding, so the engine gets back the same number of bytes
        host_pool_gib=memory.host_pool_bytes / GIB,
        cpu_bytes_to_use=memory.cpu_bytes_to_use,
        gpu_kv_bytes=wanted.gpu_kv_bytes,
        device_buffer_rows=wanted.device_buffer_rows,
        max_model_len=wanted.max_model_len,
        shm_bytes=memory.shm_bytes,
        memory_bytes=memory.memory_bytes,
        host_pool_tokens=wanted.tiers.host_tokens(memory.host_pool_bytes),
        device_pool_tokens=wanted.device_pool_tokens,
        startup_seconds=_EMBEDDED_STARTUP_SECONDS,
        termination_seconds=_EMBEDDED_TERMINATION_SECONDS,
        arithmetic=(*tiers, *memory.arithmetic),
    )


def _what_fits(wanted: Demand | OrdinaryRequest, left_bytes: int) -> str:
    """The next step for a person whose pods find no node: `left_bytes` is what the largest has left."""
    if isinstance(wanted, OrdinaryRequest):
        return "lower offload.cpuBytesToUse" if wanted.cpu_bytes_to_use else "use nodes with more memory"
    if wanted.tiers.host_pool_bytes is None:
        return "lower engine.maxModelLen, engine.gpuKVCache or offload.cpuBytesToUse"
    try:
        memory = split_budget(
            replace(wanted.tiers, host_pool_bytes=None), wanted.shape, budget_bytes=left_bytes, names=SPEC_NAMES
        )
    except HostMemoryError:
        return f"no host pool for engine.maxModelLen {wanted.max_model_len:,} fits there: lower it, or offload.cpuBytesToUse"
    # rounded down: what is printed must fit
    gib = memory.host_pool_bytes * 10_000 // GIB / 10_000
    offload = f"an offload tier of {human_bytes(memory.cpu_bytes_to_use)}"
    return f"hiSparse.hostPoolGiB {gib} with {offload} would fit there: lower hiSparse.hostPoolGiB to at most that"
