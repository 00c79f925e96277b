"""The plan of one HiSparseDeployment: what the nodes have left, shared by its pods, split into pools."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hisparse_operator.api.quantity import quantity_bytes
from hisparse_operator.api.spec import HiSparseDeploymentSpec
from hisparse_operator.planning.eligibility import eligible_nodes
from hisparse_operator.planning.facts import NodeFacts, PodRequest
from hisparse_operator.planning.plan import Infeasible, InfeasibleReason, Plan
from hisparse_operator.planning.sharing import room, share_of_one_pod
from hisparse_runtime.capacity import (
    GIB,
    MAX_DEVICE_BUFFER_ROWS,
    CapacityError,
    HostMemoryError,
    PodMemory,
    check_device_pool,
    default_device_buffer_rows,
    device_pool_tokens,
    fixed_host_pool_bytes,
    human_bytes,
    pool_tokens,
    smallest_pod,
    split_budget,
)
from hisparse_runtime.geometry import ModelConfigError, ModelGeometry, embedded_geometry


def plan(spec: HiSparseDeploymentSpec, *, deployment: str, nodes: Sequence[NodeFacts], pods: Sequence[PodRequest]) -> Plan:
    """Sizes of one pod of `deployment` (namespace/name), whose own pods in `pods` count as not there. Raises Infeasible.

    Wrong values of the spec come first, then sizes that could fit on no node, then the nodes.
    """
    geometry = _geometry(spec)
    wishes = _wishes(spec, geometry)
    smallest = _smallest_pod(geometry, wishes)
    bound_bytes = None if spec.host_memory.max is None else quantity_bytes(spec.host_memory.max)
    if bound_bytes is not None and smallest.memory_bytes > bound_bytes:
        raise Infeasible(
            InfeasibleReason.INSUFFICIENT_HOST_MEMORY,
            f"hostMemory.max is {human_bytes(bound_bytes)} and one pod needs at least {human_bytes(smallest.memory_bytes)}"
            f" ({'; '.join(smallest.arithmetic)}): raise hostMemory.max to at least that, or lower engine.maxModelLen,"
            " engine.gpuKVCache or the pool sizes that are given",
        )
    rooms = [room(node, gpus=spec.engine.gpus, deployment=deployment, pods=pods) for node in eligible_nodes(spec, nodes)]
    what_fits = partial(_what_fits, geometry, wishes)
    share = share_of_one_pod(rooms, replicas=spec.replicas, smallest=smallest, what_fits=what_fits)
    budget_bytes, arithmetic = share.share_bytes, share.arithmetic
    if bound_bytes is not None and bound_bytes < budget_bytes:
        budget_bytes, arithmetic = bound_bytes, (*arithmetic, f"hostMemory.max: {human_bytes(bound_bytes)} of that for one pod")
    budget = split_budget(
        geometry=geometry,
        budget_bytes=budget_bytes,
        device_pool_bytes=wishes.device_pool_bytes,
        max_model_len=wishes.max_model_len,
        host_pool_bytes=wishes.host_pool_bytes,
        cpu_bytes_to_use=wishes.cpu_bytes_to_use,
    )
    return Plan(
        node=share.room.node,
        eligible_nodes=len(rooms),
        pods_per_node=share.num_pods,
        host_pool_bytes=budget.host_pool_bytes,
        # a power of two divides without rounding, so the engine gets back the same number of bytes
        host_pool_gib=budget.host_pool_bytes / GIB,
        cpu_bytes_to_use=budget.cpu_bytes_to_use,
        gpu_kv_bytes=wishes.device_pool_bytes,
        device_buffer_rows=wishes.device_buffer_rows,
        shm_bytes=budget.shm_bytes,
        memory_bytes=budget.memory_bytes,
        host_pool_tokens=pool_tokens(
            budget.host_pool_bytes, block_bytes=geometry.host_page_bytes, page_tokens=geometry.page_tokens
        ),
        device_pool_tokens=device_pool_tokens(geometry, device_pool_bytes=wishes.device_pool_bytes),
        arithmetic=(*arithmetic, *budget.arithmetic),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wishes:
    """The spec's numbers, defaults filled in; None for what is to be tuned."""

    max_model_len: int
    device_pool_bytes: int
    device_buffer_rows: int
    host_pool_bytes: int | None
    cpu_bytes_to_use: int | None


