"""A command line's sizes, by the arithmetic of capacity: where the model, the GPU and its KV memory are known."""

import math

from hisparse_runtime.capacity import (
    DEFAULT_GPU_MEMORY_UTILIZATION,
    GIB,
    CapacityError,
    FieldNames,
    VllmSettings,
    VllmSizes,
    estimated_kv_bytes,
    gib_bytes,
    size_vllm,
)
from hisparse_runtime.capacity.engine_plan import usable_host_bytes
from hisparse_runtime.capacity.gpus import Gpu
from hisparse_runtime.capacity.weights import read_weight_bytes
from hisparse_runtime.geometry import CacheFormatError, ModelConfigError
from hisparse_runtime.vllm.command_line.meaning import Meaning
from hisparse_runtime.vllm.explain.knowledge import Knowledge

LINE_NAMES = FieldNames(
    host_pool_gib="host_pool_gib",
    max_model_len="--max-model-len",
    gpu_kv="the GPU's KV memory",
    device_buffer_size="device_buffer_size",
    num_speculative_tokens="num_speculative_tokens",
    max_num_batched_tokens="--max-num-batched-tokens",
)
# What a server takes where nothing is said, by the GPU's memory.
_LARGE_GPU_BYTES, _GPU_BYTES = 160 * GIB, 70 * GIB
_AUTO = -1
# With these, vLLM counts otherwise than by its own rules.
_UNKNOWN_SIZES = ("--num-gpu-blocks-override", "--attention-backend")


def sizes_depend_on(meaning: Meaning) -> str | None:
    """An option with which the arithmetic does not hold."""
    return next((name for name in _UNKNOWN_SIZES if meaning.value(name) is not None), None)


def kv_bytes(meaning: Meaning, knowledge: Knowledge) -> tuple[int, bool] | None:
    """KV memory of one GPU, and whether it is estimated from the weights; None where nothing says."""
    given = meaning.value("--kv-cache-memory-bytes") or knowledge.gpu_kv_bytes
    if given:
        return int(given), False
    if knowledge.gpu is None or knowledge.config is None:
        return None
    share = meaning.value("--gpu-memory-utilization")
    try:
        weights = read_weight_bytes(knowledge.config, is_speculative=meaning.num_mtp_tokens > 0, index=knowledge.index)
        estimated_bytes = estimated_kv_bytes(
            knowledge.gpu,
            weights_bytes=weights.per_gpu_bytes(
                tensor_parallel_size=_ranks(meaning),
                data_parallel_size=_replicas(meaning),
                expert_parallel=meaning.value("--enable-expert-parallel") is True,
            ),
            gpu_memory_utilization=DEFAULT_GPU_MEMORY_UTILIZATION if share is None else share,
        )
    except (CapacityError, ModelConfigError):
        return None
    return estimated_bytes, True


def engine_settings(meaning: Meaning, knowledge: Knowledge, *, gpu: Gpu, gpu_kv_bytes: int) -> VllmSettings:
    """What the line says, with vLLM's defaults for what it does not. A context that is too long counts as the longest."""
    model = knowledge.model
    context = meaning.value("--max-model-len")
    if context is None and model is not None:
        context = model.max_position_embeddings
    if context is not None and context != _AUTO and model is not None:
        context = min(context, model.max_position_embeddings)
    return VllmSettings(
        version=knowledge.version,
        capability=gpu.capability,
        gpu_kv_bytes=gpu_kv_bytes,
        max_model_len=None if context == _AUTO else context,
        max_num_batched_tokens=meaning.number("--max-num-batched-tokens", default=_batched_tokens(gpu)),
        max_num_seqs=meaning.number("--max-num-seqs", default=1024 if gpu.visible_memory_bytes >= _GPU_BYTES else 256),
        kv_cache_dtype=str(meaning.value("--kv-cache-dtype") or "auto"),
        block_size=meaning.value("--block-size"),
        num_speculative_tokens=meaning.num_mtp_tokens,
        device_buffer_size=meaning.device_buffer_size,
        async_scheduling=meaning.value("--async-scheduling") is not False,
        tensor_parallel_size=_ranks(meaning),
        data_parallel_size=_replicas(meaning),
        prefill_context_parallel_size=max(1, meaning.number("--prefill-context-parallel-size", default=1)),
        distributed_executor_backend=str(meaning.value("--distributed-executor-backend") or "mp"),
        nodes_per_replica=max(1, meaning.number("--nnodes", default=1)),
    )


def suggested_pool_gib(meaning: Meaning, knowledge: Knowledge) -> float | None:
    """The host pool that running requests can fill, in whole GiB; None where it cannot be told."""
    sizes = _sizes(meaning, knowledge)
    return None if sizes is None else float(math.ceil(usable_host_bytes(sizes) / GIB))


def suggested_offload_bytes(meaning: Meaning, knowledge: Knowledge, *, pool_gib: float) -> int | None:
    """The offload tier for as many tokens as the host pool holds, or the least that vLLM takes; None where it cannot be told."""
    sizes = _sizes(meaning, knowledge)
    if sizes is None:
        return None
    tiers = sizes.tiers(host_pool_bytes=None, cpu_bytes_to_use=None)
    return tiers.offload_beside(max(gib_bytes(pool_gib), tiers.min_host_blocks * tiers.host_block_bytes))


def _sizes(meaning: Meaning, knowledge: Knowledge) -> VllmSizes | None:
    memory = kv_bytes(meaning, knowledge)
    if knowledge.model is None or knowledge.gpu is None or memory is None or sizes_depend_on(meaning):
        return None
    settings = engine_settings(meaning, knowledge, gpu=knowledge.gpu, gpu_kv_bytes=memory[0])
    try:
        return size_vllm(knowledge.model, settings, host_pool_bytes=None, names=LINE_NAMES)
    except (CacheFormatError, CapacityError, ModelConfigError):
        return None


def _batched_tokens(gpu: Gpu) -> int:
    if gpu.visible_memory_bytes >= _LARGE_GPU_BYTES:
        return 16384
    return 8192 if gpu.visible_memory_bytes >= _GPU_BYTES else 2048


def _ranks(meaning: Meaning) -> int:
    return max(1, meaning.number("--tensor-parallel-size", default=1))


def _replicas(meaning: Meaning) -> int:
    return max(1, meaning.number("--data-parallel-size", default=1))
