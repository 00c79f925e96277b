"""Copies of pages between device and host that the executor has not acknowledged yet."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from hisparse_runtime.policy.frames import Numbers
from hisparse_runtime.policy.free_queue import Blocks
from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.pools import Pools
from hisparse_runtime.policy.publication import publish_detached, publish_ready
from hisparse_runtime.policy.telemetry import CLEAN_PINNED, DIRTY, PENDING, UNPINNED


class Transfer(NamedTuple):
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
        self._num_held = 0  # of `to_send`

    def plan(self, table: PageTable, pages: list[int], *, is_restore: bool = False) -> None:
        """A transfer for each of `pages`, which are dirty. To be followed by `hold_ends` before anybody gives anything back."""
        host = table.host
        table.move(pages, DIRTY, PENDING)
        for page, frame in zip(pages, table.frames_of(pages), strict=True):
            transfer = Transfer(self._next_id, table, page, frame, host.item(page), is_restore)
            self.pending[self._next_id] = transfer
            self.to_send.append(transfer)
            self._next_id += 1

    def hold_ends(self) -> None:
        """Of all that were planned since, at once. The ends of a write-back are its request's own, so all are different."""
        new, self._num_held = self.to_send[self._num_held :], len(self.to_send)
        if new:
            self._pools.frames.hold(_frames(new), self._pools.device)
            self._pools.host.hold(_host_blocks(new))

    def take_to_send(self) -> list[Transfer]:
        self.hold_ends()
        sent, self.to_send, self._num_held = self.to_send, [], 0
        return sent

    def acknowledge(self, transfer_ids: Iterable[int]) -> None:
        """These copies are complete, wherever their requests are by now."""
        done = [self.pending.pop(transfer_id) for transfer_id in sorted(transfer_ids)]
        if not done:
            return
        self._release_frames(done)
        written = [transfer for transfer in done if transfer.table.is_live and not transfer.is_restore]
        self._pools.totals.written_back_pages += len(written)
        self._pools.host.release(_host_blocks(written))  # which their requests hold, too
        completed: dict[PageTable, None] = {}
        for (table, is_restore), run in groupby(done, key=attrgetter("table", "is_restore")):
            if not table.is_live:
                self._complete_detached(table, run)
                continue
            completed[table] = None
            if is_restore:
                self._complete_restores(table, run)
            else:
                self._complete(table, [transfer.page for transfer in run])
        for table in completed:
            table.advance_ready()
        publish_ready(self._pools, completed)

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
        ended = pools.frames.release(_frames(done))
        if len(ended):
            blocks = pools.frames.blocks[ended].ravel()[::-1]
            pools.frames.end(ended)
            pools.device.release(blocks)

    def _complete(self, table: PageTable, written: list[int]) -> None:
        table.mark_valid(written)
        table.move(written, PENDING, CLEAN_PINNED)
        stop = table.num_pinnable if table.can_read_host else 0
        if min(written) < stop:
            unpin(self._pools, [(table, [page for page in written if page < stop])])

    def _complete_restores(self, table: PageTable, run: Iterable[Transfer]) -> None:
        """A restored page that is not full is dirty: all of its rows are on the host, but more will be written."""
        pools = self._pools
        for transfer in run:
            page = [transfer.page]
            if table.is_valid(transfer.page):
                table.move(page, PENDING, CLEAN_PINNED)
                if table.can_read_host and transfer.page < table.num_pinnable:
                    unpin(pools, [(table, page)])
                name = pools.host.index.name_of(transfer.host_block)
                if name is not None:
                    pools.frames.record_copies([(name, transfer.frame)])
            else:
                table.move(page, PENDING, DIRTY)
            pools.host.release(np.array([transfer.host_block], dtype=np.int32))

    def _complete_detached(self, table: PageTable, run: Iterable[Transfer]) -> None:
        pools = self._pools
        for transfer in run:
            table.move([transfer.page], PENDING, CLEAN_PINNED)
            if table.leased_host is not None:
                if not transfer.is_restore:
                    table.mark_valid([transfer.page])
                if table.counts[PENDING] == 0:
                    publish_detached(pools, table)
            pools.host.release(np.array([transfer.host_block], dtype=np.int32))


def unpin(pools: Pools, given_up: Sequence[tuple[PageTable, list[int]]]) -> None:
    """Gives up the frames of clean pages; their tables read them on until the pool takes them."""
    for table, pages in given_up:
        table.move(pages, CLEAN_PINNED, UNPINNED)
    frames = np.array([frame for table, pages in given_up for frame in table.frames_of(pages)], dtype=np.int32)
    if (pools.frames.holders[frames] > 1).any():
        # Of those who hold a frame together, only the last one to give it up makes it free.
        for table, pages in given_up:
            _unpin_frames(pools, table.frames[pages], [(table, pages)])
    else:
        _unpin_frames(pools, frames, given_up)


def _unpin_frames(pools: Pools, frames: Numbers, given_up: Sequence[tuple[PageTable, list[int]]]) -> None:
    readers = np.array([table.number for table, pages in given_up for _ in pages], dtype=np.int32)
    pages = np.array([page for _, pages in given_up for page in pages], dtype=np.int32)
    pools.frames.unpin(frames, pools.device, readers=readers, pages=pages)


def _frames(transfers: list[Transfer]) -> Numbers:
    return np.array([transfer.frame for transfer in transfers], dtype=np.int32)


def _host_blocks(transfers: list[Transfer]) -> Blocks:
    return np.array([transfer.host_block for transfer in transfers], dtype=np.int32)
