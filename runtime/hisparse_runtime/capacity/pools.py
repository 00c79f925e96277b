"""What a pool of a given size holds, and the least that it must hold: one request of the full context length.

Block 0 of each pool is the null block, which never holds data. Rules and numbers are those of vLLM 0.33's HiSparse planner.

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
# With the next step scheduled while one runs, the tokens of two steps can be resident before any page of them reaches the host.
_STEPS_IN_FLIGHT = 2
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
    # blocks grow with the length, so the pages that fit are found by bisection
    longest_pages = (
        bisect_right(
            range(_pages(max_model_len, geometry)), found_blocks, key=lambda n: needed_by(max_model_len=n * geometry.page_tokens)
        )
        - 1
    )
    pages, window = _pages(max_model_len, geometry), _window(max_model_len, max_num_batched_tokens, geometry)
    hot_blocks = hot_region_blocks(geometry, device_buffer_rows=device_buffer_rows)
    raise DeviceMemoryError(
        f"device pool {human_bytes(device_pool_bytes)} has {found_blocks:,} blocks of {human_bytes(geometry.device_block_bytes)};"
        f" one request of maxModelLen {max_model_len:,} needs {needed_blocks:,} ({pages:,} indexer pages + {window:,}"
        f" resident pages + {hot_blocks:,} of a hot region + the null block): raise engine.gpuKVCache to at least"
        f" {needed_blocks * geometry.device_block_bytes} bytes{_or_lower(longest_pages * geometry.page_tokens)}"
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
    """Device blocks for one request of the full length that reads its older pages from the host.

    All indexer pages (the indexer scores every token), the resident window (tokens whose pages are not on the host yet) and a hot
    region: the admission size of vLLM 0.33.
    """
    hot_blocks = hot_region_blocks(geometry, device_buffer_rows=device_buffer_rows)
    return _NULL_BLOCKS + _pages(max_model_len, geometry) + _window(max_model_len, max_num_batched_tokens, geometry) + hot_blocks


def hot_region_blocks(geometry: ModelGeometry, *, device_buffer_rows: int) -> int:
    """Device blocks of one request's hot region."""
    return _pages(device_buffer_rows, geometry)


def default_device_buffer_rows(geometry: ModelGeometry) -> int:
    """Twice what the indexer picks: half of it can stay from step to step while the other half changes."""
    return min(2 * geometry.index_topk, MAX_DEVICE_BUFFER_ROWS)


def _pages(tokens: int, geometry: ModelGeometry) -> int:
    return -(-tokens // geometry.page_tokens)


def _window(max_model_len: int, max_num_batched_tokens: int, geometry: ModelGeometry) -> int:
    return min(_pages(max_model_len, geometry), _pages(_STEPS_IN_FLIGHT * max_num_batched_tokens, geometry))


def _or_lower(longest_tokens: int) -> str:
    return f" or lower maxModelLen to {longest_tokens:,}" if longest_tokens > 0 else ""
