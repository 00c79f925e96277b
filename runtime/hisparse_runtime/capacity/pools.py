"""What a pool of a given size holds, and the least that it must hold: one request of the full context length.

Block 0 of each pool is the null block, which never holds data. The host rule is that of vLLM 0.33's planner.

    device pool   | null | resident pages | indexer pages | hot regions |      one block size, shared
    host pool     | null | KV pages of running requests and cached prefixes |
    offload tier  | null | indexer pages of cached prefixes |
"""

from bisect import bisect_right
from functools import partial
from math import ceil

from hisparse_runtime.capacity.units import GIB, human_bytes
from hisparse_runtime.geometry import ModelGeometry

_NULL_BLOCKS = 1
# A prefix that two requests share ends in a page that the second one writes to: it takes a copy.
_COPY_ON_WRITE_BLOCKS = 1
# The page that the next token is appended to, the one before it, whose copy to the host may still run, and one more because a
# step's chunk may begin and end inside of a page.
_TAIL_PAGES = 3
# Hot slots are numbered by 16-bit integers.
MAX_DEVICE_BUFFER_ROWS = 32768


class CapacityError(ValueError):
    """The sizes cannot work. `reason` is stable, for programs; the text has the numbers and the next step."""

    reason = "InsufficientMemory"


class HostMemoryError(CapacityError):
    """The host pool, or the memory it comes from, is too small."""

    reason = "InsufficientHostMemory"


class DeviceMemoryError(CapacityError):
    """The device pool is too small."""

    reason = "InsufficientDeviceMemory"


def check_host_pool(*, geometry: ModelGeometry, host_pool_bytes: int, max_model_len: int) -> None:
    """Raises HostMemoryError when the pool cannot hold one request of `max_model_len` tokens."""
    found_blocks = pool_blocks(host_pool_bytes, block_bytes=geometry.host_page_bytes)
    needed_blocks = minimum_host_blocks(geometry, max_model_len=max_model_len)
    if found_blocks >= needed_blocks:
        return
    needed_gib = ceil(needed_blocks * geometry.host_page_bytes / GIB * 10_000) / 10_000
    longest = (found_blocks - _NULL_BLOCKS - _COPY_ON_WRITE_BLOCKS) * geometry.page_tokens
    raise HostMemoryError(
        f"host pool {human_bytes(host_pool_bytes)} holds {found_blocks:,} pages of {geometry.page_tokens} tokens; maxModelLen"
        f" {max_model_len:,} needs {needed_blocks:,}: raise hiSparse.hostPoolGiB to at least {needed_gib}{_or_lower(longest)}"
    )


def check_device_pool(
    *, geometry: ModelGeometry, device_pool_bytes: int, max_model_len: int, max_num_batched_tokens: int, device_buffer_rows: int
) -> None:
    """Raises DeviceMemoryError when the pool cannot hold one request of `max_model_len` tokens."""
    found_blocks = pool_blocks(device_pool_bytes, block_bytes=geometry.device_block_bytes)
    needed_by = partial(
        minimum_device_blocks, geometry, max_num_batched_tokens=max_num_batched_tokens, device_buffer_rows=device_buffer_rows
    )
    needed_blocks = needed_by(max_model_len=max_model_len)
    if found_blocks >= needed_blocks:
        return
    # the need grows with the length, so the pages that fit are found by bisection
    lengths = range(0, max_model_len, geometry.page_tokens)
    num_fitting = bisect_right(lengths, found_blocks, key=lambda length: needed_by(max_model_len=length))
    longest = lengths[max(0, num_fitting - 1)]
    pages = _pages(max_model_len, geometry)
    raise DeviceMemoryError(
        f"device pool {human_bytes(device_pool_bytes)} has {found_blocks:,} blocks of {human_bytes(geometry.device_block_bytes)};"
        f" one request of maxModelLen {max_model_len:,} needs {needed_blocks:,} ({pages:,} for indexer pages,"
        f" {needed_blocks - pages - _NULL_BLOCKS:,} for resident pages and a hot region, the null block): raise"
        f" engine.gpuKVCache to at least {needed_blocks * geometry.device_block_bytes}{_or_lower(longest)}"
    )


def pool_blocks(pool_bytes: int, *, block_bytes: int) -> int:
    """Blocks that fit, the null block included."""
    return pool_bytes // block_bytes


def pool_tokens(pool_bytes: int, *, block_bytes: int, page_tokens: int) -> int:
    """Tokens that a pool of one-page blocks holds."""
    return max(0, pool_blocks(pool_bytes, block_bytes=block_bytes) - _NULL_BLOCKS) * page_tokens


def device_pool_tokens(geometry: ModelGeometry, *, device_pool_bytes: int) -> int:
    """Tokens that the device pool holds when everything is resident: each page takes a block, and its indexer keys another."""
    usable_blocks = max(0, pool_blocks(device_pool_bytes, block_bytes=geometry.device_block_bytes) - _NULL_BLOCKS)
    return usable_blocks // 2 * geometry.page_tokens


def minimum_host_blocks(geometry: ModelGeometry, *, max_model_len: int) -> int:
    """Host blocks for one request of the full length: every page has one, whether or not it is resident."""
    return _pages(max_model_len, geometry) + _NULL_BLOCKS + _COPY_ON_WRITE_BLOCKS


def minimum_device_blocks(
    geometry: ModelGeometry, *, max_model_len: int, max_num_batched_tokens: int, device_buffer_rows: int
) -> int:
    """Device blocks with which one request of the full length runs to its end.

    All indexer pages, since the indexer scores every token, and either all pages resident, or a window of them (one step's
    chunk and the tail) and a hot region for the rest.
    """
    pages = _pages(max_model_len, geometry)
    window = _pages(max_num_batched_tokens, geometry) + _TAIL_PAGES
    hot_blocks = hot_region_blocks(geometry, device_buffer_rows=device_buffer_rows)
    return _NULL_BLOCKS + pages + min(pages, window + hot_blocks)


def hot_region_blocks(geometry: ModelGeometry, *, device_buffer_rows: int) -> int:
    """Device blocks of one request's hot region."""
    return _pages(device_buffer_rows, geometry)


def default_device_buffer_rows(geometry: ModelGeometry) -> int:
    """Twice what the indexer picks: half of it can stay from step to step while the other half changes."""
    return min(2 * geometry.model.index_topk, MAX_DEVICE_BUFFER_ROWS)


def _pages(tokens: int, geometry: ModelGeometry) -> int:
    return -(-tokens // geometry.page_tokens)


def _or_lower(longest_tokens: int) -> str:
    return f" or lower maxModelLen to {longest_tokens:,}" if longest_tokens > 0 else ""
