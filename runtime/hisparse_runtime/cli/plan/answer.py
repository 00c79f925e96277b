"""The plan as fields: what `-o json` prints and the table shows. A section that is not known is None."""

from contextlib import suppress
from dataclasses import dataclass, replace

from hisparse_runtime.capacity import (
    GIB,
    CapacityError,
    EnginePlan,
    HotRegion,
    SettingsError,
    host_stride_bytes,
    hot_region,
    minimum_host_blocks,
    plan_arithmetic,
    plan_warnings,
)
from hisparse_runtime.cli.plan.case import Asked, Case, RefusedError, known_geometry, reason_of
from hisparse_runtime.geometry import CacheFormatError, ModelGeometry, SparseMlaModel


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometrySection:
    """Where the GPU is not supported, only the layers are known."""

    row_bytes: int | None
    row_format: str | None
    page_tokens: int | None
    num_layers: int
    num_indexer_layers: int
    num_groups: int | None
    layers_per_group: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSection:
    """`total_bytes` is one copy of everything, `gpu_bytes` what one GPU holds of it, `source` where the numbers are from."""

    total_bytes: int
    gpu_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSection:
    """Of one GPU. `overhead_bytes` is what HiSparse takes beside the KV pool, `is_estimated` is about `kv_bytes`."""

    bytes_per_block: int
    num_blocks: int
    kv_bytes: int
    is_estimated: bool
    overhead_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSection:
    """Of one data-parallel replica. `usable_bytes`: what as many running requests fill as the GPU side carries."""

    stride_bytes: int
    num_blocks: int | None
    pool_bytes: int | None
    pool_gib: float | None
    mode: str
    min_blocks: int | None
    tokens: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HotSection:
    rows: int
    blocks_per_request: int
    bytes_per_request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSection:
    """Of one data-parallel replica."""

    cpu_bytes_to_use: int
    bytes_per_token: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencySection:
    """Requests of `max_model_len` tokens, per data-parallel replica; see capacity.Concurrency."""

    max_model_len: int
    ordinary: float
    generic: float
    steady: float
    host: float
    limited_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSection:
    """Of one pod, which has `num_replicas` data-parallel replicas."""

    num_replicas: int
    shm_bytes: int
    memory_bytes: int
    startup_seconds: int
    termination_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why there is no plan."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    asked: Asked
    geometry: GeometrySection | None = None
    weights: WeightsSection | None = None
    gpu: GpuSection | None = None
    host: HostSection | None = None
    hot: HotSection | None = None
    offload: OffloadSection | None = None
    concurrency: ConcurrencySection | None = None
    pod: PodSection | None = None
    warnings: tuple[str, ...] = ()
    errors: tuple[Fault, ...] = ()
    arithmetic: tuple[str, ...] = ()


def planned(case: Case, plan: EnginePlan) -> Answer:
    """Every section."""
    sizes, memory, now, times = plan.sizes, plan.memory, plan.concurrency, plan.times
    geometry = sizes.geometry
    return Answer(
        asked=replace(case.asked, max_model_len=sizes.max_model_len),
        geometry=geometry_section(geometry),
        weights=_weights(case),
        gpu=_gpu(case, geometry, overhead_bytes=plan.overhead_bytes),
        host=HostSection(
            stride_bytes=plan.host.stride_bytes,
            num_blocks=plan.host.num_blocks,
            pool_bytes=memory.host_pool_bytes,
            pool_gib=memory.host_pool_bytes / GIB,
            mode=_mode(case),
            min_blocks=plan.host.min_blocks,
            tokens=plan.host.tokens,
            usable_bytes=plan.usable_host_bytes,
        ),
        hot=_hot(geometry, sizes.hot),
        offload=OffloadSection(
            cpu_bytes_to_use=memory.cpu_bytes_to_use,
            bytes_per_token=sizes.offload_chunk_bytes / geometry.page_tokens,
            tokens=plan.offload_tokens,
        ),
        concurrency=ConcurrencySection(
            max_model_len=sizes.max_model_len,
            ordinary=now.ordinary,
            generic=now.generic,
            steady=now.steady,
            host=now.host,
            limited_by=now.limited_by,
        ),
        pod=PodSection(
            num_replicas=sizes.settings.data_parallel_size,
            shm_bytes=memory.shm_bytes,
            memory_bytes=memory.memory_bytes,
            startup_seconds=times.startup_seconds,
            termination_seconds=times.termination_seconds,
        ),
        warnings=(*case.warnings, *plan_warnings(plan)),
        arithmetic=(*case.arithmetic, *plan_arithmetic(plan)),
    )


