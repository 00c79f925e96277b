"""What one pod of a deployment asks for, whichever engine runs in it."""

from dataclasses import dataclass

from hisparse_operator.api.quantity import quantity_bytes
from hisparse_operator.api.spec import HiSparseDeploymentSpec
from hisparse_operator.planning.plan import Infeasible, InfeasibleReason
from hisparse_operator.planning.vllm_request import ordinary_request, vllm_request
from hisparse_runtime.capacity import (
    MAX_DEVICE_BUFFER_ROWS,
    SPEC_NAMES,
    CapacityError,
    EngineRequest,
    OrdinaryRequest,
    PodMemory,
    PodShape,
    Tiers,
    check_embedded_device_pool,
    default_device_buffer_rows,
    device_pool_tokens,
    embedded_shape,
    embedded_tiers,
    gib_bytes,
    host_pool,
    plan_engine,
    pod_shape,
    smallest_pod,
)
from hisparse_runtime.geometry import CacheFormatError, ModelConfigError, ModelGeometry, embedded_geometry
from hisparse_runtime.vllm.pod_plan import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """An engine with HiSparse: its side of the plan; node memory is the other. `request` is what vLLM is planned from."""

    tiers: Tiers
    shape: PodShape
    max_model_len: int
    gpu_kv_bytes: int
    device_buffer_rows: int
    device_pool_tokens: int
    request: EngineRequest | None = None

    @property
    def smallest(self) -> PodMemory:
        """The least memory that a pod can do with."""
        return smallest_pod(self.tiers, self.shape)


def demand(spec: HiSparseDeploymentSpec) -> Demand | OrdinaryRequest:
    """Raises Infeasible for wishes that no node could meet: wrong values, or sizes that the engine would refuse."""
    try:
        if spec.engine.vllm is None:
            return _embedded(spec)
        return _vllm(spec) if spec.hi_sparse.mode is Mode.ON else ordinary_request(spec)
    except ModelConfigError as error:
        raise Infeasible(InfeasibleReason.INVALID_MODEL_CONFIG, f"spec.model.config: {error}") from error
    except CacheFormatError as error:
        raise Infeasible(InfeasibleReason.INVALID_SPEC, f"engine.vllm: {error}") from error
    except CapacityError as error:
        raise Infeasible(InfeasibleReason(error.reason), str(error)) from error


def _vllm(spec: HiSparseDeploymentSpec) -> Demand:
    request = vllm_request(spec)
    # the plan without a node: whatever vLLM would refuse is refused here, before any node is looked at
    sizes = plan_engine(request, names=SPEC_NAMES).sizes
    geometry = sizes.geometry
    return Demand(
        tiers=sizes.tiers(host_pool_bytes=request.host_pool_bytes, cpu_bytes_to_use=request.cpu_bytes_to_use),
        shape=pod_shape(sizes.settings),
        max_model_len=sizes.max_model_len,
        gpu_kv_bytes=request.settings.gpu_kv_bytes,
        device_buffer_rows=sizes.hot.rows,
        # fully resident, a page takes a block in each group, and one for its indexer keys
        device_pool_tokens=max(0, sizes.device.num_blocks - 1) // (1 + geometry.num_groups) * geometry.page_tokens,
        request=request,
    )


def _embedded(spec: HiSparseDeploymentSpec) -> Demand:
    engine = spec.engine
    geometry = embedded_geometry(spec.model.config)
    if engine.max_model_len > geometry.model.max_position_embeddings:
        raise Infeasible(
            InfeasibleReason.INVALID_SPEC,
            f"engine.maxModelLen is {engine.max_model_len:,} and the model's max_position_embeddings"
            f" {geometry.model.max_position_embeddings:,}: lower engine.maxModelLen to at most that",
        )
    assert engine.gpu_kv_cache is not None
    device_pool_bytes = quantity_bytes(engine.gpu_kv_cache)
    rows = _embedded_hot_rows(geometry, engine.device_buffer_size)
    check_embedded_device_pool(
        geometry=geometry,
        device_pool_bytes=device_pool_bytes,
        max_model_len=engine.max_model_len,
        max_num_batched_tokens=engine.num_batched_tokens,
        device_buffer_rows=rows,
    )
    host_pool_bytes = None if spec.hi_sparse.host_pool_gib is None else gib_bytes(spec.hi_sparse.host_pool_gib)
    if host_pool_bytes is not None:
        host_pool(geometry, pool_bytes=host_pool_bytes, is_shared=False, max_model_len=engine.max_model_len, names=SPEC_NAMES)
    return Demand(
        tiers=embedded_tiers(
            geometry,
            max_model_len=engine.max_model_len,
            host_pool_bytes=host_pool_bytes,
            cpu_bytes_to_use=None if spec.offload.cpu_bytes_to_use is None else quantity_bytes(spec.offload.cpu_bytes_to_use),
        ),
        shape=embedded_shape(device_pool_bytes=device_pool_bytes),
        max_model_len=engine.max_model_len,
        gpu_kv_bytes=device_pool_bytes,
        device_buffer_rows=rows,
        device_pool_tokens=device_pool_tokens(geometry, device_pool_bytes=device_pool_bytes),
    )


def _embedded_hot_rows(geometry: ModelGeometry, device_buffer_size: int | None) -> int:
    topk = geometry.model.index_topk
    if topk > MAX_DEVICE_BUFFER_ROWS:
        raise ModelConfigError(
            f"index_topk is {topk:,} and a hot region numbers at most {MAX_DEVICE_BUFFER_ROWS:,} rows: the model cannot be served"
            " with HiSparse"
        )
    default_rows = default_device_buffer_rows(geometry)
    rows = device_buffer_size or default_rows
    if rows < topk:
        raise Infeasible(
            InfeasibleReason.INVALID_SPEC,
            f"engine.deviceBufferSize is {rows:,} and the model's index_topk {topk:,}, all read by one token: raise it to at"
            f" least {topk:,}, or leave it out for {default_rows:,}",
        )
    return rows
