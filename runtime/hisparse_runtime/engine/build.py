"""Options -> an engine that is ready to start."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hisparse_runtime.capacity import FLAG_NAMES, check_embedded_device_pool, embedded_hot_rows, host_pool
from hisparse_runtime.engine.executor import ModelExecutor
from hisparse_runtime.engine.loop import EngineLoop
from hisparse_runtime.engine.memory import KvMemory, PoolMemoryError
from hisparse_runtime.engine.model import Model
from hisparse_runtime.engine.model_config import ModelConfig
from hisparse_runtime.engine.weights import make_weights
from hisparse_runtime.geometry import ModelConfigError
from hisparse_runtime.policy import HiSparseMemory, PolicySettings
from hisparse_runtime.scheduling import Scheduler, SchedulerSettings

SERVE_NAMES = replace(FLAG_NAMES, gpu_kv="--gpu-kv-bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_kv_bytes: int
    host_pool_bytes: int
    cpu_bytes_to_use: int
    device_buffer_size: int | None = None
    seed: int = 0
    max_queued: int = 256
    shm_directory: Path = Path("/dev/shm")  # noqa: S108 - shared memory by design


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """`hot_rows`: rows of one request's hot region in each layer."""

    policy: PolicySettings
    scheduler: SchedulerSettings
    hot_rows: int


def build_settings(config: ModelConfig, options: EngineOptions) -> EngineSettings:
    """Sizes in blocks. Raises ModelConfigError, or CapacityError when one request of the longest length does not fit."""
    geometry = config.geometry
    longest = geometry.model.max_position_embeddings
    if options.max_model_len > longest:
        raise ModelConfigError(
            f"--max-model-len {options.max_model_len} exceeds the model's max_position_embeddings {longest}: lower it"
        )
    hot_rows = embedded_hot_rows(geometry, device_buffer_size=options.device_buffer_size, names=SERVE_NAMES)
    pool = host_pool(
        geometry,
        pool_bytes=options.host_pool_bytes,
        is_shared=False,
        max_model_len=options.max_model_len,
        names=SERVE_NAMES,
    )
    check_embedded_device_pool(
        geometry=geometry,
        device_pool_bytes=options.gpu_kv_bytes,
        max_model_len=options.max_model_len,
        max_num_batched_tokens=options.max_num_batched_tokens,
        device_buffer_rows=hot_rows,
        names=SERVE_NAMES,
    )
    return EngineSettings(
        policy=PolicySettings(
            num_groups=geometry.num_groups,
            page_tokens=geometry.page_tokens,
            num_device_blocks=options.gpu_kv_bytes // geometry.device_block_bytes,
            num_host_blocks=pool.num_blocks,
            hot_blocks_per_group=geometry.pages(hot_rows),
            window_pages=geometry.pages(min(options.max_num_batched_tokens, options.max_model_len)),
            max_model_len=options.max_model_len,
            num_offload_blocks=options.cpu_bytes_to_use // geometry.indexer_page_bytes,
        ),
        scheduler=SchedulerSettings(
            max_num_batched_tokens=options.max_num_batched_tokens,
            max_num_seqs=options.max_num_seqs,
            max_model_len=options.max_model_len,
            page_tokens=geometry.page_tokens,
        ),
        hot_rows=hot_rows,
    )


def build_executor(config: ModelConfig, options: EngineOptions, settings: EngineSettings) -> ModelExecutor:
    """Raises PoolMemoryError."""
    try:
        memory = KvMemory(
            geometry=config.geometry,
            num_device_blocks=settings.policy.num_device_blocks,
            num_host_blocks=settings.policy.num_host_blocks,
            num_offload_slots=settings.policy.num_offload_blocks,
            shm_directory=options.shm_directory,
        )
        model = Model(config, make_weights(config, seed=options.seed))
    except MemoryError as error:
        raise PoolMemoryError(f"weights and device pool do not fit into memory: {error}; use a smaller model or pool") from error
    return ModelExecutor(model=model, memory=memory, hot_rows=settings.hot_rows)


def build_engine(config: ModelConfig, options: EngineOptions, *, on_failure: Callable[[], object]) -> EngineLoop:
    """Raises ModelConfigError, CapacityError or PoolMemoryError."""
    settings = build_settings(config, options)
    # Before the scheduler, whose tables have an entry per block: sizes that cannot be had must not cost memory.
    executor = build_executor(config, options, settings)
    memory = HiSparseMemory(settings.policy)
    return EngineLoop(
        scheduler=Scheduler(settings.scheduler, memory),
        memory=memory,
        executor=executor,
        geometry=config.geometry,
        max_queued=options.max_queued,
        on_failure=on_failure,
    )
