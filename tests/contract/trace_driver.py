"""Drives a scheduler through a workload: what an engine and its worker do around it, without a model. vLLM's and ours alike.

Order within a step, as in vLLM's engine core: arrivals and aborts; schedule; aborts meanwhile; the oldest output is processed,
once `steps_in_flight` steps are scheduled. The worker reports a transfer complete in the output `ack_delay_steps` after its own.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.contract.traces import Admission, Limits, Step, Trace, Transfer
from tests.contract.workloads import Request, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """What the worker needs of a scheduled step. `samples`: requests whose last known token is in it, so that they get a new one.

    `transfers` are in the order of the step's own; `handle` is the scheduler's and comes back with the output.
    """

    scheduled: Mapping[str, int]
    drafts: Mapping[str, int]
    samples: frozenset[str]
    admitted: Sequence[Admission]
    transfers: Sequence[Transfer]
    handle: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the worker says after a step: new tokens by request in batch order (none in the middle of a prompt), finished
    transfers (their numbers count all transfers of the run, in order), requests whose imported KV has arrived.

    The draft model proposes `num_speculative_tokens` tokens for every request with a new token.
    """

    tokens: Mapping[str, Sequence[int]]
    completed: Sequence[int]
    arrived: frozenset[str]


class DrivenScheduler(Protocol):
    """A scheduler with its memory. `limits` are known once it is built; `observe` tells of everything since the last call.

    Of the step that `observe` returns, `sampled` and `acked` are filled in by the driver.
    """

    @property
    def limits(self) -> Limits: ...

    def add(self, request: Request, *, arrival: int) -> None: ...

    def abort(self, request_id: str) -> None: ...

    def schedule(self) -> Scheduled: ...

    def update(self, scheduled: Scheduled, output: Output) -> None: ...

    def observe(self) -> Step: ...


def trace(workload: Workload, scheduler: DrivenScheduler) -> Trace:
    """The whole run."""
    return Trace(workload=workload, limits=scheduler.limits, steps=list(drive(workload, scheduler)))


def drive(workload: Workload, scheduler: DrivenScheduler) -> Iterator[Step]:
    """Step by step; the scheduler's state between two steps can be looked at."""
    worker = _Worker(workload)
    in_flight: collections.deque[Scheduled] = collections.deque()
    waiting = sorted((arrival.step, order) for order, arrival in enumerate(workload.arrivals) if arrival.after is None)
    num_added = 0
    for number in range(workload.max_steps):
        while waiting and waiting[0][0] <= number:
            request = workload.arrivals[waiting.pop(0)[1]].request
            worker.add(request)
            scheduler.add(request, arrival=num_added)
            num_added += 1
        _abort(workload, scheduler, number, while_running=False)
        scheduled = scheduler.schedule()
        worker.start(scheduled, number)
        in_flight.append(scheduled)
        _abort(workload, scheduler, number, while_running=True)
        output: Output | None = None
        acked: list[Transfer] = []
        if len(in_flight) == workload.settings.steps_in_flight:
            done = in_flight.popleft()
            output, acked = worker.output(done, number)
            scheduler.update(done, output)
        observed = scheduler.observe()
        sampled = {name: len(tokens) for name, tokens in output.tokens.items() if tokens} if output else {}
        yield dataclasses.replace(observed, sampled=sampled, acked=acked)
        for order, arrival in enumerate(workload.arrivals):
            if arrival.after is not None and arrival.after in observed.finished:
                waiting.append((number + arrival.step, order))
        waiting.sort()
        if not waiting and not observed.requests and not observed.pending_transfers:
            return


def _abort(workload: Workload, scheduler: DrivenScheduler, number: int, *, while_running: bool) -> None:
    for abort in workload.aborts:
        if abort.step == number and abort.while_running == while_running:
            scheduler.abort(abort.id)


class _Worker:
    """Executes steps in order. Drafts exist from a request's first new token on, and are gone when it is preempted."""

    def __init__(self, workload: Workload) -> None:
        self._settings = workload.settings
        self._requests: dict[str, Request] = {}
        self._lengths: dict[str, int] = {}
        self._num_verified: dict[str, int] = {}
        self._has_drafts: set[str] = set()
        self._num_outputs = 0
        self._num_transfers = 0
        self._copying: collections.deque[tuple[int, int, Transfer]] = collections.deque()  # due at output, number, transfer
        self._importing: list[tuple[int, str]] = []  # due at step, request

    def add(self, request: Request) -> None:
        self._requests[request.id] = request
        self._lengths[request.id] = request.prompt_tokens
        self._num_verified[request.id] = 0

    def start(self, scheduled: Scheduled, number: int) -> None:
        for name, _, imported_tokens in scheduled.admitted:
            steps = self._requests[name].import_steps
            if imported_tokens and steps is not None:
                self._importing.append((number + steps, name))

    def output(self, scheduled: Scheduled, number: int) -> tuple[Output, list[Transfer]]:
        self._has_drafts -= {name for name, _, _ in scheduled.admitted}
        tokens = {name: self._sample(name, scheduled) if name in scheduled.samples else () for name in scheduled.scheduled}
        for transfer in scheduled.transfers:
            self._copying.append((self._num_outputs + self._settings.ack_delay_steps, self._num_transfers, transfer))
            self._num_transfers += 1
        done = []
        while self._copying and self._copying[0][0] <= self._num_outputs:
            done.append(self._copying.popleft())
        self._num_outputs += 1
        arrived = frozenset(name for due, name in self._importing if due <= number)
        self._importing = [(due, name) for due, name in self._importing if due > number]
        output = Output(tokens=tokens, completed=[item for _, item, _ in done], arrived=arrived)
        return output, [transfer for _, _, transfer in done]

    def _sample(self, name: str, scheduled: Scheduled) -> tuple[int, ...]:
        request, num_drafts = self._requests[name], scheduled.drafts.get(name, 0)
        num_accepted = 0
        if num_drafts and name in self._has_drafts:
            num_accepted = min(num_drafts, request.accepted[self._num_verified[name] % len(request.accepted)])
            self._num_verified[name] += 1
        if self._settings.num_speculative_tokens:
            self._has_drafts.add(name)
        first = self._lengths[name]
        self._lengths[name] = first + 1 + num_accepted
        return tuple(request.token_at(position) for position in range(first, self._lengths[name]))
