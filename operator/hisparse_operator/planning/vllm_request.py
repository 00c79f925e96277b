"""spec -> what vLLM is planned from."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hisparse_operator.api.quantity import quantity_bytes
from hisparse_operator.api.spec import Engine, HiSparseDeploymentSpec, Model, Vllm
from hisparse_operator.planning.plan import Infeasible, InfeasibleReason
from hisparse_runtime.capacity import EngineRequest, OrdinaryRequest, VllmSettings, estimated_kv_bytes, gib_bytes
from hisparse_runtime.capacity.gpus import Gpu, gpu
from hisparse_runtime.capacity.weights import WeightBytes, read_weight_bytes
from hisparse_runtime.geometry import (
    NEWEST_VERSION,
    ModelConfigError,
    VllmVersion,
    complete_config,
    read_model,
    vllm_version,
)
from hisparse_runtime.vllm.planned_options import Decision, conflicts

# Where the spec says what an option would; the rest cannot be said at all.
_SPEC_FIELDS = {
    Decision.CONNECTORS: "hiSparse.hostPoolGiB and offload.cpuBytesToUse, from which the connectors are configured",
    Decision.ATTENTION: "hiSparse.hostPoolGiB and engine.deviceBufferSize",
    Decision.ROW_FORMAT: "engine.vllm.kvCacheDtype",
    Decision.GPU_BLOCKS: "engine.gpuKVCache",
    Decision.KV_MEMORY: "engine.gpuKVCache",
    Decision.OFFLOAD: "offload.cpuBytesToUse",
    Decision.CACHE_DTYPE: "engine.vllm.kvCacheDtype",
    Decision.CONTEXT: "engine.maxModelLen",
    Decision.NUM_SEQS: "engine.maxNumSeqs",
    Decision.BATCHED_TOKENS: "engine.maxNumBatchedTokens",
    Decision.TENSOR_PARALLEL: "engine.vllm.tensorParallelSize",
    Decision.DATA_PARALLEL: "engine.vllm.dataParallelSize",
    Decision.EXPERT_PARALLEL: "engine.vllm.expertParallel",
    Decision.SPECULATION: "engine.vllm.numSpeculativeTokens",
    Decision.GPU_SHARE: "engine.vllm.gpuMemoryUtilization",
    Decision.ASYNC_SCHEDULING: "engine.vllm.asyncScheduling",
}


def vllm_request(spec: HiSparseDeploymentSpec) -> EngineRequest:
    """With HiSparse. Raises Infeasible, ModelConfigError or CapacityError for what cannot be planned."""
    engine, vllm = spec.engine, spec.engine.vllm
    assert vllm is not None
    config, _ = complete_config(spec.model.name, spec.model.config)
    model = read_model(config)
    device, version = _device_and_version(vllm)
    if not device.supported:
        raise Infeasible(InfeasibleReason.INVALID_SPEC, f"engine.vllm.gpu {device.name}: {device.note}")
    _refuse_planned_arguments(vllm.extra_args, version)
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
        settings=vllm_settings(engine, gpu_kv_bytes=gpu_kv_bytes),
        gpu=device,
        weights_bytes=None if weights is None else weights.total_bytes,
        host_pool_bytes=None if spec.hi_sparse.host_pool_gib is None else gib_bytes(spec.hi_sparse.host_pool_gib),
        cpu_bytes_to_use=_cpu_bytes_to_use(spec),
    )


def ordinary_request(spec: HiSparseDeploymentSpec) -> OrdinaryRequest:
    """Without HiSparse, for any model. Raises Infeasible."""
    engine, vllm = spec.engine, spec.engine.vllm
    assert vllm is not None
    _, version = _device_and_version(vllm)
    _refuse_planned_arguments(vllm.extra_args, version)
    config, model, weights_bytes = planned_config(spec.model), None, None
    # Only the time to start depends on the weights, and on the model what the object says of the device pool's size.
    with suppress(ModelConfigError):
        weights_bytes = read_weight_bytes(config, is_speculative=vllm.num_speculative_tokens > 0).total_bytes
    with suppress(ModelConfigError):
        model = read_model(config)
    return OrdinaryRequest(
        settings=vllm_settings(engine, gpu_kv_bytes=0 if engine.gpu_kv_cache is None else quantity_bytes(engine.gpu_kv_cache)),
        model=model,
        weights_bytes=weights_bytes,
        cpu_bytes_to_use=_cpu_bytes_to_use(spec),
    )


def _device_and_version(vllm: Vllm) -> tuple[Gpu, VllmVersion]:
    try:
        return gpu(vllm.gpu), vllm_version(vllm.version or NEWEST_VERSION.name)
    except ValueError as error:
        raise Infeasible(InfeasibleReason.INVALID_SPEC, f"engine.vllm: {error}") from error


def planned_config(model: Model) -> dict[str, Any]:
    """The config.json that the plan was made from; as given where nobody needs it whole."""
    try:
        return dict(complete_config(model.name, model.config)[0])
    except ModelConfigError:
        return model.config


def vllm_settings(engine: Engine, *, gpu_kv_bytes: int) -> VllmSettings:
    """As the engine is started. Raises Infeasible."""
    vllm = engine.vllm
    assert vllm is not None
    device, version = _device_and_version(vllm)
    return VllmSettings(
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
    )


def _cpu_bytes_to_use(spec: HiSparseDeploymentSpec) -> int | None:
    """0 is no tier, None is to be tuned."""
    if not spec.offload.enabled:
        return 0
    return None if spec.offload.cpu_bytes_to_use is None else quantity_bytes(spec.offload.cpu_bytes_to_use)


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


def _refuse_planned_arguments(arguments: list[str], version: VllmVersion) -> None:
    for conflict in conflicts(arguments, version):
        field = _SPEC_FIELDS.get(conflict.decision)
        instead = f"remove it and use {field}" if field else "remove it"
        why = f"; {conflict.why}" if conflict.why else ""
        raise Infeasible(
            InfeasibleReason.INVALID_SPEC,
            f"engine.vllm.extraArgs: {conflict.option} is decided by the memory plan; {instead}{why}",
        )
