"""Options -> an engine that is ready to start."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hisparse_runtime.engine.executor import Executor
from hisparse_runtime.engine.loop import EngineLoop
from hisparse_runtime.engine.memory import KvMemory, PoolMemoryError
from hisparse_runtime.engine.model import Model
from hisparse_runtime.engine.model_config import ModelConfig
from hisparse_runtime.engine.weights import make_weights
from hisparse_runtime.geometry import ModelConfigError
from hisparse_runtime.policy import Limits, plan_limits
from hisparse_runtime.scheduling import Scheduler


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


def build_limits(config: ModelConfig, options: EngineOptions) -> Limits:
    """Raises ModelConfigError or PoolTooSmallError."""
    longest = config.geometry.model.max_position_embeddings
    if options.max_model_len > longest:
        raise ModelConfigError(
            f"--max-model-len {options.max_model_len} exceeds the model's max_position_embeddings {longest}: lower it"
        )
    return plan_limits(
        config.geometry,
        gpu_kv_bytes=options.gpu_kv_bytes,
        host_pool_bytes=options.host_pool_bytes,
        cpu_bytes_to_use=options.cpu_bytes_to_use,
        device_buffer_size=options.device_buffer_size,
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
    )


def build_executor(config: ModelConfig, options: EngineOptions, limits: Limits) -> Executor:
    """Raises PoolMemoryError."""
    try:
        memory = KvMemory(geometry=config.geometry, limits=limits, shm_directory=options.shm_directory)
        model = Model(config, make_weights(config, seed=options.seed))
    except MemoryError as error:
        raise PoolMemoryError(f"weights and device pool do not fit into memory: {error}; use a smaller model or pool") from error
    return Executor(model=model, memory=memory, hot_rows=limits.hot_rows)


def build_engine(config: ModelConfig, options: EngineOptions, *, on_failure: Callable[[], object]) -> EngineLoop:
    """Raises ModelConfigError, PoolTooSmallError or PoolMemoryError."""
    limits = build_limits(config, options)
    # Before the scheduler, whose tables have an entry per block: sizes that cannot be had must not cost memory.
    executor = build_executor(config, options, limits)
    return EngineLoop(
        scheduler=Scheduler(limits),
        executor=executor,
        geometry=config.geometry,
        max_queued=options.max_queued,
        on_failure=on_failure,
    )
