"""The hybrid rule, once per step for each request of the batch: write back what is full, give up the device under pressure."""

import numpy as np

from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.pools import Pools
from hisparse_runtime.policy.telemetry import CLEAN_PINNED, DIRTY, HOST_ONLY, PENDING
from hisparse_runtime.policy.transfers import Transfers, unpin


def materialise(pools: Pools, transfers: Transfers, table: PageTable, *, num_tokens: int) -> None:
    """Plans the write-back of every page that is full once the step has computed `num_tokens` tokens.

    Eagerly, while they are served from the device: under pressure no copy has to be waited for. A page that is being restored
    is looked at again in the next step, and so are those that exceed the step's budget.
    """
    num_full = num_tokens // pools.settings.page_tokens
    if num_full <= table.num_planned and not table.passed_over:
        return
    candidates = np.arange(table.num_planned, num_full, dtype=np.int32)
    if table.passed_over:
        candidates = np.concatenate((np.array(table.passed_over, dtype=np.int32), candidates))
        table.passed_over = []
    table.num_planned = max(table.num_planned, num_full)
    states = table.states[candidates]
    dirty = candidates[states == DIRTY]
    budget = max(pools.settings.max_transfers_per_step - len(transfers.to_send), 0)
    if len(dirty) < len(candidates) or len(dirty) > budget:
        is_restoring = (states == PENDING) & ~table.valid[candidates]
        table.passed_over = sorted((*candidates[is_restoring].tolist(), *dirty[budget:].tolist()))
        dirty = dirty[:budget]
    if len(dirty):
        transfers.plan(table, dirty)


def update(pools: Pools, table: PageTable) -> None:
    """One that can read from the host gives its clean pages up; one that cannot asks for a hot region when the pool runs low, or
    when it has as many pages as admission counted for it.

    The region comes with a later allocation, since it may not fit now; until then the pages stay pinned.
    """
    if table.pages_to_adopt:
        _adopt_copies(pools, table)
    if table.can_read_host:
        _unpin_clean(pools, table)
    elif pools.device.num_free < pools.settings.watermark_blocks or table.num_pages >= pools.settings.window_pages:
        table.hot_required = True


def finish_import(pools: Pools, transfers: Transfers, table: PageTable) -> None:
    """All of the imported pages are on the host; the last one comes back, since the next token is written to it."""
    num_tokens, table.importing_tokens = table.importing_tokens, 0
    num_full = num_tokens // pools.settings.page_tokens
    table.reset_valid(num_full)
    table.num_planned = num_full
    transfers.plan(table, np.array([(num_tokens - 1) // pools.settings.page_tokens], dtype=np.int32), is_restore=True)


def _unpin_clean(pools: Pools, table: PageTable) -> None:
    start, stop = table.unpinned_below, table.num_pinnable
    if start >= stop:
        return
    table.unpinned_below = stop
    if table.counts[CLEAN_PINNED]:
        # From the tail, so that the head of the context, which others may share, is taken last.
        found = start + np.flatnonzero(table.states[start:stop] == CLEAN_PINNED)
        unpin(pools, table, found[::-1].astype(np.int32))


def _adopt_copies(pools: Pools, table: PageTable) -> None:
    """Reads pages of a prefix hit in frames that still have their content.

    After the allocation that admission counted on: holding frames takes blocks out of the free ones.
    """
    count, table.pages_to_adopt = table.pages_to_adopt, 0
    copies = pools.frames.copies
    if not copies:
        return
    found = np.array([copies.part(name).get(name, 0) for name in table.names.first(count)], dtype=np.int32)
    pages = np.flatnonzero((found != 0) & (table.states[:count] == HOST_ONLY)).astype(np.int32)
    if len(pages):
        pools.frames.hold(found[pages], pools.device)
        table.move(pages, HOST_ONLY, CLEAN_PINNED, count=len(pages))
        table.adopt_frames(pages, found[pages])
        table.unpinned_below = 0
        pools.totals.adopted_pages += len(pages)
