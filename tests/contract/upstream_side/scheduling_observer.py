"""Reads vLLM's scheduler: what it decides (its own methods, listened to) and its state (its own fields) in terms of a trace."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.contract.traces import Admission, OffloadJob, Pages, RequestState, RequestStatus, Step, Transfer, pages_text

STATUS: dict[str, RequestStatus] = {
    "WAITING": "waiting",
    "WAITING_FOR_REMOTE_KVS": "importing",
    "RUNNING": "running",
    "PREEMPTED": "preempted",
}


@dataclass(slots=True)
class Decisions:
    """Of one step, as they happen."""

    admitted: list[Admission] = field(default_factory=list)
    deferred: dict[str, Any] = field(default_factory=dict)
    unallocated: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    lost: dict[str, set[int]] = field(default_factory=dict)
    adopted: dict[str, set[int]] = field(default_factory=dict)
    scheduled: dict[str, int] = field(default_factory=dict)
    drafts: dict[str, int] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    mirrored: dict[str, Pages] = field(default_factory=dict)
    told: dict[str, Pages] = field(default_factory=dict)
    scrubbed_host_blocks: int = 0
    all_resident: bool = True
    offload_jobs: list[OffloadJob] = field(default_factory=list)
    flushed_jobs: list[OffloadJob] = field(default_factory=list)


class Observer:
    """Listens from its construction on. `coordinator` is HiSparse's, `offload_manager` the OffloadingConnector's; or None."""

    def __init__(self, scheduler: Any, coordinator: Any, offload_manager: Any) -> None:
        self._scheduler, self._coordinator, self._offload_manager = scheduler, coordinator, offload_manager
        self._jobs: dict[int, OffloadJob] = {}
        self._pool = scheduler.kv_cache_manager.block_pool
        self._host_is_full = False
        self.decisions = Decisions()
        self._listen()

    def _listen(self) -> None:
        scheduler, coordinator = self._scheduler, self._coordinator
        _before(scheduler, "_preempt_request", lambda request, *_, **__: self.decisions.preempted.append(request.request_id))
        _before(scheduler, "_free_request", lambda request, *_, **__: self.decisions.finished.append(request.request_id))
        _after(scheduler.kv_cache_manager, "allocate_slots", self._allocated)
        if coordinator is not None:
            _before(coordinator, "_lose_page", self._lost)
            _after(coordinator.resident_managers[0], "adopt_resident_page", self._adopted)
            _after(coordinator.host_manager, "get_num_blocks_to_allocate", self._asked_host)

    def _allocated(self, blocks: Any, request: Any, *_: Any, **keywords: Any) -> None:
        name, host_is_full, self._host_is_full = request.request_id, self._host_is_full, False
        if "full_sequence_must_fit" not in keywords:  # a running request
            if blocks is None:
                self.decisions.unallocated.append(name)
        elif blocks is None:
            self.decisions.deferred[name] = "host" if host_is_full else "gpu"
        else:
            admission = Admission(name, keywords["num_new_computed_tokens"], keywords["num_external_computed_tokens"])
            self.decisions.admitted.append(admission)

    def _asked_host(self, num_blocks: int, *_: Any, **__: Any) -> None:
        self._host_is_full |= num_blocks > self._pool.num_gpu_blocks  # vLLM's way of saying so

    def _lost(self, request_id: str, page: int) -> None:
        if request_id in self._coordinator.request_states:
            self.decisions.lost.setdefault(request_id, set()).add(page)

    def _adopted(self, is_adopted: bool, request_id: str, page: int, *_: Any) -> None:  # noqa: FBT001  as vLLM answers
        if is_adopted:
            self.decisions.adopted.setdefault(request_id, set()).add(page)

    def scheduled(self, output: Any, hisparse: Any) -> None:
        """Takes in vLLM's SchedulerOutput, and in it the metadata of HiSparse's connector."""
        decisions = self.decisions
        decisions.scheduled = dict(output.num_scheduled_tokens)
        decisions.drafts = {name: len(drafts) for name, drafts in output.scheduled_spec_decode_tokens.items() if drafts}
        if hisparse is None:
            return
        pending = self._coordinator.pending_spills
        sent = hisparse.command.page_transfers if hisparse.command else ()
        decisions.transfers = [_transfer(pending[item.transfer_id]) for item in sent]
        rows = {name: self._mirrored(name, mirrors) for name, mirrors in hisparse.row_mirrors.items()}
        decisions.mirrored = {name: text for name, text in rows.items() if text}
        updates = getattr(hisparse, "residency_updates", {})  # up to 0.31 whole block tables are sent
        decisions.told = {name: pages_text(update.pages) for name, update in updates.items()}
        decisions.scrubbed_host_blocks = len(hisparse.source_block_ids)
        decisions.all_resident = hisparse.all_context_pages_resident

    def offloaded(self, metadata: Any) -> None:
        """Takes in the metadata of the OffloadingConnector. Job ids count up, loads of a step first."""
        jobs = {item: _offload_job(job, job.dst_spec, load=True) for item, job in metadata.load_jobs.items()}
        jobs |= {item: _offload_job(job, job.src_spec, load=False) for item, job in metadata.store_jobs.items()}
        self._jobs |= jobs
        self.decisions.offload_jobs = list(jobs.values())
        self.decisions.flushed_jobs = [self._jobs[item] for item in sorted(metadata.jobs_to_flush or ())]

    def _mirrored(self, name: str, mirrors: Sequence[Any]) -> Pages:
        manager = self._coordinator.host_manager
        size = manager.block_size
        page_of = {block.block_id: page for page, block in enumerate(manager.req_to_blocks[name])}
        starts = [(divmod(mirror.destination_start, size), mirror.num_rows) for mirror in mirrors]
        firsts = [(page_of[block] * size + offset, rows) for (block, offset), rows in starts]
        return pages_text(position for first, rows in firsts for position in range(first, first + rows))

    def step(self) -> Step:
        """Everything since the last call."""
        decisions, self.decisions = self.decisions, Decisions()
        scheduler, coordinator = self._scheduler, self._coordinator
        free_gpu_blocks = self._pool.get_num_free_blocks()
        host_pool = coordinator.get_host_block_pool() if coordinator is not None else None
        gone = {*decisions.scheduled, *decisions.preempted}
        return Step(
            scheduled=decisions.scheduled,
            drafts=decisions.drafts,
            admitted=decisions.admitted,
            preempted=decisions.preempted,
            deferred=decisions.deferred,
            stalled=[name for name in dict.fromkeys(decisions.unallocated) if name not in gone],
            lost={name: pages_text(pages) for name, pages in sorted(decisions.lost.items())},
            adopted={name: pages_text(pages) for name, pages in decisions.adopted.items()},
            transfers=decisions.transfers,
            mirrored=decisions.mirrored,
            told=decisions.told,
            scrubbed_host_blocks=decisions.scrubbed_host_blocks,
            all_resident=decisions.all_resident,
            sampled={},
            acked=[],
            finished=decisions.finished,
            running=_names(scheduler.running),
            waiting=_names([*scheduler.kv_holding_waiting, *scheduler.waiting]),
            free_gpu_blocks=free_gpu_blocks,
            free_host_blocks=host_pool.get_num_free_blocks() if host_pool else 0,
            below_watermark=coordinator is not None and free_gpu_blocks < coordinator.transition_watermark,
            pending_transfers=len(coordinator.pending_spills) if coordinator is not None else 0,
            cached_gpu_pages=len(self._pool.cached_block_hash_to_block),
            cached_host_pages=len(host_pool.cached_block_hash_to_block) if host_pool else 0,
            copies=len(coordinator.copies) if coordinator is not None else 0,
            offload_jobs=decisions.offload_jobs,
            flushed_jobs=decisions.flushed_jobs,
            acked_jobs=[],
            offloaded_pages=self._num_offloaded_pages(),
            requests={name: self._request(request) for name, request in scheduler.requests.items()},
        )

    def _num_offloaded_pages(self) -> int:
        manager = self._offload_manager
        return 0 if manager is None else manager._num_allocated_chunks - len(manager._free_list)

    def _request(self, request: Any) -> RequestState:
        name, coordinator = request.request_id, self._coordinator
        status = STATUS.get(request.status.name, "finished")
        if coordinator is None:
            blocks = self._scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks.get(name, ())
            return RequestState(status=status, tokens=request.num_tokens, computed=request.num_computed_tokens, pages=len(blocks))
        first = coordinator.resident_managers[0]
        num_pages = len(first.req_to_blocks.get(name, ()))
        resident = [_resident_pages(manager, name) for manager in coordinator.resident_managers]
        if any(pages != resident[0] for pages in resident):
            raise AssertionError(f"groups of {name} disagree: {[pages_text(pages) for pages in resident]}")
        state = coordinator.request_states.get(name)
        return RequestState(
            status=status,
            tokens=request.num_tokens,
            computed=request.num_computed_tokens,
            pages=num_pages,
            resident=pages_text(resident[0]),
            hot=all(manager.has_hot(name) for manager in coordinator.hot_managers),
            hot_required=any(name in manager.hot_required for manager in coordinator.hot_managers),
            **({} if state is None else _pages_of(state)),
        )


def _offload_job(job: Any, pages: Any, *, load: bool) -> OffloadJob:
    """Of a job's GPU side; one cache group is offloaded."""
    ((num_pages, first_page),) = zip(pages.group_sizes, pages.block_indices, strict=True)
    return OffloadJob(job.req_id, first_page, num_pages, load)


