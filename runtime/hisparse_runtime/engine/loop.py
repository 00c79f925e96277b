"""The engine's thread: takes requests in, steps, hands tokens out. Nothing else touches scheduler and executor after start."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hisparse_runtime.engine.executor import ModelExecutor
from hisparse_runtime.engine.report import Report, take_report
from hisparse_runtime.geometry import ModelGeometry
from hisparse_runtime.policy import HiSparseMemory
from hisparse_runtime.scheduling import FinishReason, Request, Scheduler, Stepper, TokenOutput

_logger = logging.getLogger(__name__)


class EngineState(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"


class NotServingError(RuntimeError):
    """No request is taken in: the engine is starting, draining or has failed."""


class QueueFullError(RuntimeError):
    """Too many requests wait already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    token: int
    finish_reason: FinishReason | None
    num_cached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The request gets no further token."""

    message: str


Deliver = Callable[[NewToken | Broken], None]


class EngineLoop:
    """Public methods may be called from any thread. `deliver` callbacks run in the engine's thread and must not block."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        memory: HiSparseMemory,
        executor: ModelExecutor,
        geometry: ModelGeometry,
        max_queued: int,
        on_failure: Callable[[], object],
    ) -> None:
        self.settings = scheduler.settings
        self.state = EngineState.STARTING
        self.failure: str | None = None
        self._scheduler = scheduler
        self._memory = memory
        self._executor = executor
        self._stepper = Stepper(scheduler, executor)
        self._geometry = geometry
        self._max_open = scheduler.settings.max_num_seqs + max_queued
        self._on_failure = on_failure
        self._started_seconds = time.monotonic()
        self._report = self._take_report()
        self._changed = threading.Condition()
        self._arrivals: list[Request] = []
        self._aborts: list[str] = []
        self._deliver: dict[str, Deliver] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self.state = EngineState.SERVING
        self._thread.start()

    def submit(self, request: Request, deliver: Deliver) -> None:
        """Raises NotServingError or QueueFullError."""
        with self._changed:
            if self.state is not EngineState.SERVING:
                raise NotServingError(f"the engine is {self.state.value}" + (f": {self.failure}" if self.failure else ""))
            if len(self._deliver) >= self._max_open:
                raise QueueFullError(f"{len(self._deliver)} requests run or wait already, the most is {self._max_open}")
            self._deliver[request.request_id] = deliver
            self._arrivals.append(request)
            self._changed.notify()

    def abort(self, request_id: str) -> None:
        """Ends a request that nobody listens to any more; nothing happens if it has ended."""
        with self._changed:
            if self._deliver.pop(request_id, None) is not None:
                self._aborts.append(request_id)
                self._changed.notify()

    def drain(self) -> None:
        """Takes nothing in from now on."""
        with self._changed:
            if self.state is EngineState.SERVING:
                self.state = EngineState.DRAINING

    @property
    def num_open(self) -> int:
        """Requests that run or wait."""
        with self._changed:
            return len(self._deliver)

    def stop(self) -> None:
        """Ends the thread after its current step; requests that are left are told."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._break_all("the server shut down before the request was complete")

    @property
    def report(self) -> Report:
        return self._report

    @property
    def uptime_seconds(self) -> float:
        return time.monotonic() - self._started_seconds

    def _run(self) -> None:
        try:
            while self._take_in():
                outputs: Sequence[TokenOutput] = self._stepper.step() if self._stepper.has_work else ()
                # Before the tokens go out: whoever has seen a request end finds that in the numbers.
                self._report = self._take_report()
                self._hand_out(outputs)
        except Exception as error:
            # Whatever it was, the memory behind the requests cannot be trusted any more: fail the probes, end the process.
            _logger.exception("engine step failed")
            with self._changed:
                self.state = EngineState.FAILED
                self.failure = f"{type(error).__name__}: {error}"
            self._break_all(f"the engine failed: {self.failure}")
            self._on_failure()

    def _take_in(self) -> bool:
        """Waits for work and takes arrivals and aborts in. False: stop."""
        with self._changed:
            while not (self._arrivals or self._aborts or self._stepper.has_work or self._is_stopping):
                self._changed.wait()
            arrivals, self._arrivals = self._arrivals, []
            aborts, self._aborts = self._aborts, []
            if self._is_stopping:
                return False
        for request in arrivals:
            self._scheduler.add(request)
        for request_id in aborts:
            self._scheduler.abort(request_id)
        return True

    def _hand_out(self, outputs: Sequence[TokenOutput]) -> None:
        for output in outputs:
            request_id = output.request.request_id
            with self._changed:
                deliver = self._deliver.get(request_id)
                if output.finish_reason is not None:
                    self._deliver.pop(request_id, None)
            if deliver is None:
                continue
            last = len(output.tokens) - 1
            for index, token in enumerate(output.tokens):
                reason = output.finish_reason if index == last else None
                deliver(NewToken(token=token, finish_reason=reason, num_cached=output.request.num_cached))

    def _break_all(self, message: str) -> None:
        with self._changed:
            listeners, self._deliver = self._deliver, {}
        for deliver in listeners.values():
            deliver(Broken(message=message))

    def _take_report(self) -> Report:
        return take_report(self._scheduler, self._memory, executed=self._executor.counters, geometry=self._geometry)
