"""Recounts every block, frame and page from the tables. For tests, after every step."""

from collections import Counter

import numpy as np

from hisparse_runtime.policy.block_pool import BlockPool
from hisparse_runtime.policy.hisparse import HiSparseMemory
from hisparse_runtime.policy.ordinary import OrdinaryMemory
from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.settings import TAIL_PAGES
from hisparse_runtime.policy.telemetry import PageState, ResidencyClass, ResidencyCounts


class IntegrityError(AssertionError):
    """A recount differs from what the policy believes."""


def check_integrity(memory: HiSparseMemory | OrdinaryMemory) -> None:
    """Raises IntegrityError naming the first block or page that is not accounted for. Takes as long as the pools are large."""
    if isinstance(memory, OrdinaryMemory):
        held = Counter(int(block) for table in memory.tables.values() for block in table.blocks[: table.num_pages])
        held.update(int(block) for leftover in memory.leftovers for block in leftover.indexer)
        _check_pool(memory.device, held=held)
        return
    for table in memory.pools.tables.values():
        _check_table(table, memory)
    _check_frames(memory)
    _check_transfers(memory)
    _check_blocks(memory)
    _check_totals(memory)


def _check_table(table: PageTable, memory: HiSparseMemory) -> None:
    name, states, frames, valid = table.request_id, table.states, table.frames, table.valid
    for state in PageState:
        counted = int(np.count_nonzero(states == state))
        _expect(counted == table.counts[state], f"{name}: {counted} pages are {state.name}, the count says {table.counts[state]}")
    _expect(bool((table.host != 0).all()), f"{name}: a page has no host block")
    _expect(bool((table.indexer != 0).all()), f"{name}: a page has no indexer block")
    for page in range(table.num_pages):
        state, where = PageState(states[page]), f"{name} page {page} ({PageState(states[page]).name})"
        _expect((frames[page] == 0) == (state is PageState.HOST_ONLY), f"{where}: frame {frames[page]}")
        if state is PageState.DIRTY:
            _expect(not valid[page], f"{where}: the host has it")
        if state in (PageState.CLEAN_PINNED, PageState.UNPINNED) or (state is PageState.HOST_ONLY and not table.importing_tokens):
            _expect(bool(valid[page]), f"{where}: the host does not have it")
        if state is PageState.UNPINNED:
            _expect(table.can_read_host, f"{where}: the request cannot read the host")
            _expect(page < table.num_pages - TAIL_PAGES, f"{where}: one of the last {TAIL_PAGES} of {table.num_pages} pages")
        if state is PageState.HOST_ONLY:
            _expect(table.hot_required, f"{where}: no hot region is asked for")
    _expect(bool(valid[: table.num_ready].all()), f"{name}: one of {table.num_ready} ready pages is not on the host")
    _expect(
        table.num_ready == table.num_pages or not valid[table.num_ready], f"{name}: more than {table.num_ready} pages are ready"
    )
    published = min(table.num_published, table.num_ready)
    index = memory.pools.host.index
    for page in range(published):
        block = int(table.host[page])
        _expect(index.name_of(block) == table.names[page], f"{name} page {page}: host block {block} is not published")
    if table.hot is not None:
        _expect(table.hot.size == memory.settings.hot_blocks, f"{name}: a part of a hot region: {table.hot.size} blocks")


def _check_frames(memory: HiSparseMemory) -> None:
    pools = memory.pools
    holders: Counter[int] = Counter(transfer.frame for transfer in memory.transfers.pending.values())
    readers: dict[int, set[tuple[int, int]]] = {}
    for table in pools.tables.values():
        for page, (frame, state) in enumerate(zip(table.frames.tolist(), table.states.tolist(), strict=True)):
            if state == PageState.UNPINNED:
                readers.setdefault(frame, set()).add((table.number, page))
            elif frame:
                holders[frame] += 1
    holders.update(int(frame) for leftover in memory.leftovers for frame in leftover.frames)
    _expect(pools.frames.readers() == readers, f"readers {pools.frames.readers()} differ from unpinned pages {readers}")
    live = set(holders) | set(readers) | {frame for _, frame in pools.frames.copies.items()}
    _expect(len(live) <= pools.frames.num_live, f"{len(live)} frames are in use, {pools.frames.num_live} are handed out")
    for frame in range(1, len(pools.frames.holders)):
        counted, believed = holders[frame], int(pools.frames.holders[frame])
        if frame in live or counted:
            _expect(counted == believed, f"frame {frame}: {counted} holders, {believed} are noted")
    frame_of = pools.frames.frame_of_blocks()
    for frame in live:
        blocks = pools.frames.blocks[frame]
        _expect(
            bool((frame_of[blocks] == frame).all()),
            f"frame {frame}: blocks {blocks.tolist()} belong to {frame_of[blocks].tolist()}",
        )
    for name, frame in pools.frames.copies.items():
        _expect(pools.host.index.find(name) is not None or holders[frame] >= 0, f"copy in frame {frame} has no name")


