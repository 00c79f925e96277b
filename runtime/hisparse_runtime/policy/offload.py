"""The offload tier: whole blocks by content on the host, for what attention needs all of (the indexer's keys; without HiSparse,
everything). A page of a prompt is stored once it is computed, and loaded for a prefix hit that the device has lost. Answers are
not stored: a next turn has them in its prompt.

    device block --store job--> slot (being written) --acknowledged--> slot (idle) --load job--> device block
                                                                         | used longest ago: makes room for others

A store reads blocks that its request may have given back already. If a step hands one out again, the job has to end before that
step (`flushed`). Semantics follow the OffloadingConnector of vLLM 0.32 with its CPU pool, one block per chunk, evicting by LRU.
That of 0.33 also loads small hits within a step, offers what is stored again after a preemption, and ranks by requests at work.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hisparse_runtime.policy.free_queue import Blocks
from hisparse_runtime.policy.prefix import PageNames


@dataclass(frozen=True, slots=True, eq=False)
class OffloadJob:
    """Pages of a request to copy between device blocks and slots of the tier, position by position."""

    job_id: int
    request_id: str
    pages: Sequence[int]
    device_blocks: Blocks
    slots: Blocks
    is_load: bool


@dataclass(slots=True)
class _Slot:
    number: int
    num_readers: int = 0
    is_written: bool = False

    @property
    def is_idle(self) -> bool:
        return self.is_written and self.num_readers == 0


@dataclass(slots=True, eq=False)
class _Client:
    """What the tier remembers of a request. `seen_pages` are those that it stored, found stored, or loaded."""

    request_id: str
    names: PageNames
    num_prompt_tokens: int
    num_stored_pages: int = 0
    is_finished: bool = False
    jobs: set[int] = field(default_factory=set)
    reserved: range = range(0)
    seen_pages: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Ended:
    client: _Client
    blocks: Blocks
    num_tokens: int


class OffloadTier:
    def __init__(self, *, num_slots: int, page_tokens: int) -> None:
        self.num_slots = num_slots
        self._page_tokens = page_tokens
        self._slots: OrderedDict[bytes, _Slot] = OrderedDict()  # the one used longest ago first
        self._free_slots = list(range(num_slots - 1, -1, -1))
        self._num_idle = 0
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
        client = self._clients.setdefault(request_id, _Client(request_id, names, num_prompt_tokens))
        if client.jobs:
            return None
        last_page = num_tokens // self._page_tokens
        if max_pages is not None:
            last_page = min(last_page, max_pages)
        if last_page <= first_page:
            return 0
        found, is_pending = 0, False
        for page in range(first_page, min(last_page, names.num_full)):
            slot = self._slots.get(names[page])
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
            name = client.names[page]
            slot = self._slots[name]
            self._num_idle -= slot.is_idle
            slot.num_readers += 1
            self._loading.add(name)

    def load(self, request_id: str, device_blocks: Blocks) -> None:
        """Starts to load what is reserved. The request is not to be run before the job is acknowledged."""
        client = self._clients[request_id]
        pages, client.reserved = client.reserved, range(0)
        client.seen_pages.update(pages)
        client.num_stored_pages = pages.stop
        numbers = [self._slots[client.names[page]].number for page in pages]
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
            self._end_load(client.names[page])
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
        taken = {block for blocks in allocated for block in blocks.tolist()} if self._fences or self._ended else set()
        flushed |= {job_id for block in taken & self._fences.keys() for job_id in self._fences[block]}
        for request_id, blocks, num_tokens in batch:
            client = self._clients.get(request_id)
            if client is not None:
                self._store(client, blocks, num_tokens)
        ended, self._ended = self._ended, []
        for each in ended:
            job = self._store(each.client, each.blocks, each.num_tokens)
            if job is not None:
                self._fence(job)
                if taken & set(job.device_blocks.tolist()):
                    flushed.add(job.job_id)
        for each in ended:
            self._touch(each.client)
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
                slot = self._slots[name]
                if job.is_load:
                    self._end_load(name)
                else:
                    slot.is_written = True
                    self._num_idle += slot.is_idle
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
        slots = [self._slots.get(names[page]) for page in offered]
        missing = [page for page, slot in zip(offered, slots, strict=True) if slot is None]
        client.seen_pages.update(missing)
        client.seen_pages.update(page for page, slot in zip(offered, slots, strict=True) if slot is not None and slot.is_written)
        if missing:
            if not self._make_room(len(missing), keep={names[page] for page in offered}):
                return None
            numbers = [self._free_slots.pop() for _ in missing]
            for page, number in zip(missing, numbers, strict=True):
                self._slots[names[page]] = _Slot(number)
        client.num_stored_pages = pages
        return self._start(client, missing, blocks[missing], numbers, is_load=False) if missing else None

    def _make_room(self, count: int, *, keep: set[bytes]) -> bool:
        too_many = count - len(self._free_slots)
        if too_many <= 0:
            return True
        if too_many > self._num_idle:
            return False
        evicted = []
        for name, slot in self._slots.items():
            if slot.is_idle and name not in keep:
                evicted.append(name)
                if len(evicted) == too_many:
                    break
        if len(evicted) < too_many:
            return False
        self._num_idle -= too_many
        self._free_slots.extend(self._slots.pop(name).number for name in evicted)
        return True

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

    def _end_load(self, name: bytes) -> None:
        slot = self._slots[name]
        slot.num_readers -= 1
        self._num_idle += slot.is_idle
        self._loading.discard(name)

    def _touch(self, client: _Client) -> None:
        """From the tail, so that the head of a prefix, which others may share, makes room last."""
        for page in sorted(client.seen_pages, reverse=True):
            name = client.names[page]
            if name in self._slots:
                self._slots.move_to_end(name)

    def _fence(self, job: OffloadJob) -> None:
        for block in job.device_blocks.tolist():
            self._fences.setdefault(block, set()).add(job.job_id)

    def _unfence(self, job: OffloadJob) -> None:
        for block in job.device_blocks.tolist():
            self._fences[block].discard(job.job_id)
            if not self._fences[block]:
                del self._fences[block]
