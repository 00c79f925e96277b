"""Which tokens the next step computes: running requests first, then waiting ones, and who gives way when memory is short.

There is no prefill or decode phase: a request has some tokens, of which some are computed, and a step gives it a share of the
token budget to catch up. Semantics follow vLLM 0.33 (vllm/v1/core/sched/scheduler.py and async_scheduler.py).

    add -> waiting -> running -> finished            schedule -> plan -> (executor) -> result -> update
              ^  `-> importing -'  |                    ^  with two steps in flight, a step is planned   |
              `---- preempted <----'                    `---- before the one before it is updated -------'
"""

from collections import deque
from collections.abc import Collection

from hisparse_runtime.policy import Admission, Leftover, MemoryPolicy, PageNames, Refusal
from hisparse_runtime.scheduling.imports import Imports
from hisparse_runtime.scheduling.outputs import apply_tokens
from hisparse_runtime.scheduling.plan import Admitted, StepPlan, StepResult, TokenOutput
from hisparse_runtime.scheduling.queues import ArrivalQueue, PriorityQueue, WaitingQueue
from hisparse_runtime.scheduling.request import FinishReason, Request, RequestStatus
from hisparse_runtime.scheduling.settings import SchedulerSettings
from hisparse_runtime.scheduling.shares import first_share, known, places, running_share
from hisparse_runtime.scheduling.step import Step
from hisparse_runtime.scheduling.telemetry import SchedulerCounts


