"""What vLLM has left for KV on a GPU, estimated: the real number comes out of its profiling, with the weights loaded."""

from hisparse_runtime.capacity.errors import DeviceMemoryError
from hisparse_runtime.capacity.gpus import Gpu
from hisparse_runtime.capacity.units import GIB, human_bytes

DEFAULT_GPU_MEMORY_UTILIZATION = 0.92
# Activations, CUDA graphs, NCCL and the CUDA context: the reserve of upstream's published calculator. On the safe side: a server
# with GLM-5.1-FP8 on 8 H200 took 4.4 GiB for them, in eager mode.
RUNTIME_RESERVE_BYTES = 15 * GIB


def estimated_kv_bytes(gpu: Gpu, *, weights_bytes: int, gpu_memory_utilization: float = DEFAULT_GPU_MEMORY_UTILIZATION) -> int:
    """KV memory on each GPU with `weights_bytes` of weights on it. Raises DeviceMemoryError when nothing is left."""
    usable_bytes = int(gpu.visible_memory_bytes * gpu_memory_utilization)
    kv_bytes = usable_bytes - weights_bytes - RUNTIME_RESERVE_BYTES
    if kv_bytes <= 0:
        raise DeviceMemoryError(
            f"{gpu.name}: {human_bytes(gpu.visible_memory_bytes)} x {gpu_memory_utilization} = {human_bytes(usable_bytes)} do not"
            f" hold {human_bytes(weights_bytes)} of weights and {human_bytes(RUNTIME_RESERVE_BYTES)} for the runtime: use more or"
            " larger GPUs, or weights of fewer bytes"
        )
    return kv_bytes
