"""What pools hold, and what memory of a pod becomes which pool. Pure; may import geometry only."""

from hisparse_runtime.capacity.budget import PodMemory, PodShape, Tiers, pod_memory, smallest_pod, split_budget, tier_arithmetic
from hisparse_runtime.capacity.device_pool import DevicePool, RequestBlocks, check_device_pool, longest_that
from hisparse_runtime.capacity.embedded import (
    EMBEDDED_WORKING_SET_BYTES,
    check_embedded_device_pool,
    default_device_buffer_rows,
    device_pool_tokens,
    embedded_hot_rows,
    embedded_shape,
    embedded_tiers,
    minimum_device_blocks,
)
from hisparse_runtime.capacity.engine_plan import (
    Concurrency,
    EnginePlan,
    EngineRequest,
    concurrency,
    plan_engine,
    with_context,
)
from hisparse_runtime.capacity.errors import (
    FLAG_NAMES,
    SPEC_NAMES,
    CapacityError,
    DeviceMemoryError,
    FieldNames,
    HostMemoryError,
    SettingsError,
)
from hisparse_runtime.capacity.gpu_memory import DEFAULT_GPU_MEMORY_UTILIZATION, estimated_kv_bytes
from hisparse_runtime.capacity.host_pool import HostPool, gib_bytes, host_pool, host_stride_bytes, minimum_host_blocks
from hisparse_runtime.capacity.hot_region import MAX_DEVICE_BUFFER_ROWS, HotRegion, hot_region
from hisparse_runtime.capacity.ordinary_plan import OrdinaryPlan, OrdinaryRequest, plan_ordinary
from hisparse_runtime.capacity.plan_text import plan_arithmetic, plan_warnings
from hisparse_runtime.capacity.start_stop import ENDPOINT_GRACE_SECONDS, StartStop
from hisparse_runtime.capacity.units import GIB, KIB, MIB, human_bytes
from hisparse_runtime.capacity.vllm_sizes import VllmSettings, VllmSizes, pod_shape, size_vllm, vllm_geometry

__all__ = [
    "DEFAULT_GPU_MEMORY_UTILIZATION",
    "EMBEDDED_WORKING_SET_BYTES",
    "ENDPOINT_GRACE_SECONDS",
    "FLAG_NAMES",
    "GIB",
    "KIB",
    "MAX_DEVICE_BUFFER_ROWS",
    "MIB",
    "SPEC_NAMES",
    "CapacityError",
    "Concurrency",
    "DeviceMemoryError",
    "DevicePool",
    "EnginePlan",
    "EngineRequest",
    "FieldNames",
    "HostMemoryError",
    "HostPool",
    "HotRegion",
    "OrdinaryPlan",
    "OrdinaryRequest",
    "PodMemory",
    "PodShape",
    "RequestBlocks",
    "SettingsError",
    "StartStop",
    "Tiers",
    "VllmSettings",
    "VllmSizes",
    "check_device_pool",
    "check_embedded_device_pool",
    "concurrency",
    "default_device_buffer_rows",
    "device_pool_tokens",
    "embedded_hot_rows",
    "embedded_shape",
    "embedded_tiers",
    "estimated_kv_bytes",
    "gib_bytes",
    "host_pool",
    "host_stride_bytes",
    "hot_region",
    "human_bytes",
    "longest_that",
    "minimum_device_blocks",
    "minimum_host_blocks",
    "plan_arithmetic",
    "plan_engine",
    "plan_ordinary",
    "plan_warnings",
    "pod_memory",
    "pod_shape",
    "size_vllm",
    "smallest_pod",
    "split_budget",
    "tier_arithmetic",
    "vllm_geometry",
    "with_context",
]
