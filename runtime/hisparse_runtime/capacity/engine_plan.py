"""One vLLM engine's plan: every size, or what vLLM would refuse.

The operator puts it on the object, `hisparse plan` prints it: the same numbers, from here.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from hisparse_runtime.capacity.budget import PodMemory, Tiers, pod_memory, split_budget
from hisparse_runtime.capacity.errors import FieldNames
from hisparse_runtime.capacity.gpu_overhead import gpu_overhead_bytes
from hisparse_runtime.capacity.gpus import Gpu, check_resolver_shared_memory
from hisparse_runtime.capacity.host_pool import NULL_BLOCKS, HostPool
from hisparse_runtime.capacity.start_stop import StartStop, start_stop
from hisparse_runtime.capacity.vllm_sizes import VllmSettings, VllmSizes, pod_shape, size_vllm
from hisparse_runtime.geometry import SparseMlaModel


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """What to plan. `weights_bytes` are those that one pod reads, None where nothing says how many; None for a size is: tune it.

    `budget_bytes`: memory that one pod may have; None plans the pod as large as its tiers want. `pods_per_node` such pods
    share a node.
    """

    model: SparseMlaModel
    settings: VllmSettings
    gpu: Gpu | None = None
    weights_bytes: int | None = None
    host_pool_bytes: int | None = None
    cpu_bytes_to_use: int | None = None
    budget_bytes: int | None = None
    pods_per_node: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """Requests of `max_model_len` tokens, per data-parallel replica.

    ordinary: without HiSparse. generic: as start-up logs it first, each counted at its admission. steady: once running requests
    read from the host. host: that the host pool holds. `limited_by` is what ends the steady one.
    """

    ordinary: float
    generic: float
    steady: float
    host: float
    limited_by: str


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """A plan that vLLM will accept. Sizes of tiers are per data-parallel replica, sizes of the pod for all in it."""

    request: EngineRequest
    sizes: VllmSizes
    tiers: Tiers
    memory: PodMemory
    host: HostPool
    times: StartStop

    @cached_property
    def offload_tokens(self) -> int:
        """Tokens whose indexer keys the offload tier holds."""
        return self.memory.cpu_bytes_to_use // self.sizes.offload_chunk_bytes * self.sizes.geometry.page_tokens

    @cached_property
    def overhead_bytes(self) -> int:
        """GPU memory that HiSparse takes beside the KV pool."""
        settings = self.request.settings
        return gpu_overhead_bytes(
            self.sizes.geometry,
            version=settings.version,
            hot=self.sizes.hot,
            max_model_len=self.sizes.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            num_speculative_tokens=settings.num_speculative_tokens,
        )

    @cached_property
    def concurrency(self) -> Concurrency:
        return concurrency(self.sizes, host_blocks=self.host.num_blocks, tokens=self.sizes.max_model_len)

    @cached_property
    def usable_host_bytes(self) -> int:
        """Host pool that running requests can fill: as many as the GPU side carries at once."""
        return usable_host_bytes(self.sizes)


def plan_engine(request: EngineRequest, *, names: FieldNames) -> EnginePlan:
    """The plan. Raises what vLLM would refuse, and HostMemoryError when the budget holds no pod that it would accept.

    Without a budget and a given host pool, the pool is as large as the requests that the GPU side carries can fill.
    """
    sizes = size_vllm(request.model, request.settings, host_pool_bytes=request.host_pool_bytes, names=names)
    if request.gpu is not None and request.settings.version.checks_resolver_memory:
        check_resolver_shared_memory(
            request.gpu,
            num_speculative_tokens=request.settings.num_speculative_tokens,
            topk_rows=sizes.hot.topk_rows,
            device_buffer_rows=sizes.hot.rows,
        )
    if request.host_pool_bytes is not None:
        sizes.host_pool(request.host_pool_bytes, names=names)
    tiers = sizes.tiers(host_pool_bytes=request.host_pool_bytes, cpu_bytes_to_use=request.cpu_bytes_to_use)
    shape = pod_shape(sizes.settings)
    if request.budget_bytes is not None:
        memory = split_budget(tiers, shape, budget_bytes=request.budget_bytes, names=names)
    else:
        host_bytes = request.host_pool_bytes
        if host_bytes is None:
            host_bytes = max(usable_host_bytes(sizes), tiers.min_host_blocks * tiers.host_block_bytes)
        offload_bytes = request.cpu_bytes_to_use
        if offload_bytes is None:
            offload_bytes = tiers.offload_beside(host_bytes)
        memory = pod_memory(host_bytes, offload_bytes, shape)
    return EnginePlan(
        request=request,
        sizes=sizes,
        tiers=tiers,
        memory=memory,
        host=sizes.host_pool(memory.host_pool_bytes, names=names),
        times=start_stop(
            weights_bytes=request.weights_bytes,
            pinned_bytes=memory.host_pool_bytes * shape.replicas * shape.host_pool_copies,
            host_pool_pins=request.settings.version.host_pool_pins,
            offload_bytes=memory.cpu_bytes_to_use * shape.replicas,
            pods_per_node=request.pods_per_node,
        ),
    )


def concurrency(sizes: VllmSizes, *, host_blocks: int, tokens: int) -> Concurrency:
    """Requests of `tokens` tokens that run side by side with a host pool of `host_blocks` blocks."""
    host = host_blocks / sizes.geometry.pages(tokens)
    gpu = sizes.device.steady_concurrency(tokens)
    limits = {"gpu": gpu, "host": host, "max_num_seqs": float(sizes.settings.max_num_seqs)}
    return Concurrency(
        ordinary=sizes.device.ordinary_concurrency(tokens),
        generic=min(sizes.device.generic_concurrency(tokens), host),
        steady=min(gpu, host),
        host=host,
        limited_by=min(limits, key=lambda name: limits[name]),
    )


def usable_host_bytes(sizes: VllmSizes) -> int:
    """The host pool that as many requests of max_model_len fill as the GPU side and max_num_seqs let run."""
    requests = min(math.ceil(sizes.device.steady_concurrency(sizes.max_model_len)), sizes.settings.max_num_seqs)
    blocks = requests * sizes.geometry.pages(sizes.max_model_len) + NULL_BLOCKS
    return blocks * sizes.host_stride_bytes


def with_context(request: EngineRequest, max_model_len: int) -> EngineRequest:
    """The same request for another context length."""
    return replace(request, settings=replace(request.settings, max_model_len=max_model_len))
