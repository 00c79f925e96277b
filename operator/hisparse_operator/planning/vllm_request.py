"""spec -> what vLLM is planned from."""

from collections.abc import Mapping
from typing import Any

from hisparse_operator.api.quantity import quantity_bytes
from hisparse_operator.api.spec import HiSparseDeploymentSpec
from hisparse_operator.planning.plan import Infeasible, InfeasibleReason
from hisparse_runtime.capacity import EngineRequest, VllmSettings, estimated_kv_bytes, gib_bytes
from hisparse_runtime.capacity.gpus import gpu
from hisparse_runtime.capacity.weights import WeightBytes, read_weight_bytes
from hisparse_runtime.geometry import (
    NEWEST_VERSION,
    ModelConfigError,
    UnknownVersionError,
    complete_config,
    read_model,
    vllm_version,
)

# What the plan decides, and what would change sizes behind its back: option -> where to say it instead.
_PLANNED_ARGUMENTS = {
    "--kv-transfer-config": "hiSparse.hostPoolGiB and offload.cpuBytesToUse, from which the connectors are configured",
    "--attention-config": "hiSparse.hostPoolGiB and engine.deviceBufferSize; host_pool_gib in hisparse_config is the dialect of"
    " a branch that every release refuses",
    "-ac": "hiSparse.hostPoolGiB and engine.deviceBufferSize",
    "--attention-backend": "engine.vllm.kvCacheDtype; the backend decides the row format",
    "--num-gpu-blocks-override": "engine.gpuKVCache; the override would leave the host pool at another size than planned",
    "--kv-offloading-size": "offload.cpuBytesToUse",
    "--kv-cache-dtype": "engine.vllm.kvCacheDtype",
    "--max-model-len": "engine.maxModelLen",
    "--max-num-seqs": "engine.maxNumSeqs",
    "--max-num-batched-tokens": "engine.maxNumBatchedTokens",
    "--tensor-parallel-size": "engine.vllm.tensorParallelSize",
    "-tp": "engine.vllm.tensorParallelSize",
    "--data-parallel-size": "engine.vllm.dataParallelSize",
    "-dp": "engine.vllm.dataParallelSize",
    "--speculative-config": "engine.vllm.numSpeculativeTokens",
    "--gpu-memory-utilization": "engine.vllm.gpuMemoryUtilization",
    "--async-scheduling": "engine.vllm.asyncScheduling",
    "--no-async-scheduling": "engine.vllm.asyncScheduling",
}


def vllm_request(spec: HiSparseDeploymentSpec) -> EngineRequest:
    """Raises Infeasible, ModelConfigError or CapacityError for what cannot be planned."""
    engine, vllm = spec.engine, spec.engine.vllm
    assert vllm is not None
    _refuse_planned_arguments(vllm.extra_args)
    config, _ = complete_config(spec.model.name, spec.model.config)
    model = read_model(config)
    try:
        device, version = gpu(vllm.gpu), vllm_version(vllm.version or NEWEST_VERSION.name)
    except (UnknownVersionError, ValueError) as error:
        raise Infeasible(InfeasibleReason.INVALID_SPEC, f"engine.vllm: {error}") from error
    if not device.supported:
        raise Infeasible(InfeasibleReason.INVALID_SPEC, f"engine.vllm.gpu {device.name}: {device.note}")
    weights = _weights(config, spec)
    if engine.gpu_kv_cache is not None:
        gpu_kv_bytes = quantity_bytes(engine.gpu_kv_cache)
    else:
        assert weights is not None
        gpu_kv_bytes = estimated_kv_bytes(
            device,
            weights_bytes=weights.per_gpu_bytes(
                tensor_parallel_size=vllm.tensor_parallel_size,
                data_parallel_size=vllm.data_parallel_size,
                expert_parallel=vllm.expert_parallel,
            ),
            gpu_memory_utilization=vllm.gpu_memory_utilization,
        )
    return EngineRequest(
        model=model,
        settings=VllmSettings(
            version=version,
            capability=device.capability,
            gpu_kv_bytes=gpu_kv_bytes,
            max_model_len=engine.max_model_len,
            max_num_batched_tokens=engine.num_batched_tokens,
            max_num_seqs=engine.num_seqs,
            kv_cache_dtype=vllm.kv_cache_dtype,
            num_speculative_tokens=vllm.num_speculative_tokens,
            device_buffer_size=engine.device_buffer_size,
            async_scheduling=vllm.async_scheduling,
            tensor_parallel_size=vllm.tensor_parallel_size,
            data_parallel_size=vllm.data_parallel_size,
        ),
        gpu=device,
        weights_bytes=None if weights is None else weights.total_bytes,
        host_pool_bytes=None if spec.hi_sparse.host_pool_gib is None else gib_bytes(spec.hi_sparse.host_pool_gib),
        cpu_bytes_to_use=None if spec.offload.cpu_bytes_to_use is None else quantity_bytes(spec.offload.cpu_bytes_to_use),
    )


def _weights(config: Mapping[str, Any], spec: HiSparseDeploymentSpec) -> WeightBytes | None:
    """None where they cannot be counted and need not be, because the KV memory is given."""
    assert spec.engine.vllm is not None
    try:
        return read_weight_bytes(config, is_speculative=spec.engine.vllm.num_speculative_tokens > 0)
    except ModelConfigError as error:
        if spec.engine.gpu_kv_cache is not None:
            return None
        raise Infeasible(
            InfeasibleReason.INVALID_MODEL_CONFIG, f"spec.model.config: {error}: give engine.gpuKVCache, the KV memory of one GPU"
        ) from error


def _refuse_planned_arguments(arguments: list[str]) -> None:
    for argument in arguments:
        # `--option value`, `--option=value`, and vLLM's dotted form `--option.key=value`
        option = argument.partition("=")[0].partition(".")[0].replace("_", "-")
        if option in _PLANNED_ARGUMENTS:
            raise Infeasible(
                InfeasibleReason.INVALID_SPEC,
                f"engine.vllm.extraArgs: {option} is decided by the memory plan; remove it and use {_PLANNED_ARGUMENTS[option]}",
            )
