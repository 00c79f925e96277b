"""What the launcher's threads know together, over time."""

from dataclasses import replace

from hisparse_runtime.vllm.launch.measure import Measured
from hisparse_runtime.vllm.launch.state import LaunchState
from tests.unit.vllm.launch.launched import PLAN


class Clock:
    now_seconds = 1000.0

    def __call__(self) -> float:
        return self.now_seconds


def measured(*, shm_used_bytes: int = 0, num_processes: int = 1) -> Measured:
    return Measured(shm_used_bytes=shm_used_bytes, anonymous_bytes=0, num_processes=num_processes)


def test_progress_has_the_stage_since_when_and_what_is_pinned() -> None:
    clock = Clock()
    plan = replace(PLAN, host_pool_bytes=800, shares_host_pool=True, cpu_bytes_to_use=100, data_parallel_size=2)
    state = LaunchState(plan, clock=clock)
    clock.now_seconds += 2
    assert (state.progress()["stage"], state.progress()["stage_seconds"]) == ("preflight", 2)
    state.engine_started(77)
    clock.now_seconds += 10
    state.observe(measured(shm_used_bytes=900, num_processes=4))
    clock.now_seconds += 3
    assert state.progress() == {
        "stage": "pinning",
        "stage_seconds": 3,
        "engine_seconds": 13,
        "startup_seconds": 60,
        "pinned_bytes": 900,
        "planned_pinned_bytes": 1800,
        "pin_passes": 0,
    }


def test_an_engine_that_just_died_is_not_said_to_be_before_its_start() -> None:
    state = LaunchState(PLAN, clock=Clock())
    state.engine_started(77)
    state.observe(measured(num_processes=0))
    assert state.stage == "starting"


def test_a_drain_that_no_stop_follows_lapses_after_a_minute() -> None:
    clock = Clock()
    state = LaunchState(PLAN, clock=clock)
    state.engine_started(77)
    state.engine_answers()
    state.call_drain(seconds=5)
    clock.now_seconds += 64.9
    assert state.stage == "draining"
    clock.now_seconds += 0.2
    assert state.stage == "serving"


def test_a_drain_that_a_stop_follows_does_not_lapse() -> None:
    clock = Clock()
    state = LaunchState(PLAN, clock=clock)
    state.engine_answers()
    state.call_drain(seconds=5)
    state.stop_asked()
    clock.now_seconds += 1000
    assert state.stage == "draining"
    state.engine_ended()
    assert state.stage == "stopping"
