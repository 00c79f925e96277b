"""Sizes of the embedded engine: its device pool is host memory, and its policy admits with a window and a hot region."""

from bisect import bisect_right
from functools import partial

from hisparse_runtime.capacity.budget import PodShape, Tiers
from hisparse_runtime.capacity.errors import SPEC_NAMES, DeviceMemoryError, FieldNames, SettingsError
from hisparse_runtime.capacity.host_pool import minimum_host_blocks
from hisparse_runtime.capacity.hot_region import MAX_DEVICE_BUFFER_ROWS
from hisparse_runtime.capacity.units import MIB, human_bytes
from hisparse_runtime.geometry import ModelGeometry

# The engine held 91 MiB beside its host pool and offload tier, device pool included, while it served 16 requests of 2,000 to
# 3,900 tokens at once with the model of examples/embedded.yaml (Linux x86-64); twice that leaves room for larger weights.
EMBEDDED_WORKING_SET_BYTES = 192 * MIB
# The last page of each pool's file, and what libraries put into /dev/shm: writing past its end kills the process.
_SHM_SLACK_BYTES = 64 * MIB
_NULL_BLOCKS = 1
# The page that the next token is appended to, the one before it, whose copy to the host may still run, and one more because a
# step's chunk may begin and end inside of a page.
_TAIL_PAGES = 3


def embedded_shape(*, device_pool_bytes: int) -> PodShape:
    return PodShape(
        working_set_bytes=EMBEDDED_WORKING_SET_BYTES, shm_slack_bytes=_SHM_SLACK_BYTES, device_pool_bytes=device_pool_bytes
    )


def embedded_tiers(
    geometry: ModelGeometry, *, max_model_len: int, host_pool_bytes: int | None, cpu_bytes_to_use: int | None
) -> Tiers:
    return Tiers(
        host_block_bytes=geometry.host_page_bytes,
        offload_block_bytes=geometry.indexer_page_bytes,
        page_tokens=geometry.page_tokens,
        min_host_blocks=minimum_host_blocks(geometry, max_model_len=max_model_len),
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=cpu_bytes_to_use,
    )


def check_embedded_device_pool(
    *,
    geometry: ModelGeometry,
    device_pool_bytes: int,
    max_model_len: int,
    max_num_batched_tokens: int,
    device_buffer_rows: int,
    names: FieldNames = SPEC_NAMES,
) -> None:
    """Raises DeviceMemoryError when the pool cannot hold one request of `max_model_len` tokens."""
    found_blocks = device_pool_bytes // geometry.device_block_bytes
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
    lower = f" or lower {names.max_model_len} to {longest:,}" if longest else ""
    pages = geometry.pages(max_model_len)
    raise DeviceMemoryError(
        f"device pool {human_bytes(device_pool_bytes)} has {found_blocks:,} blocks of {human_bytes(geometry.device_block_bytes)};"
        f" one request of {names.max_model_len} {max_model_len:,} needs {needed_blocks:,} ({pages:,} for indexer pages,"
        f" {needed_blocks - pages - _NULL_BLOCKS:,} for resident pages and a hot region, the null block): raise"
        f" {names.gpu_kv} to at least {needed_blocks * geometry.device_block_bytes}{lower}"
    )


def minimum_device_blocks(
    geometry: ModelGeometry, *, max_model_len: int, max_num_batched_tokens: int, device_buffer_rows: int
) -> int:
    """Device blocks with which one request of the full length runs to its end.

    All indexer pages, since the indexer scores every token; and in each group a window of resident pages (one step's chunk and
    the tail) and a hot region, with which a request begins whose prefix is on the host.
    """
    pages = geometry.pages(max_model_len)
    window = min(pages, geometry.pages(max_num_batched_tokens) + _TAIL_PAGES)
    return _NULL_BLOCKS + pages + geometry.num_groups * (window + geometry.pages(device_buffer_rows))


def device_pool_tokens(geometry: ModelGeometry, *, device_pool_bytes: int) -> int:
    """Tokens that the device pool holds when everything is resident: a page takes a block in each group, and one for its indexer
    keys."""
    usable_blocks = max(0, device_pool_bytes // geometry.device_block_bytes - _NULL_BLOCKS)
    return usable_blocks // (geometry.num_groups + 1) * geometry.page_tokens


def embedded_hot_rows(geometry: ModelGeometry, *, device_buffer_size: int | None, names: FieldNames) -> int:
    """Rows of one request's hot region in each layer. Raises SettingsError if they do not hold what one token reads."""
    topk, default_rows = geometry.model.index_topk, default_device_buffer_rows(geometry)
    rows = default_rows if device_buffer_size is None else device_buffer_size
    if rows < topk:
        raise SettingsError(
            f"{names.device_buffer_size} is {rows:,} and the model's index_topk {topk:,}, all read by one token: raise it to at"
            f" least {topk:,}, or leave it out for {default_rows:,}"
        )
    return rows


def default_device_buffer_rows(geometry: ModelGeometry) -> int:
    """Twice what the indexer picks: half of it can stay from step to step while the other half changes."""
    return min(2 * geometry.model.index_topk, MAX_DEVICE_BUFFER_ROWS)
