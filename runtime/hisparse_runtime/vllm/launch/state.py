"""What the launcher's threads know together: how far the engine is, and whether it is to go."""

import threading
import time
from collections.abc import Callable
from typing import Any

from hisparse_runtime.vllm.launch.measure import Measured, pinned_bytes
from hisparse_runtime.vllm.launch.stages import Facts, Pinning, Stage, pinning_after, stage_of
from hisparse_runtime.vllm.pod_plan import PodPlan

# A call of /drain that no SIGTERM follows was not the kubelet's: the pod serves again, instead of never.
_LAPSE_SECONDS = 60.0


class LaunchState:
    """Every method can be called from every thread, and returns at once."""

    def __init__(self, plan: PodPlan, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._clock = clock
        self._lock = threading.RLock()
        self._engine_start_seconds: float | None = None
        self._drain_until_seconds: float | None = None
        self._num_processes = 0
        self._pinning = Pinning(planned_bytes=plan.all_host_pools_bytes + plan.cpu_bytes_to_use * plan.data_parallel_size)
        self._is_answering = False
        self._is_asked_to_stop = False
        self._has_ended = False
        self.process_group: int | None = None
        self._stage = Stage.PREFLIGHT
        self._stage_start_seconds = clock()

    def engine_started(self, process_group: int) -> None:
        with self._lock:
            self.process_group = process_group
            self._num_processes = 1
            self._engine_start_seconds = self._clock()
            self._advance()

    def engine_answers(self) -> None:
        """Once is enough: from then on requests can be running."""
        with self._lock:
            self._is_answering = True
            self._advance()

    def engine_ended(self) -> None:
        with self._lock:
            self._has_ended = True
            self._advance()

    def call_drain(self, *, seconds: float) -> None:
        """Not ready any more, ahead of a SIGTERM within about `seconds`."""
        with self._lock:
            until_seconds = self._clock() + seconds + _LAPSE_SECONDS
            self._drain_until_seconds = max(until_seconds, self._drain_until_seconds or 0.0)
            self._advance()

    def stop_asked(self) -> None:
        with self._lock:
            self._is_asked_to_stop = True
            self._advance()

    def observe(self, measured: Measured) -> None:
        with self._lock:
            # Of a started engine, fewer only means that it is about to end: no stage comes again.
            self._num_processes = max(self._num_processes, measured.num_processes)
            self._pinning = pinning_after(self._pinning, pinned_bytes=pinned_bytes(measured, self._plan))
            self._advance()

    @property
    def stage(self) -> Stage:
        with self._lock:
            self._advance()
            return self._stage

    @property
    def is_answering(self) -> bool:
        return self._is_answering

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def engine_seconds(self) -> float:
        """Since the engine was started; 0 before."""
        start_seconds = self._engine_start_seconds
        return 0.0 if start_seconds is None else self._clock() - start_seconds

    def progress(self) -> dict[str, Any]:
        """The body of /hisparse/progress. `startup_seconds` is what the plan allows for `engine_seconds` until SERVING."""
        with self._lock:
            self._advance()
            return {
                "stage": str(self._stage),
                "stage_seconds": round(self._clock() - self._stage_start_seconds, 3),
                "engine_seconds": round(self.engine_seconds, 3),
                "startup_seconds": self._plan.startup_seconds,
                "pinned_bytes": self._pinning.pinned_bytes,
                "planned_pinned_bytes": self._pinning.planned_bytes,
                "pin_passes": self._pinning.passes,
            }

    def _advance(self) -> None:
        now_seconds = self._clock()
        stage = stage_of(
            Facts(
                num_processes=self._num_processes,
                pinning=self._pinning,
                is_answering=self._is_answering,
                is_draining=self._drain_until_seconds is not None and now_seconds < self._drain_until_seconds,
                is_asked_to_stop=self._is_asked_to_stop,
                has_ended=self._has_ended,
            )
        )
        if stage is not self._stage:
            self._stage, self._stage_start_seconds = stage, now_seconds
