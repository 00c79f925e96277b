"""What a plan says to people: its arithmetic step by step, and what its owner should know."""

from collections.abc import Iterator

from hisparse_runtime.capacity.budget import tier_arithmetic
from hisparse_runtime.capacity.engine_plan import EnginePlan
from hisparse_runtime.capacity.units import GIB, human_bytes

# Below this gain, the cost of reading from the host is not worth it: one request at a time loses 8 to 50 % of its speed.
_WORTHWHILE_GAIN = 1.5
_NOTEWORTHY_OVERHEAD_BYTES = GIB


def plan_arithmetic(plan: EnginePlan) -> tuple[str, ...]:
    """How the numbers came about, a step a line."""
    memory = plan.memory
    return (
        *_layout(plan),
        *_device(plan),
        *tier_arithmetic(plan.tiers, host_pool_bytes=memory.host_pool_bytes, cpu_bytes_to_use=memory.cpu_bytes_to_use),
        *memory.arithmetic,
        *plan.times.arithmetic,
    )


def plan_warnings(plan: EnginePlan) -> tuple[str, ...]:
    """What is accepted and may not be what was wanted, each with its numbers and the next step."""
    version = plan.request.settings.version
    bugs = tuple(f"vLLM {version.name}: {bug}" for bug in version.known_bugs)
    return (*bugs, *_host_warnings(plan), *_device_warnings(plan))


def _layout(plan: EnginePlan) -> Iterator[str]:
    geometry, stride = plan.sizes.geometry, plan.host.stride_bytes
    cache_format, largest = geometry.cache_format, max(geometry.layers_per_group)
    yield (
        f"row: {geometry.row_bytes} B per token and layer ({cache_format.name}), {geometry.num_layers} layers; indexer:"
        f" {cache_format.indexer_page_bytes:,} B per page of {geometry.page_tokens} tokens, {geometry.num_indexer_layers} layers"
    )
    groups = ", ".join(_runs(geometry.layers_per_group))
    yield (
        f"groups: {geometry.num_groups} of {groups} layers, each filled up to the indexer's page of"
        f" {geometry.indexer_page_bytes:,} B"
    )
    yield (
        f"device block: the larger of {largest} layers x {cache_format.page_bytes:,} B and the indexer's page, in whole layer"
        f" pages: {geometry.device_block_bytes:,} B"
    )
    whole_pages = f", in whole 4 KiB pages {stride:,} B" if stride != geometry.host_page_bytes else ""
    owner = "one pool for all ranks" if plan.request.settings.shares_host_pool else "a pool for each rank"
    yield f"host block: {geometry.num_layers} layers x {cache_format.page_bytes:,} B{whole_pages}; {owner}"


def _device(plan: EnginePlan) -> Iterator[str]:
    sizes, geometry, device = plan.sizes, plan.sizes.geometry, plan.sizes.device
    tokens, hot, now = sizes.max_model_len, sizes.hot, plan.concurrency
    request = device.request(tokens)
    kv = human_bytes(device.kv_bytes)
    yield f"device pool: {kv} on each GPU / {geometry.device_block_bytes:,} B = {device.num_blocks:,} blocks"
    hot_bytes = human_bytes(hot.blocks_per_request * geometry.device_block_bytes)
    yield (
        f"hot region: {hot.rows:,} rows, {geometry.num_groups} groups x {hot.blocks_per_group} blocks"
        f" = {hot.blocks_per_request:,} blocks, {hot_bytes} per request"
    )
    yield f"beside the device pool, on each GPU: {human_bytes(plan.overhead_bytes)} for slot maps, work space and residency table"
    yield (
        f"one request of {tokens:,} tokens: {request.indexer:,} indexer + {request.resident_admitted:,} resident"
        f" + {request.hot:,} hot = {request.admitted:,} blocks at admission,"
        f" {request.indexer:,} + {request.resident_steady:,} + {request.hot:,} = {request.steady:,} once it reads from the host"
    )
    steady = device.steady_concurrency(tokens)
    yield (
        f"concurrency: 1 + ({device.num_blocks:,} - {request.admitted:,}) / {request.steady:,} = {steady:.2f} by the GPU,"
        f" {plan.host.num_blocks:,} / {request.indexer:,} = {now.host:.2f} by the host pool; without HiSparse {now.ordinary:.2f}"
    )


def _host_warnings(plan: EnginePlan) -> Iterator[str]:
    sizes, settings, now = plan.sizes, plan.request.settings, plan.concurrency
    pool, usable, tokens = plan.memory.host_pool_bytes, plan.usable_host_bytes, sizes.max_model_len
    if now.limited_by == "host":
        gpu = sizes.device.steady_concurrency(tokens)
        yield (
            f"the host pool ends concurrency at {now.host:.2f} requests of {tokens:,} tokens, the GPU side would carry {gpu:.2f}:"
            f" a host pool of {human_bytes(usable)} would use it"
        )
    elif pool - usable > sizes.host_stride_bytes:
        yield (
            f"host pool {human_bytes(pool)}: running requests of {tokens:,} tokens can fill {human_bytes(usable)} of it, since"
            f" {now.limited_by} ends at {min(now.steady, settings.max_num_seqs):.1f} of them; {human_bytes(pool - usable)} keep"
            " prefixes of idle conversations"
        )
    if plan.offload_tokens < plan.host.tokens // 2:
        yield (
            f"the offload tier holds indexer keys of {plan.offload_tokens:,} tokens, the host pool KV of {plan.host.tokens:,}: a"
            " prefix whose keys are gone is computed again, so the rest of the pool serves running requests only"
        )


def _device_warnings(plan: EnginePlan) -> Iterator[str]:
    sizes, settings, now = plan.sizes, plan.request.settings, plan.concurrency
    hot = sizes.hot
    if hot.padding_rows:
        yield (
            f"device_buffer_size {hot.rows:,} leaves {hot.padding_rows} rows of each hot group unused: use"
            f" {hot.rows + hot.padding_rows:,}"
        )
    if now.steady < now.ordinary * _WORTHWHILE_GAIN:
        yield (
            f"HiSparse gains little here: {now.steady:.2f} requests of {sizes.max_model_len:,} tokens against {now.ordinary:.2f}"
            " without it"
        )
    if plan.overhead_bytes >= _NOTEWORTHY_OVERHEAD_BYTES:
        yield (
            f"HiSparse takes {human_bytes(plan.overhead_bytes)} of each GPU beside the KV pool, after vLLM profiled: leave room"
            f" below gpu_memory_utilization, or lower max_num_seqs ({settings.max_num_seqs:,})"
        )


def _runs(sizes: tuple[int, ...]) -> Iterator[str]:
    """`2`, `4 x 19`: equal neighbours counted."""
    start = 0
    for index in range(1, len(sizes) + 1):
        if index == len(sizes) or sizes[index] != sizes[start]:
            count = index - start
            yield f"{sizes[start]} x {count}" if count > 1 else f"{sizes[start]}"
            start = index
