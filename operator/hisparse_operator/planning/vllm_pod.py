"""A pod of vLLM: its plan, and what of it the pod is told."""

from hisparse_operator.api.spec import HiSparseDeploymentSpec
from hisparse_operator.planning.demand import Demand
from hisparse_operator.planning.plan import Plan
from hisparse_runtime.capacity import (
    GIB,
    SPEC_NAMES,
    EngineRequest,
    OrdinaryRequest,
    PodMemory,
    StartStop,
    VllmSettings,
    plan_arithmetic,
    plan_engine,
    plan_ordinary,
    plan_warnings,
    pod_shape,
)
from hisparse_runtime.vllm.pod_plan import Mode, PodPlan


def vllm_pod(spec: HiSparseDeploymentSpec, wanted: Demand, request: EngineRequest) -> Plan:
    """With HiSparse."""
    made = plan_engine(request, names=SPEC_NAMES)
    return Plan(
        host_pool_bytes=made.memory.host_pool_bytes,
        # a power of two divides without rounding, so the engine gets back the same number of bytes
        host_pool_gib=made.memory.host_pool_bytes / GIB,
        cpu_bytes_to_use=made.memory.cpu_bytes_to_use,
        gpu_kv_bytes=wanted.gpu_kv_bytes,
        device_buffer_rows=wanted.device_buffer_rows,
        max_model_len=wanted.max_model_len,
        shm_bytes=made.memory.shm_bytes,
        memory_bytes=made.memory.memory_bytes,
        host_pool_tokens=made.host.tokens,
        device_pool_tokens=wanted.device_pool_tokens,
        startup_seconds=made.times.startup_seconds,
        termination_seconds=made.times.termination_seconds,
        concurrency=made.concurrency,
        pod=_told(spec, request.settings, made.memory, made.times, weights_bytes=request.weights_bytes),
        arithmetic=plan_arithmetic(made),
        warnings=plan_warnings(made),
    )


def ordinary_pod(spec: HiSparseDeploymentSpec, request: OrdinaryRequest, *, budget_bytes: int) -> Plan:
    """Without HiSparse."""
    made = plan_ordinary(request, budget_bytes=budget_bytes)
    return Plan(
        host_pool_bytes=0,
        host_pool_gib=0.0,
        cpu_bytes_to_use=made.memory.cpu_bytes_to_use,
        gpu_kv_bytes=request.settings.gpu_kv_bytes,
        device_buffer_rows=0,
        max_model_len=spec.engine.max_model_len,
        shm_bytes=made.memory.shm_bytes,
        memory_bytes=made.memory.memory_bytes,
        host_pool_tokens=0,
        device_pool_tokens=None,
        startup_seconds=made.times.startup_seconds,
        termination_seconds=made.times.termination_seconds,
        pod=_told(
            spec,
            request.settings,
            made.memory,
            made.times,
            weights_bytes=request.weights_bytes,
            device_block_bytes=made.device_block_bytes,
        ),
        arithmetic=made.arithmetic,
    )


def _told(
    spec: HiSparseDeploymentSpec,
    settings: VllmSettings,
    memory: PodMemory,
    times: StartStop,
    *,
    weights_bytes: int | None,
    device_block_bytes: int = 0,
) -> PodPlan:
    shape = pod_shape(settings)
    return PodPlan(
        vllm_version=settings.version.name,
        mode=Mode.ON if memory.host_pool_bytes else Mode.OFF,
        gpus=spec.engine.pod_gpus,
        tensor_parallel_size=settings.tensor_parallel_size,
        data_parallel_size=settings.data_parallel_size,
        host_pool_bytes=memory.host_pool_bytes,
        host_pool_copies=shape.host_pool_copies,
        shares_host_pool=shape.shares_host_pool,
        cpu_bytes_to_use=memory.cpu_bytes_to_use,
        device_block_bytes=device_block_bytes,
        working_set_bytes=shape.working_set_bytes,
        weights_bytes=weights_bytes,
        shm_bytes=memory.shm_bytes,
        memory_bytes=memory.memory_bytes,
        drain_seconds=times.drain_seconds,
        unpin_seconds=times.unpin_seconds,
        startup_seconds=times.startup_seconds,
    )