def _check_transfers(memory: HiSparseMemory) -> None:
    pending = {(transfer.table, transfer.page) for transfer in memory.transfers.pending.values()}
    for table in memory.pools.tables.values():
        pages = {page for of, page in pending if of is table}
        found = set(table.pages_in(PageState.PENDING).tolist())
        _expect(pages == found, f"{table.request_id}: transfers of pages {sorted(pages)}, pending are {sorted(found)}")


def _check_blocks(memory: HiSparseMemory) -> None:
    pools, transfers = memory.pools, memory.transfers.pending.values()
    host: Counter[int] = Counter(transfer.host_block for transfer in transfers)
    device: Counter[int] = Counter()
    for table in pools.tables.values():
        host.update(table.host.tolist())
        device.update(table.indexer.tolist())
        device.update([] if table.hot is None else table.hot.ravel().tolist())
    for leftover in memory.leftovers:
        host.update(leftover.host.tolist())
        device.update(leftover.indexer.tolist())
        device.update(leftover.hot.tolist())
    detached = {transfer.table for transfer in transfers if transfer.table.leased_host is not None}
    for table in detached:
        assert table.leased_host is not None
        host.update(table.leased_host.tolist())
    held = pools.frames.blocks[np.flatnonzero(pools.frames.holders)].ravel().tolist()
    device.update(held)
    _check_pool(pools.host, held=host)
    _check_pool(pools.device, held=device)


def _check_totals(memory: HiSparseMemory) -> None:
    totals, tables = memory.totals, memory.pools.tables.values()
    recounted = ResidencyCounts()
    for table in tables:
        for state in PageState:
            recounted.pages[state] += int(np.count_nonzero(table.states == state))
        on_both = int(np.count_nonzero((table.states == PageState.HOST_ONLY) | (table.states == PageState.DIRTY)))
        if table.frames.all():
            recounted.requests[ResidencyClass.FULL] += 1
        elif on_both == table.num_pages:
            recounted.requests[ResidencyClass.NONE] += 1
        else:
            recounted.requests[ResidencyClass.MIXED] += 1
        recounted.hot_regions += table.can_read_host
    for field in ("pages", "requests", "hot_regions"):
        believed, counted = getattr(totals, field), getattr(recounted, field)
        _expect(believed == counted, f"{field}: {believed} are noted, {counted} counted")


def _check_pool(pool: BlockPool, *, held: Counter[int]) -> None:
    free = pool.queue.in_order().tolist()
    _expect(len(free) == len(set(free)) == pool.num_free, f"{pool.name} pool: {len(free)} free blocks, {pool.num_free} are noted")
    _expect(0 not in held and 0 not in free, f"{pool.name} pool: the null block is in use")
    is_free = np.zeros(pool.num_blocks, dtype=np.bool_)
    is_free[free] = True
    for block in range(1, pool.num_blocks):
        holders = int(pool.holders[block])
        _expect(holders == held[block], f"{pool.name} block {block}: {held[block]} holders, {holders} are noted")
        _expect(bool(is_free[block]) == (holders == 0), f"{pool.name} block {block}: {holders} holders, free: {is_free[block]}")
    cached = sum(bool(is_free[block]) for block in pool.index.named_blocks())
    _expect(cached == pool.num_cached, f"{pool.name} pool: {cached} free blocks have a name, {pool.num_cached} are noted")
    for block, name in pool.index.named_blocks().items():
        _expect(pool.is_named(block), f"{pool.name} block {block} is in the index without a mark")
        _expect(pool.index.find(name) is not None, f"{pool.name} block {block}: its name finds nothing")


def _expect(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not condition:
        raise IntegrityError(message)
