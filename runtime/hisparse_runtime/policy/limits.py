"""Pool sizes in blocks, what one request takes of them, and whether the longest request fits."""

import math
from dataclasses import dataclass

from hisparse_runtime.geometry import ModelGeometry

# A step may still be writing them, and the next token is appended there.
TAIL_PAGES = 2
_GIB = 1 << 30
_MIB = 1 << 20


class PoolTooSmallError(ValueError):
    """A pool cannot hold one request of the longest length; the message says what to raise or lower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Everything the policy knows about sizes. Block counts include the null block."""

    page_tokens: int
    num_device_blocks: int
    num_host_blocks: int
    num_offload_blocks: int
    hot_rows: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int

    def pages(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens."""
        return -(-tokens // self.page_tokens)

    @property
    def hot_blocks(self) -> int:
        """Device blocks of one hot region."""
        return self.pages(self.hot_rows)

    @property
    def window_pages(self) -> int:
        """Most resident pages that a request which reads from the host needs at once: one step's chunk (it may begin and end
        inside of a page) and the tail."""
        return self.pages(self.max_num_batched_tokens) + 1 + TAIL_PAGES

    @property
    def watermark_blocks(self) -> int:
        """Fewer free device blocks than this is pressure: one more hot region must always fit."""
        return max(self.hot_blocks, self.num_device_blocks // 10)

    def device_blocks_needed(self, tokens: int) -> int:
        """Device blocks with which a request of `tokens` tokens always runs to its end: indexer pages, and all of its pages or a
        window and a hot region."""
        pages = self.pages(tokens)
        return pages + min(pages, self.window_pages + self.hot_blocks)


def plan_limits(
    geometry: ModelGeometry,
    *,
    gpu_kv_bytes: int,
    host_pool_bytes: int,
    cpu_bytes_to_use: int,
    device_buffer_size: int | None,
    max_model_len: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> Limits:
    """Sizes in blocks. Raises PoolTooSmallError if one request of `max_model_len` tokens does not fit."""
    hot_rows = device_buffer_size if device_buffer_size is not None else 2 * geometry.model.index_topk
    if hot_rows < geometry.model.index_topk:
        raise PoolTooSmallError(
            f"--device-buffer-size {hot_rows} is less than index_topk {geometry.model.index_topk}: "
            f"a hot region must hold all rows that one token selects; use at least {geometry.model.index_topk}, "
            f"or leave it out for {2 * geometry.model.index_topk}"
        )
    limits = Limits(
        page_tokens=geometry.page_tokens,
        num_device_blocks=gpu_kv_bytes // geometry.device_block_bytes,
        num_host_blocks=host_pool_bytes // geometry.host_page_bytes,
        num_offload_blocks=cpu_bytes_to_use // geometry.indexer_page_bytes,
        hot_rows=hot_rows,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    _check_host(limits, geometry=geometry, host_pool_bytes=host_pool_bytes)
    _check_device(limits, geometry=geometry, gpu_kv_bytes=gpu_kv_bytes)
    return limits


def _check_host(limits: Limits, *, geometry: ModelGeometry, host_pool_bytes: int) -> None:
    usable = max(limits.num_host_blocks - 1, 0)
    needed = limits.pages(limits.max_model_len)
    if usable < needed:
        raise_to_gib = math.ceil((needed + 1) * geometry.host_page_bytes / _GIB * 10000) / 10000
        raise PoolTooSmallError(
            f"host pool {host_pool_bytes / _MIB:.1f} MiB holds {usable} pages; --max-model-len {limits.max_model_len} needs "
            f"{needed}: raise --host-pool-gib to at least {raise_to_gib:g} or {_lower_to(usable * limits.page_tokens)}"
        )


def _check_device(limits: Limits, *, geometry: ModelGeometry, gpu_kv_bytes: int) -> None:
    usable = max(limits.num_device_blocks - 1, 0)
    needed = limits.device_blocks_needed(limits.max_model_len)
    if usable < needed:
        # The need grows with the length, so the longest length that fits is found by halving.
        low, high = 0, limits.max_model_len
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if limits.device_blocks_needed(middle) <= usable else (low, middle - 1)
        raise PoolTooSmallError(
            f"device pool {gpu_kv_bytes / _MIB:.1f} MiB holds {usable} blocks; --max-model-len {limits.max_model_len} needs "
            f"{needed} ({limits.pages(limits.max_model_len)} indexer pages, the rest resident pages or a window of "
            f"{limits.window_pages} and a hot region of {limits.hot_blocks}): raise --gpu-kv-bytes to at least "
            f"{(needed + 1) * geometry.device_block_bytes} or {_lower_to(low)}"
        )


def _lower_to(tokens: int) -> str:
    return f"lower --max-model-len to {tokens}" if tokens > 0 else "serve a smaller model: not even one page fits"
