"""The host pool: a block for every page of every request, and the copy of record."""

import math
from dataclasses import dataclass

from hisparse_runtime.capacity.errors import FieldNames, HostMemoryError
from hisparse_runtime.capacity.units import GIB, human_bytes, round_up
from hisparse_runtime.geometry import ModelGeometry

NULL_BLOCKS = 1
# A prefix that two requests share ends in a page that the second one writes to: it takes a copy.
_COPY_ON_WRITE_BLOCKS = 1
# Blocks of a pool that several processes map begin on pages of memory.
_SHARED_ALIGNMENT_BYTES = 4096
_GIB_DIGITS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPool:
    """Block 0 is the null block, which never holds data. Sizes are those of one data-parallel replica."""

    stride_bytes: int
    num_blocks: int
    min_blocks: int
    page_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens whose KV the pool holds."""
        return max(0, self.num_blocks - NULL_BLOCKS) * self.page_tokens


def host_stride_bytes(geometry: ModelGeometry, *, is_shared: bool) -> int:
    """Bytes from one block to the next."""
    return round_up(geometry.host_page_bytes, to_bytes=_SHARED_ALIGNMENT_BYTES) if is_shared else geometry.host_page_bytes


def minimum_host_blocks(geometry: ModelGeometry, *, max_model_len: int) -> int:
    """Host blocks for one request of the full length: every page has one, whether or not it is resident."""
    return geometry.pages(max_model_len) + NULL_BLOCKS + _COPY_ON_WRITE_BLOCKS


def host_pool(
    geometry: ModelGeometry,
    *,
    pool_bytes: int,
    is_shared: bool,
    max_model_len: int,
    names: FieldNames,
    checks_minimum: bool = True,
) -> HostPool:
    """The pool in blocks. Raises HostMemoryError when it cannot hold one request of `max_model_len` tokens.

    `checks_minimum` is False for a vLLM that starts with any pool of at least one block.
    """
    stride_bytes = host_stride_bytes(geometry, is_shared=is_shared)
    num_blocks = pool_bytes // stride_bytes
    min_blocks = minimum_host_blocks(geometry, max_model_len=max_model_len) if checks_minimum else NULL_BLOCKS
    if num_blocks < min_blocks:
        needed_gib = gib_at_least(min_blocks * stride_bytes)
        longest = (num_blocks - NULL_BLOCKS - _COPY_ON_WRITE_BLOCKS) * geometry.page_tokens
        lower = f" or lower {names.max_model_len} to {longest:,}" if longest > 0 else ""
        raise HostMemoryError(
            f"host pool {human_bytes(pool_bytes)} holds {num_blocks:,} blocks of {geometry.page_tokens} tokens;"
            f" {names.max_model_len} {max_model_len:,} needs {min_blocks:,}: raise {names.host_pool_gib} to at least"
            f" {needed_gib:g}{lower}"
        )
    return HostPool(stride_bytes=stride_bytes, num_blocks=num_blocks, min_blocks=min_blocks, page_tokens=geometry.page_tokens)


def gib_bytes(gib: float) -> int:
    """The bytes that the engines make of a size in GiB."""
    return int(gib * GIB)


def gib_at_least(size_bytes: int) -> float:
    """The shortest number of GiB that is not smaller, to four digits."""
    return math.ceil(size_bytes / GIB * _GIB_DIGITS) / _GIB_DIGITS
