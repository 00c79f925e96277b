"""Hybrid HiSparse: pages live on the device as a write-back cache of the host pool."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from hisparse_runtime.policy.allocation import (
    Leftover,
    Need,
    PrefixHit,
    admission_need,
    close,
    extend,
    find_hit,
    give_back,
    growth_need,
    open_with_hit,
)
from hisparse_runtime.policy.free_queue import Blocks
from hisparse_runtime.policy.memory import Admission, Refusal
from hisparse_runtime.policy.offload import OffloadJob, OffloadTier
from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.pools import Pools
from hisparse_runtime.policy.prefix import PageNames
from hisparse_runtime.policy.publication import publish
from hisparse_runtime.policy.residency import finish_import, materialise, update
from hisparse_runtime.policy.settings import PolicySettings
from hisparse_runtime.policy.step_changes import PageTransfer, StepChanges, TableChange
from hisparse_runtime.policy.telemetry import HOST_ONLY, ResidencyCounts
from hisparse_runtime.policy.transfers import Transfers

_NONE = np.empty(0, dtype=np.int32)


class HiSparseMemory:
    """A MemoryPolicy. Semantics follow vLLM 0.33 (vllm/v1/hisparse/coordinator.py and the HiSparse managers in v1/core)."""

    reads_free_blocks = True

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self.pools = Pools(settings)
        self.transfers = Transfers(self.pools)
        self.tier = (
            OffloadTier(
                num_slots=settings.num_offload_blocks,
                page_tokens=settings.page_tokens,
                is_newest=settings.is_newest,
            )
            if settings.num_offload_blocks
            else None
        )
        self.leftovers: list[Leftover] = []  # closed but not given back, for checks
        self._allocated: list[Blocks] = []  # of requests that got memory since the step before, for the tier

    @property
    def totals(self) -> ResidencyCounts:
        return self.pools.totals

    @property
    def managers_per_request(self) -> int:
        return 2 + 2 * self.settings.num_groups

    @property
    def will_free_blocks(self) -> bool:
        return self.transfers.will_free_blocks()

    @property
    def has_transfers(self) -> bool:
        return bool(self.transfers.pending) or (self.tier is not None and self.tier.has_jobs)

    def find_hit(self, names: PageNames, *, num_tokens: int) -> PrefixHit:
        return find_hit(self.pools, names, num_tokens=num_tokens)

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
            max_pages=len(hit.host),
        )
        return None if pages is None else pages * self.settings.page_tokens

    def start_load(self, request_id: str) -> None:
        assert self.tier is not None
        table = self.pools.tables[request_id]
        self.tier.load(request_id, table.indexer)
        self._note_allocated(table, is_load=True)

    def admit(self, admission: Admission) -> Refusal | None:
        found, imported = admission.hit, admission.imported_tokens
        hit = replace(found, host=found.host[: self.settings.pages(found.tokens + imported)])
        full = admission_need(self.pools, hit, num_tokens=admission.full_tokens, imported_tokens=imported, is_window_capped=True)
        now = admission_need(self.pools, hit, num_tokens=admission.num_tokens, imported_tokens=imported, is_window_capped=False)
        refusal = self._refuse(full) or self._refuse(now, reserved_blocks=admission.reserved_blocks)
        if refusal is not None:
            return self._defer(refusal)
        table = open_with_hit(self.pools, admission.request_id, admission.names, hit, imported_tokens=imported)
        extend(self.pools, [(table, admission.num_tokens)])
        if admission.is_load:
            assert self.tier is not None
            num_pages = imported // self.settings.page_tokens
            self.tier.reserve(admission.request_id, first_page=len(hit.indexer), num_pages=num_pages)
        else:
            self._note_allocated(table)
        return None

    def resume(self, request_id: str, *, num_tokens: int, full_tokens: int) -> Refusal | None:
        table = self.pools.tables[request_id]
        full = growth_need(self.pools, table, num_tokens=full_tokens, is_window_capped=True)
        refusal = self._refuse(full) or self._refuse(growth_need(self.pools, table, num_tokens=num_tokens))
        if refusal is not None:
            return self._defer(refusal)
        extend(self.pools, [(table, num_tokens)])
        self._note_allocated(table)
        return None

    def grow(self, wanted: Sequence[tuple[str, int]]) -> bool:
        tables, page_tokens = self.pools.tables, self.settings.page_tokens
        growths = []
        for request_id, num_tokens in wanted:
            table = tables[request_id]
            if num_tokens > table.num_pages * page_tokens or (table.hot_required and table.hot is None):
                growths.append((table, num_tokens))
        if not growths:
            return True
        needs = [growth_need(self.pools, table, num_tokens=num_tokens) for table, num_tokens in growths]
        if self._refuse(Need(sum(need.device for need in needs), sum(need.host for need in needs))) is not None:
            return False
        extend(self.pools, growths)
        return True

    def publish(self, wanted: Sequence[tuple[str, int]]) -> None:
        if self.settings.caches_prefixes:
            tables = self.pools.tables
            publish(self.pools, [(tables[request_id], num_tokens) for request_id, num_tokens in wanted])

    def note_finished(self, request_id: str, *, num_tokens: int) -> None:
        if self.tier is not None:
            table = self.pools.tables.get(request_id)
            blocks = _NONE if table is None else table.indexer[: table.num_synced].copy()
            self.tier.note_finished(request_id, blocks, num_tokens=num_tokens)

    def close(self, request_id: str, *, has_finished: bool) -> Leftover | None:
        table = self.pools.tables.get(request_id)
        if table is None:
            return None
        if self.tier is not None and not has_finished:
            self.tier.note_preempted(request_id)
        leftover = close(self.pools, table, has_finished=has_finished)
        self.leftovers.append(leftover)
        return leftover

    def give_back(self, leftover: Leftover) -> None:
        self.leftovers.remove(leftover)
        give_back(self.pools, leftover)

    def finish_import(self, request_id: str) -> None:
        finish_import(self.pools, self.transfers, self.pools.tables[request_id])

    def acknowledge(self, transfer_ids: Iterable[int]) -> None:
        self.transfers.acknowledge(transfer_ids)

    def admitted_need(self, request_id: str, *, num_tokens: int) -> int:
        need = growth_need(self.pools, self.pools.tables[request_id], num_tokens=num_tokens, is_window_capped=True)
        return need.device

    def acknowledge_jobs(self, job_ids: Iterable[int]) -> list[str]:
        return self.tier.acknowledge(job_ids) if self.tier is not None else []

    def take_changes(self, batch: Sequence[tuple[str, int]]) -> StepChanges:
        tables = [self.pools.tables[request_id] for request_id, _ in batch]
        page_tokens = self.settings.page_tokens
        for table, (_, num_tokens) in zip(tables, batch, strict=True):
            num_full = num_tokens // page_tokens
            if num_full > table.num_planned or table.passed_over:
                materialise(self.pools, self.transfers, table, num_full=num_full)
        update(self.pools, tables)
        changes = self._take_table_changes(tables)
        fresh = [change.host for change in changes.values()]
        jobs, flushed = self._plan_jobs(tables, batch, changes)
        return StepChanges(
            tables=changes,
            transfers=self._take_page_transfers(),
            fresh_host_blocks=np.concatenate(fresh) if fresh else _NONE,
            is_all_resident=not any(table.counts[HOST_ONLY] for table in tables),
            jobs=jobs,
            flushed_jobs=flushed,
        )

    def _plan_jobs(
        self, tables: list[PageTable], batch: Sequence[tuple[str, int]], changes: dict[str, TableChange]
    ) -> tuple[list[OffloadJob], list[int]]:
        if self.tier is None:
            return [], []
        allocated, self._allocated = self._allocated, []
        return self.tier.plan_jobs(
            ((request_id, table.indexer, num_tokens) for table, (request_id, num_tokens) in zip(tables, batch, strict=True)),
            allocated=[*allocated, *(change.indexer for change in changes.values())],
        )

    def _note_allocated(self, table: PageTable, *, is_load: bool = False) -> None:
        """Blocks that a store of the tier must not read any more. vLLM 0.33 takes those of all pools for the device's."""
        if self.tier is None or not (is_load or self.settings.is_newest):
            return
        self._allocated.append(table.indexer.copy())
        if self.settings.is_newest:
            hot = _NONE if table.hot is None else table.hot.ravel()
            self._allocated += (table.host.copy(), self.pools.frames.blocks[table.frames].ravel(), hot)

    def _take_table_changes(self, batch: list[PageTable]) -> dict[str, TableChange]:
        tables = [table for table in batch if table.has_changed]
        starts = [table.num_synced for table in tables]
        moved = [table.take_moved() for table in tables]
        frames = [frame for table, pages in zip(tables, moved, strict=True) for frame in table.frames_of(pages)]
        all_pages = np.array([*chain.from_iterable(moved)], dtype=np.int32)
        all_blocks = self.pools.frames.blocks[np.array(frames, dtype=np.int32)]
        changes = {}
        at = 0
        for table, start, pages in zip(tables, starts, moved, strict=True):
            end = at + len(pages)
            hot = table.hot if table.hot_grant != table.synced_hot_grant else None
            table.synced_hot_grant = table.hot_grant
            changes[table.request_id] = TableChange(
                start, table.host[start:], table.indexer[start:], all_pages[at:end], all_blocks[at:end].T, hot
            )
            at = end
        return changes

    def _take_page_transfers(self) -> list[PageTransfer]:
        blocks = self.pools.frames.blocks
        return [
            PageTransfer(number, table.request_id, page, blocks[frame], host_block, is_restore)
            for number, table, page, frame, host_block, is_restore in self.transfers.take_to_send()
        ]

    def _refuse(self, need: Need, *, reserved_blocks: int = 0) -> Refusal | None:
        if need.host > self.pools.host.num_free:
            return Refusal.HOST
        return Refusal.DEVICE if need.device > self.pools.device.num_free - reserved_blocks else None

    def _defer(self, refusal: Refusal) -> Refusal:
        if refusal is Refusal.HOST:
            self.totals.deferred_by_host += 1
        else:
            self.totals.deferred_by_device += 1
        return refusal
