"""Drives a scheduler through a workload: what an engine and its worker do around it, without a model. vLLM's and ours alike.

Order within a step, as in vLLM's engine core: arrivals and aborts; schedule; aborts meanwhile; the oldest output is processed,
once `steps_in_flight` steps are scheduled. The worker reports a transfer complete in the output `ack_delay_steps` after its own;
a store into the offload tier starts a step later than it is asked for, unless it is flushed.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.contract.traces import Admission, Limits, OffloadJob, Step, Trace, Transfer
from tests.contract.workloads import Request, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """What the worker needs of a scheduled step. `samples`: requests whose last known token is in it, so that they get a new one.

    `transfers` and `jobs` are new and in the step's order; `flushed` are numbers of jobs. `handle` is the scheduler's and comes
    back with the output.
    """

    scheduled: Mapping[str, int]
    drafts: Mapping[str, int]
    samples: frozenset[str]
    admitted: Sequence[Admission]
    transfers: Sequence[Transfer]
    jobs: Sequence[OffloadJob] = ()
    flushed: Sequence[int] = ()
    handle: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the worker says after a step: numbers of new tokens by request in batch order (0 in the middle of a prompt), finished
    transfers and offload jobs (numbers count all of the run, in order, each kind for itself), the request whose KV has arrived,
    by an import or by the load of a finished job (one at a time).

    New tokens are what `Request.token_at` says for the positions behind those that the scheduler knows of when it processes the
    output. The draft model proposes `num_speculative_tokens` tokens for every request with a new token.
    """

    sampled: Mapping[str, int]
    completed: Sequence[int]
    completed_jobs: Sequence[int]
    arrived: str | None


class DrivenScheduler(Protocol):
    """A scheduler with its memory. `limits` are known once it is built; `observe` tells of everything since the last call.

    Of the step that `observe` returns, `sampled`, `acked` and `acked_jobs` are filled in by the driver.
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
        output = Output(sampled={}, completed=(), completed_jobs=(), arrived=None)
        if len(in_flight) == workload.settings.steps_in_flight:
            done = in_flight.popleft()
            output = worker.output(done, number)
            scheduler.update(done, output)
        observed = scheduler.observe()
        yield dataclasses.replace(
            observed,
            sampled={name: num_tokens for name, num_tokens in output.sampled.items() if num_tokens},
            acked=[worker.transfers[item] for item in output.completed],
            acked_jobs=[worker.jobs[item] for item in output.completed_jobs],
        )
        for order, arrival in enumerate(workload.arrivals):
            if arrival.after is not None and arrival.after in observed.finished:
                waiting.append((number + arrival.step, order))
        waiting.sort()
        if not waiting and not observed.requests and not worker.is_busy:
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
        self._num_verified: dict[str, int] = {}
        self._has_drafts: set[str] = set()
        self._num_outputs = 0
        self.transfers: list[Transfer] = []
        self.jobs: list[OffloadJob] = []
        self._due_transfers: dict[int, int] = {}  # by number: the output that reports it
        self._due_jobs: dict[int, int] = {}
        self._due_imports: list[tuple[int, str]] = []  # by the step in which they are there

    @property
    def is_busy(self) -> bool:
        """Whether there is something to report."""
        return bool(self._due_transfers or self._due_jobs or self._due_imports)

    def add(self, request: Request) -> None:
        self._requests[request.id] = request
        self._num_verified[request.id] = 0

    def start(self, scheduled: Scheduled, number: int) -> None:
        for name, _, imported_tokens in scheduled.admitted:
            steps = self._requests[name].import_steps
            if imported_tokens and steps is not None:
                self._due_imports.append((number + steps, name))

    def output(self, scheduled: Scheduled, number: int) -> Output:
        self._has_drafts -= {name for name, _, _ in scheduled.admitted}
        sampled = {name: self._sample(name, scheduled) if name in scheduled.samples else 0 for name in scheduled.scheduled}
        now, delay = self._num_outputs, self._settings.ack_delay_steps
        self._num_outputs += 1
        for transfer in scheduled.transfers:
            self._due_transfers[len(self.transfers)] = now + delay
            self.transfers.append(transfer)
        for job in scheduled.jobs:
            self._due_jobs[len(self.jobs)] = now + delay + (0 if job.load else 1)
            self.jobs.append(job)
        self._due_jobs |= {item: now for item in scheduled.flushed if item in self._due_jobs}
        arrived, loaded = self._arrived(number, now)
        stored = _pop_due(self._due_jobs, now, [item for item in self._due_jobs if not self.jobs[item].load])
        return Output(
            sampled=sampled,
            completed=_pop_due(self._due_transfers, now, self._due_transfers),
            completed_jobs=[*loaded, *stored],
            arrived=arrived,
        )

    def _arrived(self, number: int, now: int) -> tuple[str | None, list[int]]:
        """One import or load, and the job of the load."""
        imports = sorted(item for item in self._due_imports if item[0] <= number)
        if imports:
            self._due_imports.remove(imports[0])
            return imports[0][1], []
        for item, due in self._due_jobs.items():
            if self.jobs[item].load and due <= now:
                del self._due_jobs[item]
                return self.jobs[item].request, [item]
        return None, []

    def _sample(self, name: str, scheduled: Scheduled) -> int:
        num_accepted, num_drafts = 0, scheduled.drafts.get(name, 0)
        if num_drafts and name in self._has_drafts:
            accepted = self._requests[name].accepted
            num_accepted = min(num_drafts, accepted[self._num_verified[name] % len(accepted)])
            self._num_verified[name] += 1
        if self._settings.num_speculative_tokens:
            self._has_drafts.add(name)
        return 1 + num_accepted


def _pop_due(due: dict[int, int], now: int, candidates: Iterable[int]) -> list[int]:
    numbers = [item for item in candidates if due[item] <= now]
    for item in numbers:
        del due[item]
    return numbers
