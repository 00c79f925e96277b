"""Our scheduler as the driver of traces wants it, with what it decides put into the words of a trace."""

import numpy as np

from hisparse_runtime.policy import HiSparseMemory, OrdinaryMemory, PageState, PolicySettings, Semantics
from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.scheduling import Request as OurRequest
from hisparse_runtime.scheduling import ScheduledRequest, Scheduler, SchedulerSettings, StepPlan, StepResult
from tests.contract.trace_driver import Output, Scheduled
from tests.contract.traces import Admission, Limits, OffloadJob, Pages, RequestState, Step, Transfer, pages_text
from tests.contract.workloads import PAGE_TOKENS, Request, Settings

DEFERRED_BY = {"device": "gpu", "host": "host"}


class OurScheduler:
    """See `tests.contract.trace_driver.DrivenScheduler`. Built for the limits that vLLM plans."""

    def __init__(self, settings: Settings, limits: Limits, *, semantics: Semantics) -> None:
        self.limits = limits
        self._settings = settings
        policy = _policy_settings(settings, limits, semantics)
        self.memory = HiSparseMemory(policy) if settings.mode == "hisparse" else OrdinaryMemory(policy)
        self.scheduler = Scheduler(
            SchedulerSettings(
                max_num_batched_tokens=settings.max_num_batched_tokens,
                max_num_seqs=settings.max_num_seqs,
                max_model_len=settings.max_model_len,
                page_tokens=PAGE_TOKENS,
                steps_in_flight=settings.steps_in_flight,
                num_speculative_tokens=settings.num_speculative_tokens,
                lookahead_tokens=limits.lookahead_tokens,
                by_priority=settings.policy == "priority",
                defers_frees=settings.steps_in_flight > 1 and settings.mode != "preempt",
                drops_stale_output=limits.drops_stale_output,
            ),
            self.memory,
        )
        self._requests: dict[str, Request] = {}
        self._jobs: list[OffloadJob] = []
        self._plan: StepPlan
        self._finished: list[str] = []
        self._lost: dict[str, set[int]] = {}
        self._hit_pages: dict[str, int] = {}
        self._adopted: dict[str, Pages] = {}
        self._mirrored: dict[str, Pages] = {}
        if isinstance(self.memory, HiSparseMemory):
            self._listen(self.memory)

    def add(self, request: Request, *, arrival: int) -> None:
        assert arrival == len(self._requests)
        self._requests[request.id] = request
        self.scheduler.add(
            OurRequest(
                request_id=request.id,
                tokens=request.tokens(),
                num_prompt_tokens=request.prompt_tokens,
                max_tokens=request.max_tokens,
                priority=request.priority,
                is_import=request.import_steps is not None,
            )
        )

    def abort(self, request_id: str) -> None:
        if self.scheduler.abort(request_id):
            self._finished.append(request_id)

    def schedule(self) -> Scheduled:
        plan = self._plan = self.scheduler.schedule()
        jobs = [OffloadJob(job.request_id, job.pages[0], len(job.pages), job.is_load) for job in plan.changes.jobs]
        self._jobs += jobs
        self._look(plan)
        return Scheduled(
            scheduled={each.request_id: each.num_tokens for each in plan.requests},
            drafts=_drafts(plan),
            samples=frozenset(each.request_id for each in plan.requests if each.wants_token),
            admitted=_admitted(plan),
            transfers=_transfers(plan),
            jobs=jobs,
            flushed=plan.changes.flushed_jobs,
            handle=plan,
        )

    def update(self, scheduled: Scheduled, output: Output) -> None:
        plan: StepPlan = scheduled.handle
        drafts: dict[str, tuple[int, ...]] = {}
        if self._settings.num_speculative_tokens and self._settings.steps_in_flight == 1:
            drafts = {each.request_id: (0,) * self._settings.num_speculative_tokens for each in plan.requests}
        is_load = any(self._jobs[job].load for job in output.completed_jobs)
        result = StepResult(
            tokens={name: self._tokens(name, number) for name, number in output.sampled.items()},
            drafts=drafts,
            completed=output.completed,
            completed_jobs=output.completed_jobs,
            imported=() if output.arrived is None or is_load else (output.arrived,),
        )
        outputs = self.scheduler.update(plan, result)
        self._finished += [each.request.request_id for each in outputs if each.finish_reason is not None]

    def observe(self) -> Step:
        """Of the plan that `schedule` made last."""
        plan, scheduler = self._plan, self.scheduler
        finished, self._finished = self._finished, []
        lost, self._lost = self._lost, {}
        told = {name: pages_text(change.moved.tolist()) for name, change in plan.changes.tables.items()}
        hisparse = self.memory if isinstance(self.memory, HiSparseMemory) else None
        device = self.memory.pools.device if isinstance(self.memory, HiSparseMemory) else self.memory.device
        tier = self.memory.tier
        return Step(
            scheduled={each.request_id: each.num_tokens for each in plan.requests},
            drafts=_drafts(plan),
            admitted=_admitted(plan),
            preempted=plan.preempted,
            deferred={name: DEFERRED_BY[where] for name, where in plan.deferred.items()},  # type: ignore[misc]  # both are literals
            stalled=plan.stalled,
            lost={name: pages_text(pages) for name, pages in lost.items()},
            adopted=self._adopted,
            transfers=_transfers(plan),
            mirrored=self._mirrored,
            told={name: pages for name, pages in told.items() if pages} if hisparse else {},
            scrubbed_host_blocks=len(plan.changes.fresh_host_blocks),
            all_resident=plan.changes.is_all_resident,
            sampled={},
            acked=[],
            finished=finished,
            running=[request.request_id for request in scheduler.running],
            waiting=[request.request_id for request in (*scheduler.waiting_with_memory, *scheduler.waiting)],
            free_gpu_blocks=device.num_free,
            free_host_blocks=hisparse.pools.host.num_free if hisparse else 0,
            below_watermark=hisparse is not None and device.num_free < hisparse.settings.watermark_blocks,
            pending_transfers=len(hisparse.transfers.pending) if hisparse else 0,
            cached_gpu_pages=len(device.index),
            cached_host_pages=len(hisparse.pools.host.index) if hisparse else 0,
            copies=len(hisparse.pools.frames.copies) if hisparse else 0,
            offload_jobs=[OffloadJob(job.request_id, job.pages[0], len(job.pages), job.is_load) for job in plan.changes.jobs],
            flushed_jobs=[self._jobs[job] for job in plan.changes.flushed_jobs],
            acked_jobs=[],
            offloaded_pages=0 if tier is None else tier.num_used,
            requests={name: self._state(request) for name, request in scheduler.requests.items()},
        )

    def _listen(self, memory: HiSparseMemory) -> None:
        lose = memory.pools.frames._on_lost

        def lost(number: int, pages: list[int]) -> None:
            table = memory.pools._numbered[number]
            assert table is not None
            self._lost.setdefault(table.request_id, set()).update(pages)
            lose(number, pages)

        memory.pools.frames._on_lost = lost

    def _look(self, plan: StepPlan) -> None:
        """At tables that `update` may close."""
        self._adopted, self._mirrored = {}, {}
        if not isinstance(self.memory, HiSparseMemory):
            return
        self._hit_pages |= {each.request_id: each.cached_tokens // PAGE_TOKENS for each in plan.admitted if each.cached_tokens}
        for each in plan.requests:
            table = self.memory.pools.tables[each.request_id]
            if each.is_new:
                hit = table.frames[: self._hit_pages.pop(each.request_id, 0)]
                self._adopted[each.request_id] = pages_text(np.flatnonzero(hit).tolist())
            self._mirrored[each.request_id] = _mirrored(table, each)
        self._adopted = {name: pages for name, pages in self._adopted.items() if pages}
        self._mirrored = {name: rows for name, rows in self._mirrored.items() if rows}

    def _tokens(self, name: str, number: int) -> list[int]:
        request = self.scheduler.requests.get(name)
        first = 0 if request is None else request.num_tokens
        return [self._requests[name].token_at(first + index) for index in range(number)]

    def _state(self, request: OurRequest) -> RequestState:
        plain = {"status": request.status.value, "tokens": request.num_tokens, "computed": request.num_computed}
        if isinstance(self.memory, OrdinaryMemory):
            blocks = self.memory.tables.get(request.request_id)
            return RequestState(**plain, pages=0 if blocks is None else blocks.num_pages)  # type: ignore[arg-type]  # str and int in one dict
        table = self.memory.pools.tables.get(request.request_id)
        if table is None:
            return RequestState(**plain, pages=0)  # type: ignore[arg-type]  # str and int in one dict
        return RequestState(
            **plain,  # type: ignore[arg-type]  # str and int in one dict
            pages=table.num_pages,
            resident=pages_text(np.flatnonzero(table.frames).tolist()),
            valid=pages_text(np.flatnonzero(table.valid).tolist()),
            ready_pages=table.num_ready,
            pending=pages_text(table.pages_in(PageState.PENDING).tolist()),
            pinned_clean=pages_text(table.pages_in(PageState.CLEAN_PINNED).tolist()),
            unpinned=pages_text(table.pages_in(PageState.UNPINNED).tolist()),
            stale=pages_text(set(table.stale)),
            synced_pages=table.num_synced,
            hot=table.can_read_host,
            hot_required=table.hot_required,
        )


def _policy_settings(settings: Settings, limits: Limits, semantics: Semantics) -> PolicySettings:
    policy = PolicySettings(
        num_groups=max(limits.num_groups, 1),
        page_tokens=PAGE_TOKENS,
        num_device_blocks=limits.gpu_blocks,
        num_host_blocks=max(limits.host_blocks, 1),
        hot_blocks_per_group=limits.hot_blocks,
        window_pages=limits.admission_pages,
        max_model_len=settings.max_model_len,
        drops_last_hit_page=limits.drops_last_hit_page,
        caches_prefixes=settings.prefix_caching,
        num_offload_blocks=settings.offload_pages or 0,
        semantics=semantics,
    )
    if settings.mode == "hisparse":
        assert (policy.watermark_blocks, policy.max_transfers_per_step) == (
            limits.watermark_blocks,
            limits.max_transfers_per_step,
        )
    return policy


def _admitted(plan: StepPlan) -> list[Admission]:
    return [Admission(each.request_id, each.cached_tokens, each.imported_tokens) for each in plan.admitted]


def _drafts(plan: StepPlan) -> dict[str, int]:
    return {each.request_id: each.num_drafts for each in plan.requests if each.num_drafts}


def _transfers(plan: StepPlan) -> list[Transfer]:
    return [Transfer(each.request_id, each.page, each.is_restore) for each in plan.changes.transfers]


def _mirrored(table: PageTable, scheduled: ScheduledRequest) -> Pages:
    positions = np.arange(scheduled.mirror_start, min(scheduled.mirror_end, table.num_pages * PAGE_TOKENS))
    return pages_text(positions[table.frames[positions // PAGE_TOKENS] != 0].tolist())
