"""Recounts every block and reference from the page tables. For tests, after every step."""

from collections import Counter

from hisparse_runtime.policy.block_pool import BlockPool
from hisparse_runtime.policy.limits import TAIL_PAGES
from hisparse_runtime.policy.page_table import PageState, PageTable
from hisparse_runtime.policy.residency import Residency


class IntegrityError(AssertionError):
    """A recount differs from what the policy believes."""


def check_integrity(residency: Residency) -> None:
    """Raises IntegrityError naming the first block or page that is not accounted for."""
    tables = dict(residency.tables) | {request_id: leaving.table for request_id, leaving in residency.leaving.items()}
    device: Counter[int] = Counter()
    host: Counter[int] = Counter()
    unpinned: dict[int, tuple[str, int]] = {}
    pending = set()
    for request_id, table in tables.items():
        _check_table(request_id, table, residency)
        host.update(table.host)
        device.update(table.indexer)
        device.update(table.hot)
        for page, state in enumerate(table.states):
            if state is PageState.UNPINNED:
                _expect(
                    unpinned.setdefault(table.resident[page], (request_id, page)) == (request_id, page),
                    f"block of page {page} has two readers",
                )
            elif state is not PageState.HOST_ONLY:
                device[table.resident[page]] += 1
            if state is PageState.PENDING:
                pending.add((request_id, page))
    _expect(all(count == 1 for count in device.values()), f"a device block has two uses: {device.most_common(1)}")
    _expect(residency.readers == unpinned, f"readers {residency.readers} differ from unpinned pages {unpinned}")
    _expect(set(residency.pending.values()) == pending, f"transfers {residency.pending} differ from pending pages {pending}")
    _check_pool(residency.device, held=device, kept=set(unpinned))
    _check_pool(residency.host, held=host, kept={block for block in residency.host_index.blocks() if block not in host})
    _check_pool(residency.offload, held=Counter(), kept=residency.offload_index.blocks())


def _check_table(request_id: str, table: PageTable, residency: Residency) -> None:
    for state in PageState:
        counted = sum(held is state for held in table.states)
        _expect(
            counted == table.count(state),
            f"{request_id}: {counted} pages are {state.name}, the counter says {table.count(state)}",
        )
    for page, state in enumerate(table.states):
        where = f"{request_id} page {page} ({state.name})"
        _expect((table.resident[page] == 0) is (state is PageState.HOST_ONLY), f"{where}: resident block {table.resident[page]}")
        _expect((state is PageState.DIRTY) is (page >= table.num_sealed), f"{where}: {table.num_sealed} pages are sealed")
        _expect((state is PageState.CLEAN_PINNED) is (page in table.clean), f"{where}: the clean set says otherwise")
        if state in (PageState.UNPINNED, PageState.HOST_ONLY):
            _expect(table.can_read_host, f"{where}: the request has no hot region to read the host through")
        if state is PageState.UNPINNED:
            _expect(page < table.num_pages - TAIL_PAGES, f"{where}: one of the last {TAIL_PAGES} pages")
    _expect(
        len(table.hot) == (residency.limits.hot_blocks if table.can_read_host else 0), f"{request_id}: a part of a hot region"
    )


def _check_pool(pool: BlockPool, *, held: Counter[int], kept: set[int]) -> None:
    free = set(pool.free_blocks())
    _expect(0 not in held and 0 not in free, f"{pool.name} pool: the null block is in use")
    for block in range(1, pool.num_blocks):
        _expect(
            pool.references(block) == held[block],
            f"{pool.name} block {block}: {held[block]} holders, {pool.references(block)} references",
        )
        _expect((block in free) is (held[block] == 0), f"{pool.name} block {block}: {held[block]} holders, free: {block in free}")
        _expect(
            pool.is_kept(block) is (block in kept),
            f"{pool.name} block {block}: kept {pool.is_kept(block)}, expected {block in kept}",
        )


def _expect(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not condition:
        raise IntegrityError(message)
