"""The concurrency calculator that vLLM published with the announcement of Hybrid HiSparse for GLM-5.3, figure for figure.

It is memory arithmetic only, for one model, and keeps the page's own simplifications: plain FP8 rows of 576 bytes on every GPU,
no indexer of the MTP layer, no admission window, weights that split evenly. What vLLM allocates is another module's matter.
Source: vllm-project/vllm-project.github.io, assets/interactive_pages/hisparse_concurrency_calculator.html.
"""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from math import floor, inf, isfinite
from typing import Literal

from hisparse_runtime.capacity.units import GIB, MIB

# Constants of the page's script. GPU memory is in decimal GB, weights and the reserve are in GiB.
_GPU_GB = {"H200": 141, "B200": 180, "B300": 288}
_SHARED_WEIGHTS_GIB = 19.556
_ROUTED_EXPERT_WEIGHTS_GIB = 684.167
_GPU_MEMORY_UTILIZATION = 0.92
_RUNTIME_RESERVE_GIB = 15
_PAGE_TOKENS = 64
_HOT_GROUPS = 20

# Limits of the page's sliders and lists. Slider steps are left out, the formulas do not depend on them.
_CHOICES: dict[str, tuple[object, ...]] = {
    "gpu": tuple(_GPU_GB),
    "data_parallel_size": (1, 2, 4, 8, 16),
    "tensor_parallel_size": (1, 2, 4, 8),
    "kv": ("fp8", "bf16"),
}
_RANGES = {
    "sequence_tokens": (8_192, 1_048_576),
    # The page's slider ends at 8,192. The text beside it asks for (num_speculative_tokens + 2) x top-K rows, 10,240 with MTP3,
    # so the end here is vLLM's own: slots are numbered by 16-bit integers.
    "hot_rows": (2_048, 32_768),
    "retained_pages": (0, inf),
    "other_blocks": (0, inf),
    "max_num_seqs": (1, inf),
    "host_pool_gib": (16, 4_096),
    "offload_gib": (0, 2_048),
    "ram_gib": (128, 8_192),
    "shown_requests": (0, inf),
}
_OPTIONAL = frozenset({"host_pool_gib", "shown_requests"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Bytes of a block of 64 tokens: all layers of the ordinary pool, one block of the HiSparse pool, one host block."""

    ordinary_block_bytes: int
    hisparse_block_bytes: int
    host_block_bytes: int


# FP8: 64 x (78 layers x 576 + 21 indexers x 132), 5 MLA pages (21 indexer pages rounded up), 64 x 78 x 576. BF16: rows of 1,152.
_LAYOUTS = {
    "fp8": _Layout(ordinary_block_bytes=3_052_800, hisparse_block_bytes=184_320, host_block_bytes=2_875_392),
    "bf16": _Layout(ordinary_block_bytes=5_928_192, hisparse_block_bytes=294_912, host_block_bytes=5_750_784),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedInput:
    """What the page asks for, with its defaults. `None` means what the page fills in by itself.

    `host_pool_gib` (per data-parallel replica): the least with which the host does not limit. `kv_gib` (per GPU): what weights
    leave. `shown_requests` (per replica, in the memory bars): all that fit. `offload_gib` and `ram_gib` are of the whole
    deployment.
    A value that the page cannot take raises ValueError naming field, value and range.
    """

    gpu: str = "H200"
    data_parallel_size: int = 1
    tensor_parallel_size: int = 8
    expert_parallel: bool = True
    kv: Literal["fp8", "bf16"] = "fp8"
    sequence_tokens: int = 81_920
    hot_rows: int = 4_096
    retained_pages: int = 2
    other_blocks: int = 0
    max_num_seqs: int = 1_024
    host_pool_gib: int | None = None
    offload_gib: int = 128
    ram_gib: int = 4_096
    share_host: bool = True
    kv_gib: float | None = None
    shown_requests: int | None = None

    def __post_init__(self) -> None:
        for field, choices in _CHOICES.items():
            value = getattr(self, field)
            if isinstance(value, bool) or value not in choices:
                listed = ", ".join(str(choice) for choice in choices)
                raise ValueError(f"{field} is {value!r}: the published calculator knows {listed}")
        for field, (least, most) in _RANGES.items():
            value = getattr(self, field)
            if value is None and field in _OPTIONAL:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                upper = "" if most == inf else f" to {most:,}"
                raise ValueError(f"{field} is {value!r}: the published calculator takes whole numbers from {least:,}{upper}")
        if self.kv_gib is not None:
            most_gib = _gpu_gib(self.gpu)
            if isinstance(self.kv_gib, bool) or not isfinite(self.kv_gib) or not 0 <= self.kv_gib <= most_gib:
                raise ValueError(f"kv_gib is {self.kv_gib!r}: the published calculator takes 0 to {most_gib:.2f} on {self.gpu}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGpuMemory:
    """The page's bar of GPU memory, bytes over the GPUs of one data-parallel replica. `reserve` is runtime and headroom."""

    total_bytes: int
    weights_bytes: int
    reserve_bytes: int
    hot_bytes: int
    indexer_bytes: int
    resident_bytes: int
    unused_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedHostMemory:
    """The page's bar of host memory, bytes of one data-parallel replica."""

    total_bytes: int
    hisparse_bytes: int
    offload_bytes: int
    unused_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedResult:
    """What the page shows. Requests and pools are per data-parallel replica, `total_...` of the whole deployment.

    `hisparse` is never below `ordinary`: where full residency serves as many, nothing is offloaded. `hisparse_unlimited_host` is
    what the page's chart draws: the same without any limit of host memory or of `ram_gib`.
    """

    num_gpus: int
    weights_gib: float
    needed_gib: float
    budget_gib: float
    kv_gib: float
    ordinary: int
    hisparse: int
    hisparse_unlimited_host: int
    total_ordinary: int
    total_hisparse: int
    gpu_limit: int
    host_limit: int
    is_limited_by_gpu: bool
    is_limited_by_host: bool
    min_host_gib: int
    host_pool_gib: float
    offload_gib: float
    requested_host_gib: int
    physical_host_gib: float
    ordinary_pool_bytes: int
    hisparse_pool_bytes: int
    ordinary_gpu_bytes_per_request: int
    hisparse_gpu_bytes_per_request: int
    indexer_bytes_per_request: int
    hot_bytes_per_request: int
    retained_bytes_per_request: int
    host_bytes_per_request: int
    offload_bytes_per_request: int
    offload_full_histories: int
    gpu_memory: PublishedGpuMemory
    host_memory: PublishedHostMemory

    @property
    def fits(self) -> bool:
        """Whether weights and the runtime reserve fit into the GPU's budget."""
        return self.needed_gib <= self.budget_gib

    @property
    def multiplier(self) -> float | None:
        """HiSparse over ordinary; infinite when only HiSparse serves any request, None when neither does."""
        if self.ordinary:
            return self.hisparse / self.ordinary
        return inf if self.hisparse else None

    @property
    def gpu_mib_per_request_ordinary(self) -> float:
        """MiB on each GPU for one request without HiSparse."""
        return self.ordinary_gpu_bytes_per_request / MIB

    @property
    def gpu_mib_per_request_hisparse(self) -> float:
        """MiB on each GPU for one request that reads its context from host memory."""
        return self.hisparse_gpu_bytes_per_request / MIB

    @property
    def host_mib_per_request(self) -> float:
        """MiB of the host pool for one request."""
        return self.host_bytes_per_request / MIB


def calculate_as_published(inputs: PublishedInput) -> PublishedResult:
    """The figures that the published page shows for `inputs`."""
    layout = _LAYOUTS[inputs.kv]
    weights_gib = _weights_gib(inputs)
    budget_gib = _gpu_gib(inputs.gpu) * _GPU_MEMORY_UTILIZATION
    kv_gib = inputs.kv_gib if inputs.kv_gib is not None else _free_kv_gib(weights_gib, budget_gib)

    pages = -(-inputs.sequence_tokens // _PAGE_TOKENS)
    ordinary_blocks = floor(kv_gib * GIB / layout.ordinary_block_bytes)
    ordinary = min(inputs.max_num_seqs, ordinary_blocks // pages)

    hisparse_blocks = floor(kv_gib * GIB / layout.hisparse_block_bytes)
    hot = _HOT_GROUPS * -(-inputs.hot_rows // _PAGE_TOKENS)
    retained = _HOT_GROUPS * inputs.retained_pages
    blocks_per_request = pages + hot + retained + inputs.other_blocks
    offloaded_gpu_limit = hisparse_blocks // blocks_per_request
    unlimited_host = min(inputs.max_num_seqs, offloaded_gpu_limit)

    host_bytes_per_request = pages * layout.host_block_bytes
    min_host_bytes = unlimited_host * host_bytes_per_request if unlimited_host > ordinary else 0
    min_host_gib = -(-min_host_bytes // GIB)
    copies_per_replica = 1 if inputs.share_host else inputs.tensor_parallel_size
    copies = inputs.data_parallel_size * copies_per_replica
    chosen_host_gib = _chosen_host_gib(inputs, min_host_gib)
    # The host pool takes its part of the memory first, the offload pool what is left.
    host_gib = min(chosen_host_gib, inputs.ram_gib / copies)
    offload_gib = min(inputs.offload_gib, max(0, inputs.ram_gib - host_gib * copies))

    host_limit = floor(host_gib * GIB / layout.host_block_bytes) // pages
    offloaded = min(inputs.max_num_seqs, offloaded_gpu_limit, host_limit)
    hisparse = max(ordinary, offloaded)
    is_resident = ordinary >= offloaded
    # The indexer's keys are replicated over the tensor-parallel ranks, and each rank offloads its own.
    offload_bytes_per_request = pages * layout.hisparse_block_bytes * inputs.tensor_parallel_size
    shown = hisparse if inputs.shown_requests is None else min(inputs.shown_requests, hisparse)
    return PublishedResult(
        num_gpus=inputs.data_parallel_size * inputs.tensor_parallel_size,
        weights_gib=weights_gib,
        needed_gib=weights_gib + _RUNTIME_RESERVE_GIB,
        budget_gib=budget_gib,
        kv_gib=kv_gib,
        ordinary=ordinary,
        hisparse=hisparse,
        hisparse_unlimited_host=max(ordinary, unlimited_host),
        total_ordinary=ordinary * inputs.data_parallel_size,
        total_hisparse=hisparse * inputs.data_parallel_size,
        gpu_limit=max(ordinary, offloaded_gpu_limit),
        host_limit=host_limit,
        is_limited_by_gpu=is_resident or offloaded_gpu_limit <= min(host_limit, inputs.max_num_seqs),
        is_limited_by_host=not is_resident and host_limit <= min(offloaded_gpu_limit, inputs.max_num_seqs),
        min_host_gib=min_host_gib,
        host_pool_gib=host_gib,
        offload_gib=offload_gib,
        requested_host_gib=chosen_host_gib * copies + inputs.offload_gib,
        physical_host_gib=host_gib * copies + offload_gib,
        ordinary_pool_bytes=ordinary_blocks * layout.ordinary_block_bytes,
        hisparse_pool_bytes=hisparse_blocks * layout.hisparse_block_bytes,
        ordinary_gpu_bytes_per_request=pages * layout.ordinary_block_bytes,
        hisparse_gpu_bytes_per_request=blocks_per_request * layout.hisparse_block_bytes,
        indexer_bytes_per_request=pages * layout.hisparse_block_bytes,
        hot_bytes_per_request=hot * layout.hisparse_block_bytes,
        retained_bytes_per_request=retained * layout.hisparse_block_bytes,
        host_bytes_per_request=host_bytes_per_request,
        offload_bytes_per_request=offload_bytes_per_request,
        offload_full_histories=floor(offload_gib * GIB / offload_bytes_per_request),
        gpu_memory=_gpu_memory(inputs, shown=shown, weights_gib=weights_gib, kv_gib=kv_gib),
        host_memory=_host_memory(
            shown=shown,
            total_bytes=host_gib * copies_per_replica * GIB,
            hisparse_bytes=shown * host_bytes_per_request * copies_per_replica,
            offload_total_bytes=offload_gib / inputs.data_parallel_size * GIB,
            offload_bytes_per_request=offload_bytes_per_request,
        ),
    )


def _gpu_gib(gpu: str) -> float:
    return _GPU_GB[gpu] * 1e9 / GIB


def _weights_gib(inputs: PublishedInput) -> float:
    """Weights on one GPU. Without expert parallelism the page gives every replica all experts; vLLM splits them even then."""
    expert_shards = inputs.tensor_parallel_size * (inputs.data_parallel_size if inputs.expert_parallel else 1)
    return _SHARED_WEIGHTS_GIB / inputs.tensor_parallel_size + _ROUTED_EXPERT_WEIGHTS_GIB / expert_shards


def _free_kv_gib(weights_gib: float, budget_gib: float) -> float:
    """Rounded to the step of the page's slider, ties upwards as JavaScript's toFixed does; every later figure builds on it."""
    free_gib = max(0.0, budget_gib - weights_gib - _RUNTIME_RESERVE_GIB)
    return float(Decimal(free_gib).quantize(Decimal("0.1"), rounding=ROUND_HALF_UP))


def _chosen_host_gib(inputs: PublishedInput, min_host_gib: int) -> int:
    """The pool as given, or the minimum as far as the page's slider goes."""
    if inputs.host_pool_gib is not None:
        return inputs.host_pool_gib
    least, most = _RANGES["host_pool_gib"]
    return int(min(most, max(least, min_host_gib)))


def _gpu_memory(inputs: PublishedInput, *, shown: int, weights_gib: float, kv_gib: float) -> PublishedGpuMemory:
    """Where everything fits, all KV is resident and there are no hot buffers; else resident pages get what these leave."""
    layout = _LAYOUTS[inputs.kv]
    tp = inputs.tensor_parallel_size
    block_bytes = layout.hisparse_block_bytes * tp
    pages = -(-inputs.sequence_tokens // _PAGE_TOKENS)
    pool_blocks = floor(kv_gib * GIB / layout.hisparse_block_bytes)
    indexer_blocks = shown * pages
    full_blocks = shown * (-(-pages * layout.host_block_bytes // layout.hisparse_block_bytes) + inputs.other_blocks)
    hot_blocks = 0
    resident_blocks = full_blocks
    if indexer_blocks + full_blocks > pool_blocks:
        hot_blocks = shown * _HOT_GROUPS * -(-inputs.hot_rows // _PAGE_TOKENS)
        resident_blocks = max(0, min(full_blocks, pool_blocks - indexer_blocks - hot_blocks))
    total_bytes = _GPU_GB[inputs.gpu] * 1e9 * tp
    weights_bytes = weights_gib * GIB * tp
    kv_bytes = kv_gib * GIB * tp
    used_blocks = hot_blocks + indexer_blocks + resident_blocks

    def shown_bytes(size_bytes: float) -> int:
        return round(max(0.0, min(size_bytes, total_bytes)))

    return PublishedGpuMemory(
        total_bytes=round(total_bytes),
        weights_bytes=shown_bytes(weights_bytes),
        reserve_bytes=shown_bytes(total_bytes - weights_bytes - kv_bytes),
        hot_bytes=shown_bytes(hot_blocks * block_bytes),
        indexer_bytes=shown_bytes(indexer_blocks * block_bytes),
        resident_bytes=shown_bytes(resident_blocks * block_bytes),
        unused_bytes=shown_bytes(kv_bytes - used_blocks * block_bytes),
    )


def _host_memory(
    *, shown: int, total_bytes: float, hisparse_bytes: int, offload_total_bytes: float, offload_bytes_per_request: int
) -> PublishedHostMemory:
    all_bytes = total_bytes + offload_total_bytes
    offload_bytes = min(shown * offload_bytes_per_request, offload_total_bytes)
    return PublishedHostMemory(
        total_bytes=round(all_bytes),
        hisparse_bytes=round(min(hisparse_bytes, all_bytes)),
        offload_bytes=round(offload_bytes),
        unused_bytes=round(max(0.0, all_bytes - hisparse_bytes - offload_bytes)),
    )
