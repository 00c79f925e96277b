"""From the engine's start to the end of its last process: signals are obeyed at any moment, and every wait has an end.

While nothing can be running, a stop is at once. An engine that serves gets what the plan has for it:

    SIGTERM to us       SIGTERM to the leader                                  SIGKILL to the group
       |-- readiness pulled --|-- drain_seconds: requests finish --|-- unpin_seconds --|
"""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from hisparse_runtime.vllm.launch.engine_process import EngineProcess
from hisparse_runtime.vllm.launch.stages import Stage
from hisparse_runtime.vllm.launch.state import LaunchState
from hisparse_runtime.vllm.pod_plan import PodPlan

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
WAITED_SIGNALS = (*STOP_SIGNALS, signal.SIGCHLD)
"""Blocked in every thread before the engine starts: they are waited for, and interrupt nothing."""
_POLL_SECONDS = 0.2
# For processes that no request depends on: they are importing or loading, or their leader has died.
_ABORT_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How it ended, and in which stage that began.

    `exit_code` is the leader's, -N for a signal; of an engine that was stopped before it served, always that of SIGTERM.
    `killed_after_seconds`: one that served had to be killed, so long after it was asked to stop.
    """

    stage: Stage
    exit_code: int
    is_asked: bool
    killed_after_seconds: float | None


def supervise(
    engine: EngineProcess, *, plan: PodPlan, state: LaunchState, is_healthy: Callable[[], bool], say: Callable[[str], None]
) -> Ending:
    """Returns when nothing of the engine is left, or cannot be killed. WAITED_SIGNALS must be blocked."""
    number = _stop_signal(engine)
    # The engine may have begun to serve since it was last looked at.
    is_serving = state.is_answering or (number is not None and is_healthy())
    if number is not None and is_serving:
        state.engine_answers()
    stage = state.stage
    state.stop_asked()
    start_seconds = time.monotonic()
    if number is None:
        say("the engine ended by itself; ending the rest of its processes")
        engine.signal_group(signal.SIGTERM)
        grace_seconds = _ABORT_SECONDS
    elif is_serving:
        grace_seconds = float(plan.drain_seconds + plan.unpin_seconds)
        say(f"{number.name}: running requests get {plan.drain_seconds} s, pinned memory {plan.unpin_seconds} s after that")
        # The leader only: workers end at once, and the requests with them.
        engine.signal_leader(signal.SIGTERM)
    else:
        say(f"{number.name} before the engine serves: it is ended at once")
        engine.signal_group(signal.SIGTERM)
        grace_seconds = _ABORT_SECONDS
    killed_after_seconds = None
    if not _group_ends(engine, within_seconds=grace_seconds, on_leader_end=state.engine_ended):
        killed_after_seconds = time.monotonic() - start_seconds
        say(f"not ended after {killed_after_seconds:.0f} s: killed")
        engine.signal_group(signal.SIGKILL)
        # The kernel gives pinned memory back, which takes its time, too.
        _group_ends(engine, within_seconds=_ABORT_SECONDS + plan.unpin_seconds, on_leader_end=state.engine_ended)
    if number is not None and not is_serving:
        # vLLM only takes a note of SIGTERM while it loads: SIGKILL is how that ends, and no sign of too little memory.
        return Ending(stage=stage, exit_code=-signal.SIGTERM, is_asked=True, killed_after_seconds=None)
    return Ending(
        stage=stage,
        exit_code=-signal.SIGKILL if engine.exit_code is None else engine.exit_code,
        is_asked=number is not None,
        killed_after_seconds=killed_after_seconds,
    )


def _stop_signal(engine: EngineProcess) -> signal.Signals | None:
    """None: the leader has ended by itself."""
    while True:
        number = _wait_for_signal(1.0)
        engine.reap()
        if number in STOP_SIGNALS:
            return number
        if engine.exit_code is not None:
            return None


def _group_ends(engine: EngineProcess, *, within_seconds: float, on_leader_end: Callable[[], None]) -> bool:
    """Further stop signals change nothing: a kubelet that was restarted sends SIGTERM again, in the middle of a drain."""
    deadline = time.monotonic() + within_seconds
    while True:
        engine.reap()
        if engine.exit_code is not None:
            on_leader_end()
        if not engine.is_group_alive:
            return True
        if time.monotonic() >= deadline:
            return False
        # Grandchildren end without a signal to us as long as their parents live.
        _wait_for_signal(_POLL_SECONDS)


def _wait_for_signal(timeout_seconds: float) -> signal.Signals | None:
    found = signal.sigtimedwait(WAITED_SIGNALS, timeout_seconds)
    return None if found is None else signal.Signals(found.si_signo)
