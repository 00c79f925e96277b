"""The resolver: logical top-K positions -> device rows.

For one request, one layer and one selection (vLLM's hisparse_resolve_residency, in one group and for one row):
1. A position on a resident page is read in place: device row = resident block x page_tokens + offset.
2. Any other is named by its global host row = host block x page_tokens + offset. A slot of the hot region that holds it is a hit.
3. Misses, in order of the selection, take the slots used longest ago that are not hits now; the caller copies those rows.
4. New order of use: slots not selected | misses | hits, the newest last.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
EMPTY = -1


class ResolveError(RuntimeError):
    """The selection cannot be resolved: tables and hot region do not belong together."""


class HotRows:
    """What one layer's slots of one hot region hold. `host_rows[slot]` is a global host row or EMPTY; `order` lists the
    slots, the one used longest ago first."""

    __slots__ = ("host_rows", "order")

    def __init__(self, num_rows: int) -> None:
        self.host_rows: Indices = np.full(num_rows, EMPTY, dtype=np.int64)
        self.order: Indices = np.arange(num_rows, dtype=np.int64)

    def scrub(self, host_blocks: Indices, *, page_tokens: int) -> None:
        """Forgets rows of host blocks that were handed out anew: the same global row means another token now."""
        stale = np.isin(self.host_rows // page_tokens, host_blocks) & (self.host_rows != EMPTY)
        self.host_rows[stale] = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """`device_rows[i]` is where selected position i is read, once `miss_host_rows[j]` are copied to `miss_device_rows[j]`."""

    device_rows: Indices
    miss_host_rows: Indices
    miss_device_rows: Indices
    num_hits: int

    @property
    def num_misses(self) -> int:
        return len(self.miss_host_rows)


def resolve(
    positions: Indices, *, resident: Indices, host: Indices, hot_blocks: Indices, hot: HotRows | None, page_tokens: int
) -> Resolution:
    """Resolves distinct `positions` of one row and updates `hot`.

    `resident` and `host` are block ids by page (0: none), `hot_blocks` the blocks of the hot region. Hits and misses count
    hot rows only. Raises ResolveError if a position is nowhere, or the region is smaller than the rows needed from the host.
    """
    pages, offsets = positions // page_tokens, positions % page_tokens
    blocks = resident[pages]
    device_rows = blocks * page_tokens + offsets
    away = np.flatnonzero(blocks == 0)
    nothing = np.empty(0, dtype=np.int64)
    if len(away) == 0:
        return Resolution(device_rows=device_rows, miss_host_rows=nothing, miss_device_rows=nothing, num_hits=0)
    hot_rows = 0 if hot is None else len(hot.order)
    if hot is None or hot_rows < len(away):
        raise ResolveError(f"{len(away)} selected rows are on the host only, the hot region has {hot_rows} rows")
    host_blocks = host[pages[away]]
    if not host_blocks.all():
        raise ResolveError(f"position {int(positions[away[host_blocks == 0][0]])} is neither on the device nor on the host")
    wanted = host_blocks * page_tokens + offsets[away]

    by_row = np.argsort(wanted, kind="stable")
    held = hot.host_rows[hot.order]
    found = np.minimum(np.searchsorted(wanted, held, sorter=by_row), len(wanted) - 1)
    is_hit = wanted[by_row[found]] == held
    slots = np.full(len(wanted), EMPTY, dtype=np.int64)
    slots[by_row[found[is_hit]]] = hot.order[is_hit]

    misses = np.flatnonzero(slots == EMPTY)
    evictable = hot.order[~is_hit]
    slots[misses] = evictable[: len(misses)]
    hot.host_rows[slots[misses]] = wanted[misses]
    hot.order = np.concatenate((evictable[len(misses) :], slots[misses], hot.order[is_hit]))

    rows = hot_blocks[slots // page_tokens] * page_tokens + slots % page_tokens
    device_rows[away] = rows
    return Resolution(
        device_rows=device_rows,
        miss_host_rows=wanted[misses],
        miss_device_rows=rows[misses],
        num_hits=len(wanted) - len(misses),
    )
