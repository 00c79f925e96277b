"""Which tokens the next step computes. Running requests first, then waiting ones in order of arrival."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hisparse_runtime.policy import Limits, Residency, extend_page_hashes
from hisparse_runtime.scheduling.plan import ScheduledRequest, StepPlan
from hisparse_runtime.scheduling.request import FinishReason, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOutput:
    """A request's new token."""

    request: Request
    token: int
    finish_reason: FinishReason | None


@dataclass(slots=True)
class SchedulerCounters:
    """Since start."""

    finished: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0


class Scheduler:
    """One step is `acknowledge`, `schedule`, (an executor runs the plan), `complete`."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.residency = Residency(limits)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counters = SchedulerCounters()
        self._counts: dict[str, int] = {}  # tokens that the plan under way computes, by request

    def add(self, request: Request) -> None:
        longest = request.num_prompt_tokens + request.max_tokens
        if longest > self.limits.max_model_len:
            raise ValueError(f"request of {longest} tokens, max_model_len is {self.limits.max_model_len}")
        self.waiting.append(request)

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting or self.residency.has_unfinished_transfers)

    def acknowledge(self, transfer_ids: Iterable[int]) -> None:
        self.residency.acknowledge(transfer_ids)

    def schedule(self) -> StepPlan:
        self._counts = {}
        if not self.waiting:
            self.residency.wanted_blocks = 0
        budget, has_preempted = self._schedule_running(self.limits.max_num_batched_tokens)
        if not has_preempted:
            self._admit_waiting(budget)
        if self.waiting and not self.running and not has_preempted and not self.residency.has_unfinished_transfers:
            raise RuntimeError(
                f"request {self.waiting[0].request_id} of {len(self.waiting[0].tokens)} tokens is alone and does not fit: "
                f"{self.residency.device.num_free} device and {self.residency.host.num_free} host blocks are free"
            )
        for request in self.running:
            if request.request_id in self._counts:
                self.residency.seal(
                    request_id=request.request_id, num_computed_tokens=request.num_computed + self._counts[request.request_id]
                )
        # Tables are read after the last allocation: it may have taken pages of requests that were scheduled before it.
        return StepPlan(
            requests=tuple(self._planned(request) for request in self.running if request.request_id in self._counts),
            indexer_copies=self.residency.take_indexer_copies(),
            write_backs=self.residency.take_write_backs(),
            fresh_host_blocks=self.residency.take_fresh_host_blocks(),
            live_grants=frozenset(table.hot_grant for table in self.residency.tables.values() if table.hot_grant is not None),
        )

    def complete(self, tokens: Mapping[str, int]) -> list[TokenOutput]:
        """The plan has run; `tokens` are the new tokens of the requests that wanted one."""
        outputs = []
        for request in list(self.running):
            count = self._counts.pop(request.request_id, 0)
            if count == 0:
                continue
            request.num_computed += count
            if request.num_computed < len(request.tokens):
                continue
            token = tokens[request.request_id]
            if request.num_output == 0:
                self.counters.prompt_tokens += request.num_prompt_tokens
            request.tokens.append(token)
            self.counters.generation_tokens += 1
            reason = request.finish_reason()
            outputs.append(TokenOutput(request=request, token=token, finish_reason=reason))
            if reason is not None:
                self.counters.finished += 1
                self._leave(request)
        return outputs

    def abort(self, request_id: str) -> bool:
        """Drops a request between two steps. False if it is not here any more."""
        for request in self.running:
            if request.request_id == request_id:
                self._leave(request)
                return True
        for request in self.waiting:
            if request.request_id == request_id:
                self.waiting.remove(request)
                return True
        return False

    def _schedule_running(self, budget: int) -> tuple[int, bool]:
        preemptions_before = self.counters.preemptions
        index = 0
        while index < len(self.running) and budget > 0:
            request = self.running[index]
            count = min(len(request.tokens) - request.num_computed, budget)
            self.residency.relieve(request_id=request.request_id, num_tokens=len(request.tokens))
            # The last one gives way, in the end the request itself; those before it are scheduled already and stay.
            while not self.residency.grow(request_id=request.request_id, num_tokens=request.num_computed + count):
                victim = self.running[-1]
                self._preempt(victim)
                if victim is request:
                    return budget, True
            self._counts[request.request_id] = count
            budget -= count
            index += 1
        return budget, self.counters.preemptions > preemptions_before

    def _admit_waiting(self, budget: int) -> None:
        while self.waiting and len(self.running) < self.limits.max_num_seqs and budget > 0:
            request = self.waiting[0]
            extend_page_hashes(request.page_hashes, request.tokens, page_tokens=self.limits.page_tokens)
            if not self.residency.admit(
                request_id=request.request_id, num_tokens=len(request.tokens), page_hashes=request.page_hashes
            ):
                return
            self.waiting.popleft()
            self.running.append(request)
            table = self.residency.tables[request.request_id]
            request.num_computed = table.num_hit_pages * self.limits.page_tokens
            self._count_prefix(request)
            count = min(len(request.tokens) - request.num_computed, budget)
            has_grown = self.residency.grow(request_id=request.request_id, num_tokens=request.num_computed + count)
            assert has_grown, f"{request.request_id} was admitted without room for its first {count} tokens"
            self._counts[request.request_id] = count
            budget -= count

    def _preempt(self, request: Request) -> None:
        """Back to the head of the queue; its complete pages are found again by their hashes."""
        self._leave(request)
        request.num_computed = 0
        self.waiting.appendleft(request)
        self.counters.preemptions += 1

    def _leave(self, request: Request) -> None:
        self.running.remove(request)
        extend_page_hashes(request.page_hashes, request.tokens, page_tokens=self.limits.page_tokens)
        self.residency.release(request_id=request.request_id, page_hashes=request.page_hashes)

    def _count_prefix(self, request: Request) -> None:
        if request.was_admitted:
            return
        request.was_admitted = True
        request.num_cached = request.num_computed
        self.counters.prefix_queried_tokens += request.num_prompt_tokens
        self.counters.prefix_hit_tokens += request.num_cached

    def _planned(self, request: Request) -> ScheduledRequest:
        table = self.residency.tables[request.request_id]
        end = request.num_computed + self._counts[request.request_id]
        return ScheduledRequest(
            request_id=request.request_id,
            start=request.num_computed,
            tokens=tuple(request.tokens[request.num_computed : end]),
            wants_token=end == len(request.tokens),
            resident=tuple(table.resident),
            host=tuple(table.host),
            indexer=tuple(table.indexer),
            hot=table.hot,
            hot_grant=table.hot_grant,
        )
