"""The offload tier: whole blocks by content on the host, for what attention needs all of (the indexer's keys; without HiSparse,
everything). A page of a prompt is stored once it is computed, and loaded for a prefix hit that the device has lost. Answers are
not stored: a next turn has them in its prompt.

    device block --store job--> slot (being written) --acknowledged--> slot (idle) --load job--> device block
                                                                         | used longest ago: makes room for others

A store reads blocks that its request may have given back already. If a step hands one out again, the job has to end before that
step (`flushed`). Semantics follow the OffloadingConnector of vLLM 0.33 without loads within a step, which it does not do unless
told to (distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hisparse_runtime.policy.free_queue import Blocks
from hisparse_runtime.policy.prefix import PageNames
from hisparse_runtime.policy.tier_slots import Slots, Usage

_NONE = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class OffloadJob:
    """Pages of a request to copy between device blocks and slots of the tier, position by position."""

    job_id: int
    request_id: str
    pages: Sequence[int]
    device_blocks: Blocks
    slots: Blocks
    is_load: bool


@dataclass(slots=True, eq=False)
class _Client:
    """What the tier remembers of a request. `reserved` pages are about to be loaded."""

    request_id: str
    usage: Usage
    num_prompt_tokens: int
    num_stored_pages: int = 0
    is_finished: bool = False
    jobs: set[int] = field(default_factory=set)
    reserved: range = range(0)

    @property
    def names(self) -> PageNames:
        return self.usage.names


@dataclass(frozen=True, slots=True)
class _Ended:
    client: _Client
    blocks: Blocks
    num_tokens: int


class OffloadTier:
    def __init__(self, *, num_slots: int, page_tokens: int, is_newest: bool) -> None:
        """`is_newest`: see Semantics."""
        self.num_slots = num_slots
        self._page_tokens = page_tokens
        self._is_newest = is_newest
        self._slots = Slots(count=num_slots, ranks_by_request=is_newest)
        self._clients: dict[str, _Client] = {}
        self._pending: dict[int, tuple[_Client, OffloadJob]] = {}
        self._loading: set[bytes] = set()
        self._next_id = 0
        self._new_jobs: list[OffloadJob] = []
        self._ended: list[_Ended] = []
        self._preempted: list[_Client] = []
        self._fences: dict[int, set[int]] = {}  # device block of a finished request -> store jobs that read it

    @property
    def num_used(self) -> int:
        """Slots with a page, or about to have one."""
        return len(self._slots)

    @property
    def has_jobs(self) -> bool:
        return bool(self._pending or self._ended)

    def find(
        self,
        request_id: str,
        names: PageNames,
        *,
        num_prompt_tokens: int,
        first_page: int,
        num_tokens: int,
        max_pages: int | None,
    ) -> int | None:
        """Pages behind `first_page` that a load would bring, of a request of `num_tokens` tokens. None: ask again, since they are
        on their way in or out."""
        client = self._clients.get(request_id)
        if client is None:
            client = self._clients[request_id] = _Client(request_id, Usage(names), num_prompt_tokens)
        if self._is_newest:
            client.num_stored_pages = 0  # one that begins again offers all of its pages again
        if client.jobs:
            return None
        last_page = num_tokens // self._page_tokens
        if max_pages is not None:
            last_page = min(last_page, max_pages)
        if last_page <= first_page:
            return 0
        found, is_pending = 0, False
        for page in range(first_page, min(last_page, names.num_full)):
            slot = self._slots.find(names[page])
            if slot is None:
                break
            is_pending |= not slot.is_written
            found += 1
        if is_pending:
            return None
        if any(names[page] in self._loading for page in range(first_page, first_page + found)):
            return None
        return found

    def reserve(self, request_id: str, *, first_page: int, num_pages: int) -> None:
        """Keeps pages that `find` has found until their load starts."""
        client = self._clients[request_id]
        client.reserved = range(first_page, first_page + num_pages)
        for page in client.reserved:
            self._slots.begin_read(client.names[page])

    def load(self, request_id: str, device_blocks: Blocks) -> None:
        """Starts to load what is reserved. The request is not to be run before the job is acknowledged."""
        client = self._clients[request_id]
        pages, client.reserved = client.reserved, range(0)
        client.num_stored_pages = pages.stop
        names = [client.names[page] for page in pages]
        self._loading.update(names)
        self._slots.note_use(client.usage, pages)
        numbers = [self._slots.number_of(name) for name in names]
        self._start(client, pages, device_blocks[pages.start : pages.stop], numbers, is_load=True)

    def note_preempted(self, request_id: str) -> None:
        client = self._clients.get(request_id)
        if client is not None:
            self._preempted.append(client)

    def note_finished(self, request_id: str, blocks: Blocks, *, num_tokens: int) -> None:
        """The request ends with the KV of `num_tokens` tokens in `blocks`, which it gives back: what is not stored will be."""
        client = self._clients.get(request_id)
        if client is None:
            return
        client.is_finished = True
        for page in client.reserved:
            self._slots.end_read(client.names[page])
        client.reserved = range(0)
        self._ended.append(_Ended(client, blocks, num_tokens))
        for job_id in client.jobs:
            job = self._pending[job_id][1]
            if not job.is_load:
                self._fence(job)

    def plan_jobs(
        self, batch: Iterable[tuple[str, Blocks, int]], allocated: Collection[Blocks]
    ) -> tuple[list[OffloadJob], list[int]]:
        """Jobs of the step that is being planned, and those to end before it. `batch`: requests with their blocks and how many of
        their tokens are computed after the step; `allocated`: blocks that it may write to."""
        flushed = {job_id for client in self._preempted for job_id in client.jobs}
        self._preempted = []
        taken = np.concatenate((_NONE, *allocated))
        fenced = np.fromiter(self._fences, dtype=np.int32)
        flushed |= {job_id for block in fenced[_is_in(fenced, taken)].tolist() for job_id in self._fences[block]}
        for request_id, blocks, num_tokens in batch:
            client = self._clients.get(request_id)
            if client is not None:
                self._store(client, blocks, num_tokens)
        ended, self._ended = self._ended, []
        for each in ended:
            job = self._store(each.client, each.blocks, each.num_tokens)
            if job is not None:
                self._fence(job)
                if _is_in(job.device_blocks, taken).any():
                    flushed.add(job.job_id)
        for each in ended:
            self._slots.end_use(each.client.usage)
            if not each.client.jobs:
                del self._clients[each.client.request_id]
        jobs, self._new_jobs = self._new_jobs, []
        return jobs, sorted(flushed)

    def acknowledge(self, job_ids: Iterable[int]) -> list[str]:
        """These jobs have ended. Returns the requests whose load is complete."""
        loaded = []
        for job_id in job_ids:
            client, job = self._pending.pop(job_id)
            for page in job.pages:
                name = client.names[page]
                if job.is_load:
                    self._slots.end_read(name)
                    self._loading.discard(name)
                else:
                    self._slots.end_write(name)
            if job.is_load:
                loaded.append(client.request_id)
            elif client.is_finished:
                self._unfence(job)
            client.jobs.remove(job_id)
            if client.is_finished and not client.jobs and all(each.client is not client for each in self._ended):
                del self._clients[client.request_id]
        return loaded

    def _store(self, client: _Client, blocks: Blocks, num_tokens: int) -> OffloadJob | None:
        names, start = client.names, client.num_stored_pages
        pages = min(min(num_tokens, client.num_prompt_tokens) // self._page_tokens, len(blocks))
        if pages <= start:
            return None
        offered = range(start, pages)
        slots = [self._slots.find(names[page]) for page in offered]
        missing = [page for page, slot in zip(offered, slots, strict=True) if slot is None]
        self._slots.note_use(client.usage, missing)
        self._slots.note_use(client.usage, [page for page, slot in zip(offered, slots, strict=True) if slot and slot.is_written])
        numbers = self._slots.take(client.usage, missing, keep={names[page] for page in offered})
        if numbers is None:
            return None
        client.num_stored_pages = pages
        return self._start(client, missing, blocks[missing], numbers, is_load=False) if missing else None

    def _start(
        self, client: _Client, pages: Sequence[int], device_blocks: Blocks, numbers: list[int], *, is_load: bool
    ) -> OffloadJob:
        slots = np.array(numbers, dtype=np.int32)
        job = OffloadJob(self._next_id, client.request_id, pages, device_blocks, slots, is_load)
        self._next_id += 1
        client.jobs.add(job.job_id)
        self._pending[job.job_id] = (client, job)
        self._new_jobs.append(job)
        return job

    def _fence(self, job: OffloadJob) -> None:
        for block in job.device_blocks.tolist():
            self._fences.setdefault(block, set()).add(job.job_id)

    def _unfence(self, job: OffloadJob) -> None:
        for block in job.device_blocks.tolist():
            self._fences[block].discard(job.job_id)
            if not self._fences[block]:
                del self._fences[block]


def _is_in(some: Blocks, others: Blocks) -> NDArray[np.bool_]:
    return np.isin(some, others, kind="table")