class Scheduler:
    """One caller. Requests may be added and aborted between any two calls; plans are updated in the order of their making."""

    def __init__(self, settings: SchedulerSettings, memory: MemoryPolicy) -> None:
        self.settings = settings
        self.memory = memory
        self.counts = SchedulerCounts()
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        # Those that hold memory go first: they must not wait behind one that cannot be given any.
        self.waiting_with_memory = self._make_queue()
        self.waiting = self._make_queue()
        self._imports = Imports(memory)
        self._prefilling: dict[Request, None] = {}  # hold memory, and not all of their prompt is scheduled
        self._is_newest = memory.settings.is_newest
        self._ended: list[str] = []
        self._num_arrivals = 0
        self._num_scheduled_steps = 0
        self._num_processed_steps = 0
        self._leftovers: deque[tuple[int, Leftover]] = deque()  # to be given back once that step is processed

    def add(self, request: Request) -> None:
        """Raises ValueError for an id that is taken, and for a prompt that leaves no room for an answer."""
        if request.request_id in self.requests:
            raise ValueError(f"request {request.request_id!r} is here already: ids must differ")
        if request.num_prompt_tokens >= self.settings.max_model_len:
            raise ValueError(
                f"prompt of {request.num_prompt_tokens} tokens leaves no room for an answer: max_model_len is"
                f" {self.settings.max_model_len}"
            )
        request.names = PageNames(request.tokens, page_tokens=self.settings.page_tokens)
        # The last token is computed in any case, so a prompt of one token has nothing to import.
        request.is_import = request.is_import and request.num_prompt_tokens > 1
        request.arrival = self._num_arrivals
        self._num_arrivals += 1
        self.requests[request.request_id] = request
        self.waiting.add(request)

    def abort(self, request_id: str) -> bool:
        """Ends a request at any time. False if it is not here any more."""
        request = self.requests.get(request_id)
        if request is None or request.status is RequestStatus.FINISHED:
            return False
        keeps_memory = False
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
        else:
            self._discard_waiting([request])
            keeps_memory = request.status is RequestStatus.IMPORTING and self._imports.abort(request_id)
        self._finish(request, FinishReason.ABORT, keeps_memory=keeps_memory)
        return True

    @property
    def has_work(self) -> bool:
        return bool(self.requests) or self.memory.has_transfers

    @property
    def num_waiting(self) -> int:
        return len(self.waiting) + len(self.waiting_with_memory)

    def schedule(self) -> StepPlan:
        """The next step. It may be empty: somebody has to wait for an acknowledgement or an import."""
        step = Step(budget=self.settings.max_num_batched_tokens)
        self._schedule_running(step)
        if not step.preempted:
            self._schedule_waiting(step)
        return self._plan(step)

    def update(self, plan: StepPlan, result: StepResult) -> list[TokenOutput]:
        """The oldest plan that is not updated yet has run."""
        if plan.number:
            self._num_processed_steps += 1
            while self._leftovers and self._leftovers[0][0] <= self._num_processed_steps:
                self.memory.give_back(self._leftovers.popleft()[1])
            self._imports.start_late(processed_step=self._num_processed_steps)
        outputs = self._apply(plan, result)
        stopped = {output.request for output in outputs if output.finish_reason is not None}
        if stopped:
            self.running = [request for request in self.running if request not in stopped]
            self._discard_waiting(stopped)
        self._take_drafts(plan, result)
        self._take_imports(result)
        self.memory.acknowledge(result.completed)
        return outputs

    def _schedule_running(self, step: Step) -> None:
        """Together, as long as there is room for all of them."""
        settings, shares, budget = self.settings, [], step.budget
        for request in self.running:
            count = running_share(request, budget, settings)
            if count > 0:
                shares.append((request, count))
                budget -= count
        if self.memory.grow([places(request, count, settings) for request, count in shares]):
            self._run_on(shares, step)
        else:
            self._schedule_running_in_turn(step)

    def _schedule_running_in_turn(self, step: Step) -> None:
        """One after the other, the last ones giving way to the first."""
        settings, memory = self.settings, self.memory
        index = 0
        while index < len(self.running) and step.budget > 0:
            request = self.running[index]
            count = running_share(request, step.budget, settings)
            if count <= 0:
                index += 1
                continue
            growth = [places(request, count, settings)]
            has_room = memory.grow(growth)
            while not has_room:
                victim = max(self.running) if settings.by_priority else self.running[-1]
                if memory.will_free_blocks or not self._can_free(victim):
                    step.stalled.append(request.request_id)
                    return
                position = self.running.index(victim)
                del self.running[position]
                index -= position < index
                self._preempt(victim, step)
                if victim is request:
                    break
                has_room = memory.grow(growth)
            if has_room:
                self._run_on([(request, count)], step)
                index += 1
            elif not (settings.by_priority and self._is_newest):
                return
            # By priority those behind it are more urgent, and it has just made room for them.

    def _run_on(self, shares: list[tuple[Request, int]], step: Step) -> None:
        """They have their memory."""
        self.memory.publish([known(request, count) for request, count in shares])
        for request, count in shares:
            step.add_running(request, count)

    def _preempt(self, request: Request, step: Step) -> None:
        """Back to the queue; what others may find of its pages it will find itself."""
        step.take_back(request)
        step.preempted.append(request.request_id)
        self._free(request, has_finished=False)
        self._prefilling.pop(request, None)
        request.preempt(drops_stale=self.settings.drops_stale_output)
        self.waiting.put_back([request])
        self.counts.preemptions += 1

    def _schedule_waiting(self, step: Step) -> None:
        skipped: list[Request] = []
        while step.budget > 0 and len(self.running) < self.settings.max_num_seqs:
            queue = self.waiting_with_memory or self.waiting
            if not queue:
                break
            request = queue.peek()
            if self._is_ready(request):
                is_admitted = self._resume(request, step) if request.num_computed else self._admit(request, step)
                if is_admitted is None:
                    break
                if is_admitted:
                    queue.pop()
                    continue
            skipped.append(queue.pop())
        self.waiting_with_memory.put_back([request for request in skipped if request.holds_memory])
        self.waiting.put_back([request for request in skipped if not request.holds_memory])

    def _is_ready(self, request: Request) -> bool:
        if request.status is RequestStatus.IMPORTING:
            if not self._imports.has_arrived(request):
                return False
            self._imports.take_arrived(request)
        # What is in flight from before a preemption will be handed out, so the request cannot sample those positions again.
        return not request.num_stale or request.drops_stale

    def _admit(self, request: Request, step: Step) -> bool | None:
        """Gives a waiting request memory. True: it runs. False: it has to wait. None: and so have all behind it."""
        settings, memory = self.settings, self.memory
        hit = memory.find_hit(request.names, num_tokens=request.num_tokens)
        loaded = memory.find_stored(
            request.request_id,
            request.names,
            hit,
            num_tokens=request.num_tokens,
            num_prompt_tokens=request.num_prompt_tokens,
        )
        if loaded is None:
            return False
        imported = loaded or (request.num_prompt_tokens - hit.tokens if request.is_import else 0)
        start = hit.tokens + imported
        count, num_drafts = (0, 0) if imported else first_share(request, start, step, settings)
        if not imported and count == 0:
            return None
        end = start + count
        refusal = memory.admit(
            Admission(
                request_id=request.request_id,
                names=request.names,
                hit=hit,
                num_tokens=min(end + (0 if imported else settings.lookahead_tokens), settings.max_model_len),
                full_tokens=min(request.num_tokens, settings.max_model_len),
                imported_tokens=imported,
                is_load=loaded > 0,
                reserved_blocks=self._reserved_blocks() if imported else 0,
            )
        )
        if not self._note_admission(request, step, refusal, cached_tokens=hit.tokens, imported_tokens=imported):
            return None
        self.counts.count_prefix(request, hit_tokens=hit.tokens + loaded, imported_tokens=imported - loaded)
        request.is_import = False
        if imported:
            self._start_import(request, num_tokens=start, is_load=loaded > 0)
            return False
        memory.publish([(request.request_id, min(end, request.num_tokens))])
        self._run(request, step, start=start, count=count, num_drafts=num_drafts)
        return True

    def _resume(self, request: Request, step: Step) -> bool | None:
        """As `_admit`, behind an import that has arrived."""
        settings, start = self.settings, request.num_computed
        count, num_drafts = first_share(request, start, step, settings)
        if count == 0:
            return None
        refusal = self.memory.resume(
            request.request_id,
            num_tokens=min(start + count + settings.lookahead_tokens, settings.max_model_len),
            full_tokens=min(request.num_tokens, settings.max_model_len),
        )
        if not self._note_admission(request, step, refusal, cached_tokens=0, imported_tokens=0):
            return None
        self.memory.publish([(request.request_id, min(start + count, request.num_tokens))])
        self._run(request, step, start=start, count=count, num_drafts=num_drafts)
        return True

    def _note_admission(
        self, request: Request, step: Step, refusal: Refusal | None, *, cached_tokens: int, imported_tokens: int
    ) -> bool:
        if refusal is not None:
            step.deferred[request.request_id] = refusal
            return False
        admitted = Admitted(request_id=request.request_id, cached_tokens=cached_tokens, imported_tokens=imported_tokens)
        step.admitted.append(admitted)
        return True

    def _run(self, request: Request, step: Step, *, start: int, count: int, num_drafts: int) -> None:
        request.num_computed = start
        request.status = RequestStatus.RUNNING
        self.running.append(request)
        step.add_admitted(request, count, num_drafts=num_drafts)
        if start + count < request.num_tokens:
            self._prefilling[request] = None

    def _start_import(self, request: Request, *, num_tokens: int, is_load: bool) -> None:
        request.status = RequestStatus.IMPORTING
        request.num_computed = num_tokens
        self._prefilling[request] = None
        after_step = None
        defers = self._is_newest and self.settings.defers_frees and self.memory.reads_free_blocks
        if defers and self._num_scheduled_steps > self._num_processed_steps:
            after_step = request.last_step = self._num_scheduled_steps
        self._imports.start(request.request_id, is_load=is_load, after_step=after_step)

    def _reserved_blocks(self) -> int:
        """An import holds its memory without making progress, so it must leave what those before it still need."""
        settings = self.settings
        drafts = settings.num_speculative_tokens
        extra = 1 + drafts + settings.lookahead_tokens if drafts else 0
        needed = sum(
            self.memory.admitted_need(request.request_id, num_tokens=min(request.num_tokens, settings.max_model_len) + extra)
            for request in self._prefilling
        )
        return needed + self.memory.managers_per_request * -(-extra // settings.page_tokens)

    def _plan(self, step: Step) -> StepPlan:
        settings, memory = self.settings, self.memory
        scheduled = [step.scheduled(request, count, settings=settings) for request, count in step.counts.items()]
        changes = memory.take_changes([known(request, count) for request, count in step.counts.items()])
        self._num_scheduled_steps += bool(scheduled)
        for request, count in step.counts.items():
            request.note_scheduled(
                count,
                step.num_drafts.get(request, 0),
                step=self._num_scheduled_steps,
                num_coming_drafts=settings.num_speculative_tokens if settings.steps_in_flight > 1 else None,
            )
            if not request.is_prefill_chunk and self._prefilling:
                self._prefilling.pop(request, None)
        ended, self._ended = self._ended, []
        return StepPlan(
            number=self._num_scheduled_steps if scheduled else 0,
            requests=scheduled,
            changes=changes,
            ended=ended,
            admitted=step.admitted,
            imports=self._imports.take_started(),
            preempted=step.preempted,
            stalled=step.stalled,
            deferred=step.deferred,
        )

    def _apply(self, plan: StepPlan, result: StepResult) -> list[TokenOutput]:
        settings = self.settings
        publishes_drafts = self._is_newest and settings.num_speculative_tokens > 0
        outputs = []
        for scheduled in plan.requests:
            request = scheduled.request
            applied = apply_tokens(request, scheduled, result.tokens.get(request.request_id, ()), settings=settings)
            if applied is None:
                continue
            self.counts.count_output(request, applied)
            if applied.is_publishable and (applied.had_placeholders or publishes_drafts):
                self.memory.publish([(request.request_id, request.num_computed - request.num_in_flight)])
            outputs.append(TokenOutput(request, applied.tokens, applied.finish_reason))
            if applied.finish_reason is not None:
                self._finish(request, applied.finish_reason)
        return outputs

    def _take_drafts(self, plan: StepPlan, result: StepResult) -> None:
        for scheduled in plan.requests if result.drafts else ():
            request = scheduled.request
            drafts = result.drafts.get(request.request_id)
            if drafts is not None and request.status is not RequestStatus.FINISHED:
                request.drafts = () if request.is_prefill_chunk else drafts
                request.num_drafts = len(request.drafts)

    def _take_imports(self, result: StepResult) -> None:
        loaded = self.memory.acknowledge_jobs(result.completed_jobs)
        arrived = [self.requests[request_id] for request_id in (*result.imported, *loaded)]
        failed = [self.requests[request_id] for request_id in result.failed_imports]
        self._imports.note_arrived(arrived, failed)
        for request in (*arrived, *failed):
            if request.status is RequestStatus.FINISHED:  # aborted on the way
                self._imports.abort(request.request_id)
                self._release(request)

    def _finish(self, request: Request, reason: FinishReason, *, keeps_memory: bool = False) -> None:
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        self._prefilling.pop(request, None)
        # The KV of the last token is never computed.
        final = request.num_computed if reason is FinishReason.ABORT else max(request.num_prompt_tokens, request.num_tokens - 1)
        self.memory.note_finished(request.request_id, num_tokens=min(final, request.num_tokens))
        self.counts.finished += reason is not FinishReason.ABORT
        if not keeps_memory:
            self._release(request)

    def _release(self, request: Request) -> None:
        del self.requests[request.request_id]
        self._free(request, has_finished=True)

    def _free(self, request: Request, *, has_finished: bool) -> None:
        self._ended.append(request.request_id)
        leftover = self.memory.close(request.request_id, has_finished=has_finished)
        if leftover is None:
            return
        if self._can_free(request):
            self.memory.give_back(leftover)
        else:
            self._leftovers.append((self._num_scheduled_steps, leftover))

    def _can_free(self, request: Request) -> bool:
        """Whether no step in flight writes to its blocks."""
        return not self.settings.defers_frees or request.last_step <= self._num_processed_steps

    def _discard_waiting(self, requests: Collection[Request]) -> None:
        self.waiting.discard(requests)
        self.waiting_with_memory.discard(requests)

    def _make_queue(self) -> WaitingQueue:
        return PriorityQueue() if self.settings.by_priority else ArrivalQueue()
