"""How things stand between two steps, read from vLLM's HiSparse coordinator. Keys are those of the catalogue.

The coordinator keeps a request's pages in sets, and every page with a copy on the device is in exactly one of four places:

    pending_pages   a copy is under way; a page that is restored may be valid already
    pinned_clean    valid, and held
    unpinned_pages  valid, and read in place until the pool takes it
    none of them    dirty: the host does not have it yet

Of `valid_pages`, the rest has no copy on the device. So sizes of sets are all it takes, whatever the length of a context.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What does not change while an engine runs. A page on the host is padded to a block.

    `steady_state_concurrency`: None where vLLM does not compute it (before 0.32).
    """

    host_page_bytes: int
    host_block_bytes: int
    device_block_bytes: int
    host_pool_copies: int
    shares_host_pool: bool
    steady_state_concurrency: float | None


def sizes_of(kv_cache_config: Any, *, num_workers: int, steady_state_concurrency: float | None) -> Sizes:
    """`kv_cache_config` is the scheduler's. Each of its tensors has the size of the allocation that all of its kind lie in."""
    host_bytes = max(tensor.size for tensor in kv_cache_config.kv_cache_tensors if tensor.host_resident)
    device_bytes = max(tensor.size for tensor in kv_cache_config.kv_cache_tensors if not tensor.host_resident)
    is_shared = bool(kv_cache_config.hisparse_shared_host_pool)
    return Sizes(
        host_page_bytes=host_bytes // kv_cache_config.hisparse_host_num_blocks,
        host_block_bytes=kv_cache_config.hisparse_host_block_stride,
        device_block_bytes=device_bytes // kv_cache_config.num_blocks,
        host_pool_copies=1 if is_shared else num_workers,
        shares_host_pool=is_shared,
        steady_state_concurrency=steady_state_concurrency,
    )


def request_levels(coordinator: Any, requests: Iterable[Any], *, running: object) -> dict[str, float]:
    """Of requests with status `running`: classes, and pages by state."""
    tables, states = coordinator.resident_managers[0].req_to_blocks, coordinator.request_states
    full = mixed = none = 0
    dirty = pending = pinned = unpinned = host_only = 0
    for request in requests:
        if request.status is not running:
            continue
        name = request.request_id
        num_pages = len(tables.get(name, ()))
        state = states.get(name)
        if state is None:  # admitted, and in no step yet
            full += 1
            dirty += num_pages
            continue
        pending_pages, valid = state.pending_pages, state.valid_pages
        num_pending, num_pinned, num_unpinned = len(pending_pages), len(state.pinned_clean), len(state.unpinned_pages)
        num_restored = sum(page in valid for page in pending_pages)
        num_host_only = len(valid) - num_pinned - num_unpinned - num_restored
        dirty += num_pages - num_pending - num_pinned - num_unpinned - num_host_only
        pending += num_pending
        pinned += num_pinned
        unpinned += num_unpinned
        host_only += num_host_only
        if not num_host_only:
            full += 1
        elif num_pending or num_pinned or num_unpinned:
            mixed += 1
        else:
            none += 1
    return {
        "requests_full": full,
        "requests_mixed": mixed,
        "requests_none": none,
        "pages_dirty": dirty,
        "pages_pending": pending,
        "pages_clean_pinned": pinned,
        "pages_unpinned": unpinned,
        "pages_host_only": host_only,
    }


def pool_levels(coordinator: Any, sizes: Sizes) -> dict[str, float]:
    """Of both pools, and what is decided by them."""
    device, host = coordinator.gpu_pool, coordinator.get_host_block_pool()
    free_blocks = device.get_num_free_blocks()
    hot = coordinator.hot_managers[0]
    return {
        **_pool("host", num_blocks=host.num_gpu_blocks, num_free=host.get_num_free_blocks(), block_bytes=sizes.host_block_bytes),
        **_pool("device", num_blocks=device.num_gpu_blocks, num_free=free_blocks, block_bytes=sizes.device_block_bytes),
        "hot_regions": _num_regions(hot.req_to_blocks, hot.blocks_per_request),
        "transition_watermark_blocks": coordinator.transition_watermark,
        "below_transition_watermark": int(free_blocks < coordinator.transition_watermark),
        "host_pool_copies": sizes.host_pool_copies,
        "host_pool_is_shared": int(sizes.shares_host_pool),
        **({} if sizes.steady_state_concurrency is None else {"steady_state_concurrency": sizes.steady_state_concurrency}),
    }


def _pool(name: str, *, num_blocks: int, num_free: int, block_bytes: int) -> dict[str, float]:
    """One block of each pool is the null block, and never free."""
    usable = num_blocks - 1
    return {
        f"{name}_capacity_blocks": usable,
        f"{name}_used_blocks": usable - num_free,
        f"{name}_capacity_bytes": usable * block_bytes,
        f"{name}_used_bytes": (usable - num_free) * block_bytes,
    }


def _num_regions(hot_blocks: Mapping[str, Any], blocks_per_request: int) -> int:
    """All groups of a request get their region in the same step."""
    return sum(len(blocks) == blocks_per_request for blocks in hot_blocks.values())