def refused(case: Case, error: CacheFormatError | CapacityError) -> Answer:
    """Why vLLM would not start, and the sections that do not depend on what is wrong."""
    settings, model = case.request.settings, case.request.model
    known = Answer(asked=case.asked, warnings=case.warnings, errors=(Fault(reason=reason_of(error), message=str(error)),))
    try:
        geometry = known_geometry(
            model,
            kv_cache_dtype=settings.kv_cache_dtype,
            capability=settings.capability,
            version=settings.version,
            num_speculative_tokens=settings.num_speculative_tokens,
        )
    except CacheFormatError:
        return replace(known, geometry=_layers(model, with_mtp=settings.num_speculative_tokens > 0))
    hot = None
    with suppress(SettingsError):
        region = hot_region(
            geometry,
            version=settings.version,
            num_speculative_tokens=settings.num_speculative_tokens,
            device_buffer_size=settings.device_buffer_size,
            names=case.names,
        )
        hot = _hot(geometry, region)
    return replace(
        known,
        geometry=geometry_section(geometry),
        weights=_weights(case),
        gpu=_gpu(case, geometry, overhead_bytes=None),
        host=_wished_host(case, geometry),
        hot=hot,
    )


def refused_early(error: RefusedError) -> Answer:
    """For what was refused before there was anything to plan with."""
    geometry = None
    if error.geometry is not None:
        geometry = geometry_section(error.geometry)
    elif error.model is not None:
        geometry = _layers(error.model, with_mtp=error.asked.num_speculative_tokens > 0)
    return Answer(
        asked=error.asked,
        geometry=geometry,
        warnings=error.warnings,
        errors=(Fault(reason=error.reason, message=error.message),),
    )


def _wished_host(case: Case, geometry: ModelGeometry) -> HostSection:
    request, settings = case.request, case.request.settings
    stride_bytes, pool_bytes = host_stride_bytes(geometry, is_shared=settings.shares_host_pool), request.host_pool_bytes
    min_blocks = None
    if settings.max_model_len is not None:
        min_blocks = minimum_host_blocks(geometry, max_model_len=settings.max_model_len)
    return HostSection(
        stride_bytes=stride_bytes,
        num_blocks=None if pool_bytes is None else pool_bytes // stride_bytes,
        pool_bytes=pool_bytes,
        pool_gib=None if pool_bytes is None else pool_bytes / GIB,
        mode=_mode(case),
        min_blocks=min_blocks,
        tokens=None,
        usable_bytes=None,
    )


def _mode(case: Case) -> str:
    return "shared" if case.request.settings.shares_host_pool else "private"


def geometry_section(geometry: ModelGeometry) -> GeometrySection:
    return GeometrySection(
        row_bytes=geometry.row_bytes,
        row_format=geometry.cache_format.name,
        page_tokens=geometry.page_tokens,
        num_layers=geometry.num_layers,
        num_indexer_layers=geometry.num_indexer_layers,
        num_groups=geometry.num_groups,
        layers_per_group=geometry.layers_per_group,
    )


def _layers(model: SparseMlaModel, *, with_mtp: bool) -> GeometrySection:
    owners = model.layers(with_mtp=with_mtp)
    return GeometrySection(
        row_bytes=None,
        row_format=None,
        page_tokens=None,
        num_layers=len(owners),
        num_indexer_layers=sum(owners),
        num_groups=None,
        layers_per_group=None,
    )


def _weights(case: Case) -> WeightsSection | None:
    if case.weights is None or case.gpu_weights_bytes is None:
        return None
    return WeightsSection(total_bytes=case.weights.total_bytes, gpu_bytes=case.gpu_weights_bytes, source=case.weights.source)


def _gpu(case: Case, geometry: ModelGeometry, *, overhead_bytes: int | None) -> GpuSection:
    kv_bytes, block_bytes = case.request.settings.gpu_kv_bytes, geometry.device_block_bytes
    return GpuSection(
        bytes_per_block=block_bytes,
        num_blocks=kv_bytes // block_bytes,
        kv_bytes=kv_bytes,
        is_estimated=case.gpu_memory_utilization is not None,
        overhead_bytes=overhead_bytes,
    )


def _hot(geometry: ModelGeometry, hot: HotRegion) -> HotSection:
    return HotSection(
        rows=hot.rows,
        blocks_per_request=hot.blocks_per_request,
        bytes_per_request=hot.blocks_per_request * geometry.device_block_bytes,
    )