def _transfer(pending: Any) -> Transfer:
    request, page = pending.page
    return Transfer(request, page, pending.restore)


def _resident_pages(manager: Any, name: str) -> list[int]:
    blocks = manager.req_to_blocks.get(name, ())
    if hasattr(manager, "get_residency_row"):  # up to 0.31 the block table itself is edited
        blocks = manager.get_residency_row(name)
    return [page for page, block in enumerate(blocks) if not block.is_null]


def _pages_of(state: Any) -> dict[str, Any]:
    return {
        "valid": pages_text(state.valid_pages),
        "ready_pages": state.ready_prefix_pages,
        "pending": pages_text(state.pending_pages),
        "pinned_clean": pages_text(state.pinned_clean),
        "unpinned": pages_text(state.unpinned_pages),
        "stale": pages_text(getattr(state, "stale_pages", ())),  # these two from 0.32 on
        "synced_pages": getattr(state, "synced_pages", 0),
    }


def _names(requests: Iterable[Any]) -> list[str]:
    return [request.request_id for request in requests]


def _before(owner: Any, name: str, listener: Callable[..., None]) -> None:
    method = getattr(owner, name)

    def listened(*arguments: Any, **keywords: Any) -> Any:
        listener(*arguments, **keywords)
        return method(*arguments, **keywords)

    setattr(owner, name, listened)


def _after(owner: Any, name: str, listener: Callable[..., None]) -> None:
    method = getattr(owner, name)

    def listened(*arguments: Any, **keywords: Any) -> Any:
        result = method(*arguments, **keywords)
        listener(result, *arguments, **keywords)
        return result

    setattr(owner, name, listened)
