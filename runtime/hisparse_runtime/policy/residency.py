"""The residency coordinator: the hybrid rule over three pools.

Pages stay on the device until there is pressure. Every sealed page is copied to the host ahead of it, so that under pressure a
request takes a hot region and gives its pages back without any copy; the pool then hands them out one by one.
Semantics follow vLLM 0.33 (vllm/v1/hisparse/coordinator.py), with one resident and one hot group and synchronous steps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hisparse_runtime.policy.block_pool import BlockPool
from hisparse_runtime.policy.limits import TAIL_PAGES, Limits
from hisparse_runtime.policy.page_table import PageState, PageTable
from hisparse_runtime.policy.prefix import PrefixIndex
from hisparse_runtime.policy.transfers import CopyDirection, IndexerCopy, WriteBack


@dataclass(slots=True)
class _Leaving:
    """A finished request whose last copies are not acknowledged yet: it holds its blocks until they are."""

    table: PageTable
    page_hashes: Sequence[bytes]


class Residency:
    """All decisions about blocks. One caller, between steps; a step is: acknowledge, (admit | relieve, grow, seal)*, take_*."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.tables: dict[str, PageTable] = {}
        self.leaving: dict[str, _Leaving] = {}
        self.device = BlockPool(name="device", num_blocks=limits.num_device_blocks, on_reuse=self._lose_page)
        self.host_index = PrefixIndex()
        self.host = BlockPool(name="host", num_blocks=limits.num_host_blocks, on_reuse=self.host_index.forget)
        self.offload_index = PrefixIndex()
        self.offload = BlockPool(name="offload", num_blocks=max(limits.num_offload_blocks, 1), on_reuse=self.offload_index.forget)
        self.readers: dict[int, tuple[str, int]] = {}  # unpinned device block -> the request and page that still read it
        self.pending: dict[int, tuple[str, int]] = {}  # transfer -> request and page
        self.wanted_blocks = 0  # what the first waiting request was refused for: pressure, like any other
        self._next_transfer = 0
        self._next_grant = 0
        self._indexer_copies: list[IndexerCopy] = []
        self._write_backs: list[WriteBack] = []
        self._fresh_host_blocks: list[int] = []

    def admit(self, *, request_id: str, num_tokens: int, page_hashes: Sequence[bytes]) -> bool:
        """Takes in a request of `num_tokens` tokens with the longest prefix that the host pool and the offload tier both hold.

        False if it does not fit now. At least the last token is left to compute, as its logits are needed.
        """
        hits = self._longest_prefix(page_hashes[: (num_tokens - 1) // self.limits.page_tokens])
        pages = self.limits.pages(num_tokens)
        resident = pages - len(hits)
        fits_resident = self.device.num_free >= pages + resident + self.limits.watermark_blocks
        needs_hot = bool(hits) or (resident > self.limits.window_pages and not fits_resident)
        hot_blocks = self.limits.hot_blocks if needs_hot else 0
        device_blocks = pages + min(resident, self.limits.window_pages) + hot_blocks
        idle_hits = sum(self.host.references(block) == 0 for block, _ in hits)
        if self.host.num_free - idle_hits < resident:
            return False
        if self.device.num_free < device_blocks:
            self.wanted_blocks = device_blocks
            return False
        self.wanted_blocks = 0
        table = PageTable()
        self.tables[request_id] = table
        for (host_block, offload_block), indexer_block in zip(hits, self.device.take(len(hits)), strict=True):
            self.host.retain(host_block)
            self.offload.touch(offload_block)
            table.append_hit(host=host_block, indexer=indexer_block)
            self._indexer_copies.append(
                IndexerCopy(direction=CopyDirection.LOAD, device_block=indexer_block, offload_block=offload_block)
            )
        if needs_hot:
            self._grant_hot(table)
        return True

    def relieve(self, *, request_id: str, num_tokens: int) -> None:
        """The hybrid rule for one running request: under pressure take a hot region, and with one give clean pages back.

        Looks ahead to the end of the known tokens and one page more, so that the region is taken while it still fits.
        """
        table = self.tables[request_id]
        if not table.can_read_host:
            pages = self.limits.pages(num_tokens)
            ahead_blocks = 2 * (pages - table.num_pages + 1)
            has_pressure = self.device.num_free - ahead_blocks - self.wanted_blocks < self.limits.watermark_blocks
            # A region larger than all that could be given back would make things worse.
            gains = pages - TAIL_PAGES > self.limits.hot_blocks
            if has_pressure and gains and self.device.num_free >= self.limits.hot_blocks:
                self._grant_hot(table)
        if table.can_read_host:
            self._unpin_clean_pages(request_id, table)

    def grow(self, *, request_id: str, num_tokens: int) -> bool:
        """Gives the request every page that `num_tokens` tokens need, each with its host block. All or nothing."""
        table = self.tables[request_id]
        count = self.limits.pages(num_tokens) - table.num_pages
        if count <= 0:
            return True
        if self.host.num_free < count or self.device.num_free < 2 * count:
            return False
        host_blocks = self.host.take(count)
        self._fresh_host_blocks.extend(host_blocks)
        device_blocks = self.device.take(2 * count)
        for position, host_block in enumerate(host_blocks):
            table.append(host=host_block, resident=device_blocks[2 * position], indexer=device_blocks[2 * position + 1])
        return True

    def seal(self, *, request_id: str, num_computed_tokens: int) -> None:
        """Plans the copy to the host of every page that the coming forward pass fills."""
        table = self.tables[request_id]
        for page in range(table.num_sealed, num_computed_tokens // self.limits.page_tokens):
            table.advance(page)
            self._write_backs.append(
                WriteBack(transfer_id=self._next_transfer, device_block=table.resident[page], host_block=table.host[page])
            )
            self.pending[self._next_transfer] = (request_id, page)
            self._next_transfer += 1
            table.num_sealed = page + 1

    def acknowledge(self, transfer_ids: Iterable[int]) -> None:
        """The host copies are complete."""
        for transfer_id in transfer_ids:
            request_id, page = self.pending.pop(transfer_id)
            self._table(request_id).advance(page)
        for request_id, leaving in list(self.leaving.items()):
            if leaving.table.count(PageState.PENDING) == 0:
                del self.leaving[request_id]
                self._give_back(leaving.table, leaving.page_hashes)

    def release(self, *, request_id: str, page_hashes: Sequence[bytes]) -> None:
        """The request ends or is preempted: its complete pages stay findable, its blocks are free once no copy is under way."""
        table = self.tables.pop(request_id)
        if table.count(PageState.PENDING):
            self.leaving[request_id] = _Leaving(table=table, page_hashes=page_hashes)
        else:
            self._give_back(table, page_hashes)

    def take_indexer_copies(self) -> tuple[IndexerCopy, ...]:
        copies, self._indexer_copies = tuple(self._indexer_copies), []
        return copies

    def take_write_backs(self) -> tuple[WriteBack, ...]:
        write_backs, self._write_backs = tuple(self._write_backs), []
        return write_backs

    def take_fresh_host_blocks(self) -> tuple[int, ...]:
        """Host blocks handed out since the last call: hot rows that name them are stale."""
        blocks, self._fresh_host_blocks = tuple(self._fresh_host_blocks), []
        return blocks

    @property
    def has_unfinished_transfers(self) -> bool:
        return bool(self.pending or self._indexer_copies)

    def _longest_prefix(self, page_hashes: Sequence[bytes]) -> list[tuple[int, int]]:
        hits = []
        for page_hash in page_hashes:
            host_block, offload_block = self.host_index.find(page_hash), self.offload_index.find(page_hash)
            if host_block is None or offload_block is None:
                break
            hits.append((host_block, offload_block))
        return hits

    def _grant_hot(self, table: PageTable) -> None:
        table.hot = tuple(self.device.take(self.limits.hot_blocks))
        table.hot_grant = self._next_grant
        self._next_grant += 1

    def _unpin_clean_pages(self, request_id: str, table: PageTable) -> None:
        # Later pages first: the pool then takes them before the head of the context.
        for page in sorted((page for page in table.clean if page < table.num_pages - TAIL_PAGES), reverse=True):
            block = table.resident[page]
            table.advance(page)
            self.readers[block] = (request_id, page)
            self.device.release(block, keep=True)

    def _lose_page(self, block: int) -> None:
        request_id, page = self.readers.pop(block)
        self._table(request_id).advance(page)

    def _table(self, request_id: str) -> PageTable:
        return self.tables[request_id] if request_id in self.tables else self.leaving[request_id].table

    def _give_back(self, table: PageTable, page_hashes: Sequence[bytes]) -> None:
        """Publishes the complete prefix and frees the rest. From the last page to the first, so that the tail of a prefix, of no
        use without its head, is dropped first."""
        for page in reversed(range(table.num_pages)):
            if page < table.num_sealed:
                self._store_indexer(page_hashes[page], table.indexer[page])
                keep = self.host_index.publish(page_hashes[page], table.host[page])
            else:
                keep = False
            self.host.release(table.host[page], keep=keep)
            self.device.release(table.indexer[page])
            block = table.resident[page]
            if table.states[page] is PageState.UNPINNED:
                del self.readers[block]
                self.device.drop(block)
            elif table.states[page] is not PageState.HOST_ONLY:
                self.device.release(block)
        for block in table.hot:
            self.device.release(block)

    def _store_indexer(self, page_hash: bytes, device_block: int) -> None:
        known = self.offload_index.find(page_hash)
        if known is not None:
            self.offload.touch(known)
        elif self.offload.num_free:
            offload_block = self.offload.take(1)[0]
            self._indexer_copies.append(
                IndexerCopy(direction=CopyDirection.STORE, device_block=device_block, offload_block=offload_block)
            )
            self.offload_index.publish(page_hash, offload_block)
            self.offload.release(offload_block, keep=True)
