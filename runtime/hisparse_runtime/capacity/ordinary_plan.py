"""One vLLM engine without HiSparse: host memory for an offload tier of whole blocks, whatever the model is."""

from bisect import bisect_right
from dataclasses import dataclass

from hisparse_runtime.capacity.budget import PodMemory, pod_memory
from hisparse_runtime.capacity.device_pool import ordinary_block_bytes
from hisparse_runtime.capacity.errors import HostMemoryError
from hisparse_runtime.capacity.start_stop import StartStop, start_stop
from hisparse_runtime.capacity.units import MIB, human_bytes
from hisparse_runtime.capacity.vllm_sizes import VllmSettings, pod_shape, vllm_geometry
from hisparse_runtime.geometry import CacheFormatError, ModelConfigError, SparseMlaModel


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinaryRequest:
    """What to plan. `cpu_bytes_to_use`: of one data-parallel replica; 0 is no tier, None as much as the budget leaves.

    `weights_bytes`: those that one pod reads, None where nothing says how many. `pods_per_node` such pods share a node.
    `model`: None where it is no sparse-MLA model.
    """

    settings: VllmSettings
    model: SparseMlaModel | None = None
    weights_bytes: int | None = None
    cpu_bytes_to_use: int | None = None
    pods_per_node: int = 1

    @property
    def smallest(self) -> PodMemory:
        """The least memory that a pod can do with."""
        return pod_memory(0, self.cpu_bytes_to_use or 0, pod_shape(self.settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinaryPlan:
    """`memory.cpu_bytes_to_use` is that of one replica, `device_block_bytes` of one block of a GPU's pool (0: not known), all
    else of the pod."""

    memory: PodMemory
    device_block_bytes: int
    times: StartStop
    arithmetic: tuple[str, ...]


def plan_ordinary(request: OrdinaryRequest, *, budget_bytes: int) -> OrdinaryPlan:
    """The largest tier that a pod of `budget_bytes` can have, or the one that is given. Raises HostMemoryError."""
    smallest, shape = request.smallest, pod_shape(request.settings)
    if smallest.memory_bytes > budget_bytes:
        raise HostMemoryError(
            f"one pod needs at least {human_bytes(smallest.memory_bytes)} ({'; '.join(smallest.arithmetic)}) and has"
            f" {human_bytes(budget_bytes)}: give it more memory, or a smaller offload tier"
        )
    memory = smallest
    if request.cpu_bytes_to_use is None:
        # in whole MiB; memory grows with the tier, and none at all fits
        sizes = range(budget_bytes // MIB + 1)
        fitting = bisect_right(sizes, budget_bytes, key=lambda size: pod_memory(0, size * MIB, shape).memory_bytes) - 1
        memory = pod_memory(0, fitting * MIB, shape)
    offload_bytes = memory.cpu_bytes_to_use * shape.replicas
    times = start_stop(
        weights_bytes=request.weights_bytes,
        pinned_bytes=0,
        host_pool_pins=0,
        offload_bytes=offload_bytes,
        pods_per_node=request.pods_per_node,
    )
    origin = "tuned" if request.cpu_bytes_to_use is None else "as given"
    tier = f"offload: {human_bytes(memory.cpu_bytes_to_use)} {origin}, for KV of all layers" if offload_bytes else "offload: none"
    return OrdinaryPlan(
        memory=memory,
        device_block_bytes=_device_block_bytes(request),
        times=times,
        arithmetic=(tier, *memory.arithmetic, *times.arithmetic),
    )


def _device_block_bytes(request: OrdinaryRequest) -> int:
    """Nothing is planned by it: what vLLM may refuse is left to vLLM."""
    if request.model is None:
        return 0
    try:
        geometry = vllm_geometry(request.model, request.settings)
    except (CacheFormatError, ModelConfigError):
        return 0
    return ordinary_block_bytes(geometry, version=request.settings.version, block_tokens=geometry.page_tokens)