def _geometry(spec: HiSparseDeploymentSpec) -> ModelGeometry:
    try:
        geometry = embedded_geometry(spec.model.config)
    except ModelConfigError as error:
        raise Infeasible(InfeasibleReason.INVALID_MODEL_CONFIG, f"spec.model.config: {error}") from error
    if spec.engine.max_model_len > geometry.model.max_position_embeddings:
        raise Infeasible(
            InfeasibleReason.INVALID_SPEC,
            f"engine.maxModelLen is {spec.engine.max_model_len:,} and the model's max_position_embeddings"
            f" {geometry.model.max_position_embeddings:,}: lower engine.maxModelLen to at most that",
        )
    return geometry


def _wishes(spec: HiSparseDeploymentSpec, geometry: ModelGeometry) -> _Wishes:
    if geometry.model.index_topk > MAX_DEVICE_BUFFER_ROWS:
        raise Infeasible(
            InfeasibleReason.INVALID_MODEL_CONFIG,
            f"spec.model.config: index_topk is {geometry.model.index_topk:,} and a hot region numbers at most"
            f" {MAX_DEVICE_BUFFER_ROWS:,} rows: the model cannot be served with HiSparse",
        )
    rows = spec.engine.device_buffer_size or default_device_buffer_rows(geometry)
    if rows < geometry.model.index_topk:
        raise Infeasible(
            InfeasibleReason.INVALID_SPEC,
            f"engine.deviceBufferSize is {rows:,} and the model's index_topk {geometry.model.index_topk:,}, all read by one"
            f" token: raise it to at least {geometry.model.index_topk:,}, or leave it out for"
            f" {default_device_buffer_rows(geometry):,}",
        )
    host_pool_gib = spec.hi_sparse.host_pool_gib
    host_pool_bytes = None if host_pool_gib is None else fixed_host_pool_bytes(host_pool_gib)
    wishes = _Wishes(
        max_model_len=spec.engine.max_model_len,
        device_pool_bytes=quantity_bytes(spec.engine.gpu_kv_cache),
        device_buffer_rows=rows,
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=None if spec.offload.cpu_bytes_to_use is None else quantity_bytes(spec.offload.cpu_bytes_to_use),
    )
    try:
        check_device_pool(
            geometry=geometry,
            device_pool_bytes=wishes.device_pool_bytes,
            max_model_len=wishes.max_model_len,
            max_num_batched_tokens=spec.engine.max_num_batched_tokens,
            device_buffer_rows=rows,
        )
    except CapacityError as error:
        raise Infeasible(InfeasibleReason(error.reason), str(error)) from error
    return wishes


def _smallest_pod(geometry: ModelGeometry, wishes: _Wishes) -> PodMemory:
    try:
        return smallest_pod(
            geometry=geometry,
            device_pool_bytes=wishes.device_pool_bytes,
            max_model_len=wishes.max_model_len,
            host_pool_bytes=wishes.host_pool_bytes,
            cpu_bytes_to_use=wishes.cpu_bytes_to_use,
        )
    except CapacityError as error:
        raise Infeasible(InfeasibleReason(error.reason), str(error)) from error


def _what_fits(geometry: ModelGeometry, wishes: _Wishes, left_bytes: int) -> str:
    """The next step for a person whose pods find no node: `left_bytes` is what the largest has left."""
    if wishes.host_pool_bytes is None:
        return "lower engine.maxModelLen, engine.gpuKVCache or offload.cpuBytesToUse"
    try:
        budget = split_budget(
            geometry=geometry,
            budget_bytes=left_bytes,
            device_pool_bytes=wishes.device_pool_bytes,
            max_model_len=wishes.max_model_len,
            cpu_bytes_to_use=wishes.cpu_bytes_to_use,
        )
    except HostMemoryError:
        return f"no host pool for engine.maxModelLen {wishes.max_model_len:,} fits there: lower it, or offload.cpuBytesToUse"
    # rounded down: what is printed must fit
    gib = budget.host_pool_bytes * 10_000 // GIB / 10_000
    offload = f"an offload tier of {human_bytes(budget.cpu_bytes_to_use)}"
    return f"hiSparse.hostPoolGiB {gib} with {offload} would fit there: lower hiSparse.hostPoolGiB to at most that"
