"""What pools hold, and what memory of a pod becomes which pool. Pure; may import geometry only."""

from hisparse_runtime.capacity.budget import (
    EMBEDDED_WORKING_SET_BYTES,
    Budget,
    PodMemory,
    fixed_host_pool_bytes,
    pod_memory,
    smallest_pod,
    split_budget,
)
from hisparse_runtime.capacity.pools import (
    MAX_DEVICE_BUFFER_ROWS,
    CapacityError,
    DeviceMemoryError,
    HostMemoryError,
    check_device_pool,
    check_host_pool,
    default_device_buffer_rows,
    device_pool_tokens,
    hot_region_blocks,
    minimum_device_blocks,
    minimum_host_blocks,
    pool_blocks,
    pool_tokens,
)
from hisparse_runtime.capacity.units import GIB, KIB, MIB, human_bytes

__all__ = [
    "EMBEDDED_WORKING_SET_BYTES",
    "GIB",
    "KIB",
    "MAX_DEVICE_BUFFER_ROWS",
    "MIB",
    "Budget",
    "CapacityError",
    "DeviceMemoryError",
    "HostMemoryError",
    "PodMemory",
    "check_device_pool",
    "check_host_pool",
    "default_device_buffer_rows",
    "device_pool_tokens",
    "fixed_host_pool_bytes",
    "hot_region_blocks",
    "human_bytes",
    "minimum_device_blocks",
    "minimum_host_blocks",
    "pod_memory",
    "pool_blocks",
    "pool_tokens",
    "smallest_pod",
    "split_budget",
]
