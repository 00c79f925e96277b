"""The hybrid rule, once per step for each request of the batch: write back what is full, give up the device under pressure."""

from collections.abc import Iterable

import numpy as np

from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.pools import Pools
from hisparse_runtime.policy.telemetry import CLEAN_PINNED, DIRTY, HOST_ONLY, PENDING
from hisparse_runtime.policy.transfers import Transfers, unpin


def materialise(pools: Pools, transfers: Transfers, table: PageTable, *, num_full: int) -> None:
    """Plans the write-back of the first `num_full` pages, which are full once the step is computed.

    Eagerly, while they are served from the device: under pressure no copy has to be waited for. A page that is being restored
    is looked at again in the next step, and so are those that exceed the step's budget.
    """
    candidates = [*table.passed_over, *range(table.num_planned, num_full)]
    table.num_planned = max(table.num_planned, num_full)
    table.passed_over, dirty = [], []
    for page, state in zip(candidates, table.states_of(candidates), strict=True):
        if state == DIRTY:
            dirty.append(page)
        elif state == PENDING and not table.is_valid(page):
            table.passed_over.append(page)
    budget = max(pools.settings.max_transfers_per_step - len(transfers.to_send), 0)
    if len(dirty) > budget:
        table.passed_over = sorted(table.passed_over + dirty[budget:])
        del dirty[budget:]
    if dirty:
        transfers.plan(table, dirty)


def update(pools: Pools, tables: Iterable[PageTable]) -> None:
    """One that can read from the host gives its clean pages up; one that cannot asks for a hot region when the pool runs low, or
    when it has as many pages as admission counted for it.

    The region comes with a later allocation, since it may not fit now; until then the pages stay pinned.
    """
    given_up: list[tuple[PageTable, list[int]]] = []
    for table in tables:
        if given_up and not table.can_read_host:
            unpin(pools, given_up)  # what is free counts now
            given_up = []
        if table.pages_to_adopt:
            _adopt_copies(pools, table)
        if table.can_read_host:
            pages = _take_clean(table)
            if pages:
                given_up.append((table, pages))
        elif pools.device.num_free < pools.settings.watermark_blocks or table.num_pages >= pools.settings.window_pages:
            table.hot_required = True
    if given_up:
        unpin(pools, given_up)


def finish_import(pools: Pools, transfers: Transfers, table: PageTable) -> None:
    """All of the imported pages are on the host; the last one comes back, since the next token is written to it."""
    num_tokens, table.importing_tokens = table.importing_tokens, 0
    num_full = num_tokens // pools.settings.page_tokens
    table.reset_valid(num_full)
    table.num_planned = num_full
    transfers.plan(table, [(num_tokens - 1) // pools.settings.page_tokens], is_restore=True)
    transfers.hold_ends()


def _take_clean(table: PageTable) -> list[int]:
    """Clean pages before the tail, from their end, so that the head of the context, which others may share, is taken last."""
    start, stop = table.unpinned_below, table.num_pinnable
    if start >= stop:
        return []
    table.unpinned_below = stop
    if not table.counts[CLEAN_PINNED]:
        return []
    pages = range(stop - 1, start - 1, -1)
    return [page for page, state in zip(pages, table.states_of(pages), strict=True) if state == CLEAN_PINNED]


def _adopt_copies(pools: Pools, table: PageTable) -> None:
    """Reads pages of a prefix hit in frames that still have their content.

    After the allocation that admission counted on: holding frames takes blocks out of the free ones.
    """
    count, table.pages_to_adopt = table.pages_to_adopt, 0
    copies = pools.frames.copies
    if not copies:
        return
    found = np.array([copies.parts[name[0]].get(name, 0) for name in table.names.between(0, count)], dtype=np.int32)
    pages = np.flatnonzero((found != 0) & (table.states[:count] == HOST_ONLY)).tolist()
    if pages:
        pools.frames.hold(found[pages], pools.device)
        table.move(pages, HOST_ONLY, CLEAN_PINNED)
        table.adopt_frames(pages, found[pages])
        table.unpinned_below = 0
        pools.totals.adopted_pages += len(pages)
