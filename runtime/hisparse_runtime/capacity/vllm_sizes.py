"""Everything that vLLM decides about sizes between its command line and its first request, in its own order of checks."""

from dataclasses import dataclass

from hisparse_runtime.capacity.budget import PodShape, Tiers
from hisparse_runtime.capacity.device_pool import DevicePool, check_device_pool, longest_that
from hisparse_runtime.capacity.errors import DeviceMemoryError, FieldNames, SettingsError
from hisparse_runtime.capacity.host_pool import HostPool, host_pool, host_stride_bytes, minimum_host_blocks
from hisparse_runtime.capacity.hot_region import HotRegion, hot_region
from hisparse_runtime.capacity.offload_tier import offload_chunk_bytes
from hisparse_runtime.capacity.units import GIB, human_bytes
from hisparse_runtime.geometry import (
    VLLM_PAGE_TOKENS,
    ModelGeometry,
    SparseMlaModel,
    VllmVersion,
    lay_out,
    vllm_cache_format,
)

# Host memory of vLLM's processes beside the pools. API server and engine core held 0.9 GiB each in a real server on a CPU; a
# worker's is the CUDA context, NCCL and staging buffers, and is not measured: change it where you know better.
ENGINE_PROCESS_BYTES = 2 * GIB
WORKER_PROCESS_BYTES = 6 * GIB
# Rings of NCCL and of vLLM's own message queues live in /dev/shm too.
_SHM_SLACK_BYTES = 2 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """How vLLM is started, as far as sizes depend on it; fields are called like its options.

    `gpu_kv_bytes`: KV memory on each GPU. `max_model_len` None is vLLM's -1: the longest that fits. `nodes_per_replica`: nodes
    that one data-parallel replica spans.
    """

    version: VllmVersion
    capability: tuple[int, int]
    gpu_kv_bytes: int
    max_model_len: int | None
    max_num_batched_tokens: int
    max_num_seqs: int
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    num_speculative_tokens: int = 0
    device_buffer_size: int | None = None
    async_scheduling: bool = True
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    distributed_executor_backend: str = "mp"
    nodes_per_replica: int = 1

    @property
    def ranks_per_replica(self) -> int:
        return self.tensor_parallel_size * self.prefill_context_parallel_size

    @property
    def shares_host_pool(self) -> bool:
        """Whether the ranks of a replica map one pool in /dev/shm; else each of them pins private memory of the full size."""
        return (
            self.tensor_parallel_size > 1
            and self.prefill_context_parallel_size == 1
            and self.distributed_executor_backend == "mp"
            and self.nodes_per_replica == 1
        )

    @property
    def in_flight_tokens(self) -> int:
        """Tokens that may be scheduled and not yet settled: with async scheduling, two steps' worth."""
        return self.max_num_batched_tokens * (2 if self.async_scheduling else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSizes:
    """What vLLM allocates with these settings, before any host pool is chosen."""

    settings: VllmSettings
    geometry: ModelGeometry
    hot: HotRegion
    device: DevicePool
    max_model_len: int

    @property
    def host_stride_bytes(self) -> int:
        return host_stride_bytes(self.geometry, is_shared=self.settings.shares_host_pool)

    @property
    def offload_chunk_bytes(self) -> int:
        return offload_chunk_bytes(self.geometry, tensor_parallel_size=self.settings.ranks_per_replica)

    def host_pool(self, pool_bytes: int, *, names: FieldNames) -> HostPool:
        """The host pool in blocks. Raises HostMemoryError when vLLM would refuse it."""
        return host_pool(
            self.geometry,
            pool_bytes=pool_bytes,
            is_shared=self.settings.shares_host_pool,
            max_model_len=self.max_model_len,
            names=names,
            checks_minimum=self.settings.version.checks_host_minimum,
        )

    def tiers(self, *, host_pool_bytes: int | None, cpu_bytes_to_use: int | None) -> Tiers:
        """For the memory budget; None is tuned. A tuned pool always holds one request, also where vLLM does not ask for it."""
        return Tiers(
            host_block_bytes=self.host_stride_bytes,
            offload_block_bytes=self.offload_chunk_bytes,
            page_tokens=self.geometry.page_tokens,
            min_host_blocks=minimum_host_blocks(self.geometry, max_model_len=self.max_model_len),
            host_pool_bytes=host_pool_bytes,
            cpu_bytes_to_use=cpu_bytes_to_use,
        )


def pod_shape(settings: VllmSettings) -> PodShape:
    """The pod of a deployment on one node: all data-parallel replicas are in it."""
    workers = settings.data_parallel_size * settings.ranks_per_replica
    return PodShape(
        working_set_bytes=settings.data_parallel_size * ENGINE_PROCESS_BYTES + workers * WORKER_PROCESS_BYTES,
        shm_slack_bytes=_SHM_SLACK_BYTES,
        replicas=settings.data_parallel_size,
        host_pool_copies=1 if settings.shares_host_pool else settings.ranks_per_replica,
        shares_host_pool=settings.shares_host_pool,
        # the scheduler maps the offload region as well
        mapping_processes=settings.ranks_per_replica + 1,
    )


def vllm_geometry(model: SparseMlaModel, settings: VllmSettings) -> ModelGeometry:
    """The model's KV as vLLM lays it out with these settings. Raises CacheFormatError or ModelConfigError."""
    cache_format = vllm_cache_format(
        model, kv_cache_dtype=settings.kv_cache_dtype, capability=settings.capability, version=settings.version
    )
    return lay_out(model, cache_format, with_mtp=settings.num_speculative_tokens > 0)


def size_vllm(model: SparseMlaModel, settings: VllmSettings, *, host_pool_bytes: int | None, names: FieldNames) -> VllmSizes:
    """Sizes of the device side. Raises what vLLM would refuse: CacheFormatError, SettingsError or DeviceMemoryError.

    `host_pool_bytes` matters only for a fitted context, which must fit into both pools; None leaves the host out.
    """
    _check_block_size(settings.block_size)
    _check_speculation(model, settings.num_speculative_tokens, names=names)
    geometry = vllm_geometry(model, settings)
    hot = hot_region(
        geometry,
        version=settings.version,
        num_speculative_tokens=settings.num_speculative_tokens,
        device_buffer_size=settings.device_buffer_size,
        names=names,
    )
    device = DevicePool(
        geometry=geometry,
        version=settings.version,
        hot=hot,
        kv_bytes=settings.gpu_kv_bytes,
        in_flight_tokens=settings.in_flight_tokens,
        ordinary_block_tokens=settings.block_size or VLLM_PAGE_TOKENS,
    )
    longest = model.max_position_embeddings
    if settings.max_model_len is None:
        max_model_len = _fitted(device, settings, longest=longest, host_pool_bytes=host_pool_bytes, names=names)
    elif settings.max_model_len > longest:
        raise SettingsError(
            f"{names.max_model_len} is {settings.max_model_len:,} and the model's max_position_embeddings {longest:,}: lower"
            f" {names.max_model_len} to at most that"
        )
    else:
        max_model_len = settings.max_model_len
    check_device_pool(device, max_model_len=max_model_len, names=names)
    return VllmSizes(settings=settings, geometry=geometry, hot=hot, device=device, max_model_len=max_model_len)


def _check_block_size(block_size: int | None) -> None:
    """Larger blocks than the kernels' are planned as the kernels' own; others have no kernel."""
    if block_size is not None and block_size % VLLM_PAGE_TOKENS:
        raise SettingsError(
            f"block_size {block_size}: the indexer's kernels read pages of {VLLM_PAGE_TOKENS} tokens: use a multiple of"
            f" {VLLM_PAGE_TOKENS}, or leave it out"
        )


def _check_speculation(model: SparseMlaModel, num_speculative_tokens: int, *, names: FieldNames) -> None:
    """MTP layers draft in turn, each as often as the others."""
    layers = model.num_mtp_layers
    if num_speculative_tokens and not layers:
        raise SettingsError(
            f"{names.num_speculative_tokens} {num_speculative_tokens}: config.json has no num_nextn_predict_layers, so no"
            " MTP layer could draft: leave it out"
        )
    if layers and num_speculative_tokens > layers and num_speculative_tokens % layers:
        raise SettingsError(
            f"{names.num_speculative_tokens} {num_speculative_tokens} must be divisible by the model's {layers} MTP layers: use"
            f" {num_speculative_tokens // layers * layers}"
        )


def _fitted(device: DevicePool, settings: VllmSettings, *, longest: int, host_pool_bytes: int | None, names: FieldNames) -> int:
    """The longest context of which one request fits into the device pool and the host pool."""
    geometry = device.geometry
    host_blocks = None
    if host_pool_bytes is not None:
        host_blocks = host_pool_bytes // host_stride_bytes(geometry, is_shared=settings.shares_host_pool)

    def fits(tokens: int) -> bool:
        if host_blocks is not None:
            checks_minimum = settings.version.checks_host_minimum
            needed = minimum_host_blocks(geometry, max_model_len=tokens) if checks_minimum else geometry.pages(tokens)
            if host_blocks < needed:
                return False
        return device.holds_one(tokens)

    fitted = longest_that(fits, most=longest)
    if fitted == 0:
        raise DeviceMemoryError(
            f"{names.max_model_len} cannot be fitted: GPU KV memory {human_bytes(device.kv_bytes)} and the host pool do not hold"
            f" a request of one token; it takes {human_bytes(device.needed_bytes(1))} of GPU KV memory, most of it for a hot"
            f" region of {device.hot.blocks_per_request:,} blocks: raise {names.gpu_kv} or {names.host_pool_gib}"
        )
    return fitted
