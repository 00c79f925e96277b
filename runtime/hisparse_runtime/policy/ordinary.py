"""Memory without HiSparse: a request runs with all of its pages on the device, or not at all.

Mode `preempt` has the device pool only; mode `offload` has a tier behind it, from which prefix hits are copied back before the
request runs. A page is one block here, latents and indexer keys together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hisparse_runtime.policy.allocation import NO_HIT, Leftover, PrefixHit
from hisparse_runtime.policy.block_pool import BlockPool
from hisparse_runtime.policy.free_queue import Blocks
from hisparse_runtime.policy.memory import Admission, Refusal
from hisparse_runtime.policy.offload import OffloadJob, OffloadTier
from hisparse_runtime.policy.prefix import PageNames
from hisparse_runtime.policy.settings import PolicySettings
from hisparse_runtime.policy.step_changes import StepChanges, TableChange
from hisparse_runtime.policy.telemetry import DIRTY, ResidencyClass, ResidencyCounts

_NONE = np.empty(0, dtype=np.int32)


@dataclass(slots=True, kw_only=True)
class BlockTable:
    """`blocks` is longer than the request and used up to `num_pages`."""

    names: PageNames
    blocks: Blocks
    num_pages: int
    num_published: int
    num_synced: int = 0

    def append(self, blocks: Blocks) -> None:
        end = self.num_pages + len(blocks)
        if end > len(self.blocks):
            grown = np.zeros(max(end, 2 * len(self.blocks)), dtype=np.int32)
            grown[: self.num_pages] = self.blocks[: self.num_pages]
            self.blocks = grown
        self.blocks[self.num_pages : end] = blocks
        self.num_pages = end


class OrdinaryMemory:
    """A MemoryPolicy. Semantics follow vLLM 0.33 with one cache group (v1/core/kv_cache_manager.py)."""

    managers_per_request = 1
    will_free_blocks = False
    reads_free_blocks = False

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self.device = BlockPool(name="device", num_blocks=settings.num_device_blocks)
        self.tier = (
            OffloadTier(
                num_slots=settings.num_offload_blocks,
                page_tokens=settings.page_tokens,
                is_newest=settings.is_newest,
            )
            if settings.num_offload_blocks
            else None
        )
        self.tables: dict[str, BlockTable] = {}
        self.leftovers: list[Leftover] = []  # closed but not given back, for checks
        self.totals = ResidencyCounts()
        self._allocated: list[Blocks] = []  # of requests that got memory since the step before, for the tier

    @property
    def has_transfers(self) -> bool:
        return self.tier is not None and self.tier.has_jobs

    def find_hit(self, names: PageNames, *, num_tokens: int) -> PrefixHit:
        settings = self.settings
        if not settings.caches_prefixes:
            return NO_HIT
        found = self.device.find(names, max_pages=(num_tokens - 1) // settings.page_tokens)
        found = found[: len(found) - settings.drops_last_hit_page] if len(found) else found
        return PrefixHit(_NONE, found, len(found) * settings.page_tokens)

    def find_stored(
        self, request_id: str, names: PageNames, hit: PrefixHit, *, num_tokens: int, num_prompt_tokens: int
    ) -> int | None:
        if self.tier is None:
            return 0
        pages = self.tier.find(
            request_id,
            names,
            num_prompt_tokens=num_prompt_tokens,
            first_page=len(hit.indexer),
            num_tokens=num_tokens,
            max_pages=None,
        )
        return None if pages is None else pages * self.settings.page_tokens

    def start_load(self, request_id: str) -> None:
        assert self.tier is not None
        table = self.tables[request_id]
        self.tier.load(request_id, table.blocks)
        self._note_allocated(table, is_load=True)

    def admit(self, admission: Admission) -> Refusal | None:
        hit = admission.hit
        kept = len(hit.indexer) - self.device.count_free(hit.indexer)
        full, now = self.settings.pages(admission.full_tokens) - kept, self.settings.pages(admission.num_tokens) - kept
        if full > self.device.num_free or now > self.device.num_free - admission.reserved_blocks:
            self.totals.deferred_by_device += 1
            return Refusal.DEVICE
        self.device.hold(hit.indexer)
        table = BlockTable(
            names=admission.names,
            blocks=hit.indexer.copy(),
            num_pages=len(hit.indexer),
            num_published=len(hit.indexer),
        )
        self.tables[admission.request_id] = table
        table.append(self.device.take(self.settings.pages(admission.num_tokens) - len(hit.indexer)))
        if admission.is_load:
            assert self.tier is not None
            num_pages = admission.imported_tokens // self.settings.page_tokens
            self.tier.reserve(admission.request_id, first_page=len(hit.indexer), num_pages=num_pages)
        else:
            self._note_allocated(table)
        self._count(table.num_pages, requests=1)
        return None

    def resume(self, request_id: str, *, num_tokens: int, full_tokens: int) -> Refusal | None:
        if self.settings.pages(full_tokens) - self.tables[request_id].num_pages > self.device.num_free:
            self.totals.deferred_by_device += 1
            return Refusal.DEVICE
        if not self.grow([(request_id, num_tokens)]):
            return Refusal.DEVICE
        self._note_allocated(self.tables[request_id])
        return None

    def grow(self, wanted: Sequence[tuple[str, int]]) -> bool:
        tables, pages = self.tables, self.settings.pages
        new = [pages(num_tokens) - tables[request_id].num_pages for request_id, num_tokens in wanted]
        if sum(count for count in new if count > 0) > self.device.num_free:
            return False
        for (request_id, _), count in zip(wanted, new, strict=True):
            if count > 0:
                tables[request_id].append(self.device.take(count))
                self._count(count)
        return True

    def publish(self, wanted: Sequence[tuple[str, int]]) -> None:
        if not self.settings.caches_prefixes:
            return
        names: list[bytes] = []
        blocks: list[int] = []
        for request_id, num_tokens in wanted:
            table = self.tables[request_id]
            start, pages = table.num_published, num_tokens // self.settings.page_tokens
            if pages > start:
                table.num_published = pages
                names += table.names.between(start, pages)
                blocks += table.blocks[start:pages].tolist()
        if blocks:
            self.device.publish(names, blocks)

    def note_finished(self, request_id: str, *, num_tokens: int) -> None:
        if self.tier is not None:
            table = self.tables.get(request_id)
            blocks = _NONE if table is None else table.blocks[: table.num_synced].copy()
            self.tier.note_finished(request_id, blocks, num_tokens=num_tokens)

    def close(self, request_id: str, *, has_finished: bool) -> Leftover | None:
        table = self.tables.pop(request_id, None)
        if table is None:
            return None
        if self.tier is not None and not has_finished:
            self.tier.note_preempted(request_id)
        self._count(-table.num_pages, requests=-1)
        leftover = Leftover(host=_NONE, indexer=table.blocks[: table.num_pages], frames=_NONE, hot=_NONE)
        self.leftovers.append(leftover)
        return leftover

    def give_back(self, leftover: Leftover) -> None:
        """Tail first, so that a prefix loses its tail before its head."""
        self.leftovers.remove(leftover)
        self.device.release(leftover.indexer[::-1])

    def take_changes(self, batch: Sequence[tuple[str, int]]) -> StepChanges:
        tables = {}
        for request_id, _ in batch:
            table = self.tables[request_id]
            start, end = table.num_synced, table.num_pages
            if start < end:
                new = table.blocks[start:end].copy()
                tables[request_id] = TableChange(start, _NONE, new, np.arange(start, end, dtype=np.int32), new[None], None)
                table.num_synced = end
        jobs, flushed = self._plan_jobs(batch, tables)
        return StepChanges(
            tables=tables, transfers=[], fresh_host_blocks=_NONE, is_all_resident=True, jobs=jobs, flushed_jobs=flushed
        )

    def _plan_jobs(self, batch: Sequence[tuple[str, int]], changes: dict[str, TableChange]) -> tuple[list[OffloadJob], list[int]]:
        if self.tier is None:
            return [], []
        allocated, self._allocated = self._allocated, []
        tables = [(request_id, self.tables[request_id], num_tokens) for request_id, num_tokens in batch]
        return self.tier.plan_jobs(
            ((request_id, table.blocks[: table.num_pages], num_tokens) for request_id, table, num_tokens in tables),
            allocated=[*allocated, *(change.indexer for change in changes.values())],
        )

    def _note_allocated(self, table: BlockTable, *, is_load: bool = False) -> None:
        if self.tier is not None and (is_load or self.settings.is_newest):
            self._allocated.append(table.blocks[: table.num_pages].copy())

    def finish_import(self, request_id: str) -> None:
        """The pages are where they are read."""

    def acknowledge(self, transfer_ids: Iterable[int]) -> None:
        assert not list(transfer_ids), "there are no transfers to acknowledge"

    def acknowledge_jobs(self, job_ids: Iterable[int]) -> list[str]:
        return self.tier.acknowledge(job_ids) if self.tier is not None else []

    def admitted_need(self, request_id: str, *, num_tokens: int) -> int:
        return max(self.settings.pages(num_tokens) - self.tables[request_id].num_pages, 0)

    def _count(self, pages: int, *, requests: int = 0) -> None:
        self.totals.pages[DIRTY] += pages
        self.totals.requests[ResidencyClass.FULL] += requests
