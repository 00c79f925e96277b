"""What an engine core sends about its residency, and when: at most four times a second, and whenever it is about to be idle.

Order in vLLM (`Scheduler.update_from_output`): finished requests are freed, then the worker's acknowledgements are applied, then
connectors are asked for statistics. What is measured there is what the step leaves behind. Between two steps only an abort frees
something, and each abort causes a step; so does every transfer that is not acknowledged. Hence a measurement in each step after
which no request holds memory is always fresh when the engine stops stepping. An engine that is paused while requests run keeps a
measurement that is up to a period old.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hisparse_runtime.vllm.telemetry.guard import Guard
from hisparse_runtime.vllm.telemetry.levels import Sizes, pool_levels, request_levels

PERIOD_SECONDS = 0.25
# A measurement takes microseconds per running request. After a slow one the next waits this many times as long as it took.
PAUSE_PER_COST = 200

Record = dict[str, float]


class Reporter:
    """Of one engine core. Nothing here raises: failures go to the guard, and leave with the next record."""

    def __init__(self, guard: Guard, *, running: object, clock: Callable[[], float] = time.perf_counter) -> None:
        """`running` is the status of requests that run."""
        self.guard, self._running, self.clock = guard, running, clock
        self._coordinator: Any = None
        self._requests: Mapping[str, Any] = {}
        self._sizes: Sizes | None = None
        self._events: Counter[str] = Counter()
        self._sent: Record = {}
        self._due_seconds = 0.0

    def attach(self, coordinator: Any, requests: Mapping[str, Any], sizes: Sizes) -> None:
        """Before the first request. `requests` is the connector's own, which admits and drops them."""
        self.guard.run(self._attach, coordinator, requests, sizes)

    def count_transfers(self, metadata: Any) -> None:
        """Of the metadata that a step's workers get."""
        self.guard.run(self._count_transfers, metadata)

    def records(self) -> list[Record]:
        """What is due: one record, or none."""
        record = self.guard.run(self._due_record) or {}
        if num_errors := self.guard.take_errors():
            record["telemetry_errors"] = num_errors
        return [record] if record else []

    def _attach(self, coordinator: Any, requests: Mapping[str, Any], sizes: Sizes) -> None:
        _before(coordinator, "_lose_page", self._lose)
        _after(coordinator.resident_managers[0], "adopt_resident_page", self._adopt)
        self._coordinator, self._requests, self._sizes = coordinator, requests, sizes

    def _lose(self, request_id: str, _: int) -> None:
        self.guard.run(self._count_lost, request_id)

    def _count_lost(self, request_id: str) -> None:
        if request_id in self._coordinator.request_states:  # else it is gone, and reads nothing
            self._events["lost_pages"] += 1

    def _adopt(self, is_adopted: object) -> None:
        if is_adopted:
            self._events["adopted_pages"] += 1

    def _count_transfers(self, metadata: Any) -> None:
        if self._sizes is None or metadata.command is None or not metadata.command.page_transfers:
            return
        transfers = metadata.command.page_transfers
        num_restored = sum(transfer.restore for transfer in transfers)
        num_written = len(transfers) - num_restored
        self._events["restored_pages"] += num_restored
        self._events["written_back_pages"] += num_written
        self._events["written_back_bytes"] += num_written * self._sizes.host_page_bytes

    def _due_record(self) -> Record | None:
        if self._sizes is None:
            return None
        start = self.clock()
        is_idle = not self._coordinator.request_states
        if start < self._due_seconds and not is_idle:
            return None
        self._due_seconds = start + PERIOD_SECONDS
        levels = self._levels(self._sizes)
        self._due_seconds = start + max(PERIOD_SECONDS, PAUSE_PER_COST * (self.clock() - start))
        if is_idle and levels == self._sent and not self._events:  # steps that only wait for a worker's acknowledgement
            return None
        events, self._events, self._sent = self._events, Counter(), levels
        return {**levels, **events}

    def _levels(self, sizes: Sizes) -> Record:
        """What one measurement cannot tell is left out, and keeps its last value."""
        requests: Iterable[Any] = self._requests.values()
        return {
            **(self.guard.run(request_levels, self._coordinator, requests, running=self._running) or {}),
            **(self.guard.run(pool_levels, self._coordinator, sizes) or {}),
        }


def _before(owner: Any, name: str, listener: Callable[[str, int], None]) -> None:
    method = getattr(owner, name)

    def heard(request_id: str, page: int) -> Any:
        listener(request_id, page)
        return method(request_id, page)

    setattr(owner, name, heard)


def _after(owner: Any, name: str, listener: Callable[[object], None]) -> None:
    method = getattr(owner, name)

    def heard(*arguments: Any, **keywords: Any) -> Any:
        result = method(*arguments, **keywords)
        listener(result)
        return result

    setattr(owner, name, heard)
