"""Copies of pages between device and host that the executor has not acknowledged yet."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from hisparse_runtime.policy.frames import Numbers
from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.pools import Pools
from hisparse_runtime.policy.publication import publish_detached, publish_ready
from hisparse_runtime.policy.telemetry import CLEAN_PINNED, DIRTY, PENDING, UNPINNED


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """One page, all groups. A write-back runs after the forward pass of its step, a restore before it.

    Both ends are held until the acknowledgement, so neither is handed out under the copy.
    """

    transfer_id: int
    table: PageTable
    page: int
    frame: int
    host_block: int
    is_restore: bool


class Transfers:
    """`pending` in order of issue; `to_send` are those of the step that is being planned."""

    def __init__(self, pools: Pools) -> None:
        self.pending: dict[int, Transfer] = {}
        self.to_send: list[Transfer] = []
        self._pools = pools
        self._next_id = 0

    def plan(self, table: PageTable, pages: Numbers, *, is_restore: bool = False) -> None:
        """Starts a transfer for each of `pages`, which are dirty."""
        pools = self._pools
        frames, host = table.frames[pages], table.host[pages]
        pools.frames.hold(frames, pools.device)
        pools.host.hold(host)
        table.move(pages, DIRTY, PENDING, count=len(pages))
        for page, frame, block in zip(pages.tolist(), frames.tolist(), host.tolist(), strict=True):
            transfer = Transfer(self._next_id, table, page, frame, block, is_restore)
            self.pending[self._next_id] = transfer
            self.to_send.append(transfer)
            self._next_id += 1

    def take_to_send(self) -> list[Transfer]:
        sent, self.to_send = self.to_send, []
        return sent

    def acknowledge(self, transfer_ids: Iterable[int]) -> None:
        """These copies are complete, wherever their requests are by now."""
        done = [self.pending.pop(transfer_id) for transfer_id in sorted(transfer_ids)]
        if not done:
            return
        self._release_frames(done)
        completed: dict[PageTable, None] = {}
        for table, run in groupby(done, key=attrgetter("table")):
            if table.is_live:
                self._complete(table, list(run))
                completed[table] = None
            else:
                self._complete_detached(table, list(run))
        for table in completed:
            table.advance_ready()
            publish_ready(self._pools, table)

    def will_free_blocks(self) -> bool:
        """Whether an acknowledgement that is due will free host blocks, or device blocks of a request that can read the host."""
        pools = self._pools
        for transfer in self.pending.values():
            if pools.host.holders[transfer.host_block] == 1:
                return True
            table = pools.tables.get(transfer.table.request_id)
            if table is not None and table.can_read_host:
                return True
        return False

    def _release_frames(self, done: list[Transfer]) -> None:
        pools = self._pools
        ended = pools.frames.release(np.array([transfer.frame for transfer in done], dtype=np.int32))
        if len(ended):
            blocks = pools.frames.blocks[ended].ravel()[::-1]
            pools.frames.end(ended)
            pools.device.release(blocks)

    def _complete(self, table: PageTable, run: list[Transfer]) -> None:
        pools = self._pools
        pages = np.array([transfer.page for transfer in run], dtype=np.int32)
        restored = [transfer for transfer in run if transfer.is_restore]
        if restored:
            pages = self._complete_restored(table, pages, restored)
        else:
            table.mark_valid(pages)
            pools.totals.written_back_pages += len(pages)
        table.move(pages, PENDING, CLEAN_PINNED, count=len(pages))
        if table.can_read_host:
            unpin(pools, table, pages[pages < table.num_pinnable])
        for transfer in restored:
            name = pools.host.index.name_of(transfer.host_block)
            if table.valid[transfer.page] and name is not None:
                pools.frames.record_copy(name, transfer.frame)
        pools.host.release(np.array([transfer.host_block for transfer in run], dtype=np.int32))

    def _complete_restored(self, table: PageTable, pages: Numbers, restored: list[Transfer]) -> Numbers:
        """Of the acknowledged `pages` those that are clean now. A restored page that is not full is dirty: all of its rows are on
        the host, but more will be written."""
        is_restored = np.isin(pages, [transfer.page for transfer in restored])
        table.mark_valid(pages[~is_restored])
        self._pools.totals.written_back_pages += len(pages) - len(restored)
        partial = pages[is_restored & ~table.valid[pages]]
        table.move(partial, PENDING, DIRTY, count=len(partial))
        clean: Numbers = pages[table.valid[pages]]
        return clean

    def _complete_detached(self, table: PageTable, run: list[Transfer]) -> None:
        pools = self._pools
        for transfer in run:
            table.move(slice(transfer.page, transfer.page + 1), PENDING, CLEAN_PINNED, count=1)
            if table.leased_host is not None:
                if not transfer.is_restore:
                    table.mark_valid(slice(transfer.page, transfer.page + 1))
                if table.counts[PENDING] == 0:
                    publish_detached(pools, table)
            pools.host.release(np.array([transfer.host_block], dtype=np.int32))


def unpin(pools: Pools, table: PageTable, pages: Numbers) -> None:
    """Gives up the frames of clean pages; the table reads them on until the pool takes them."""
    if len(pages):
        table.move(pages, CLEAN_PINNED, UNPINNED, count=len(pages))
        pools.frames.unpin(table.frames[pages], pools.device, reader=table.number, pages=pages)
