"""A step while it is being planned."""

from dataclasses import dataclass, field

from hisparse_runtime.scheduling.plan import Admitted, ScheduledRequest
from hisparse_runtime.scheduling.request import Request
from hisparse_runtime.scheduling.settings import SchedulerSettings


@dataclass(slots=True, kw_only=True)
class Step:
    """`counts` are the tokens of each request, in the order of the batch; `budget` tokens are left.

    `has_running`, `has_prefill`: a request was in the batch before and is again; one such is in the middle of its prompt.
    """

    budget: int
    counts: dict[Request, int] = field(default_factory=dict)
    num_drafts: dict[Request, int] = field(default_factory=dict)
    new: set[Request] = field(default_factory=set)
    has_running: bool = False
    has_prefill: bool = False
    admitted: list[Admitted] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    stalled: list[str] = field(default_factory=list)
    deferred: dict[str, str] = field(default_factory=dict)

    def add_running(self, request: Request, count: int) -> None:
        self.counts[request] = count
        self.budget -= count
        self.has_running = True
        self.has_prefill |= request.is_prefill_chunk
        if request.num_drafts:
            fitting = request.num_computed + count - request.num_tokens - request.num_placeholders
            if fitting > 0:
                self.num_drafts[request] = min(request.num_drafts, fitting)

    def add_admitted(self, request: Request, count: int, *, num_drafts: int) -> None:
        self.counts[request] = count
        self.budget -= count
        self.new.add(request)
        if num_drafts:
            self.num_drafts[request] = num_drafts

    def take_back(self, request: Request) -> None:
        """It is preempted, whether or not it was in the batch already."""
        self.budget += self.counts.pop(request, 0)
        self.num_drafts.pop(request, None)

    def scheduled(self, request: Request, count: int, *, settings: SchedulerSettings) -> ScheduledRequest:
        start, end = request.num_computed, request.num_computed + count
        is_ahead = settings.steps_in_flight > 1 and settings.num_speculative_tokens > 0
        return ScheduledRequest(
            request,
            start,
            count,
            self.num_drafts.get(request, 0),
            end >= request.num_tokens + request.num_placeholders,
            request in self.new,
            max(0, start - request.num_placeholders) if is_ahead else start,
            end + settings.lookahead_tokens,
        )
