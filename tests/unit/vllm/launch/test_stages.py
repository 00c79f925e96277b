"""Facts about an engine, and the stage that it is in."""

import pytest

from hisparse_runtime.vllm.launch.stages import Facts, Pinning, Stage, pinning_after, stage_of

NO_POOLS = Pinning(planned_bytes=0)


def pinned(*steps_bytes: int, planned_bytes: int = 1000) -> Pinning:
    pinning = Pinning(planned_bytes=planned_bytes)
    for step_bytes in steps_bytes:
        pinning = pinning_after(pinning, pinned_bytes=step_bytes)
    return pinning


@pytest.mark.parametrize(
    ("facts", "stage"),
    [
        (Facts(num_processes=0, pinning=NO_POOLS), Stage.PREFLIGHT),
        (Facts(num_processes=1, pinning=NO_POOLS), Stage.STARTING),
        (Facts(num_processes=3, pinning=NO_POOLS), Stage.LOADING),
        # Queues between processes are no pool.
        (Facts(num_processes=9, pinning=pinned(49)), Stage.LOADING),
        (Facts(num_processes=9, pinning=pinned(50)), Stage.PINNING),
        (Facts(num_processes=9, pinning=pinned(50, 990)), Stage.WARMING),
        # The second pass of vLLM 0.30 to 0.32, and its beginning.
        (Facts(num_processes=9, pinning=pinned(1000, 0)), Stage.PINNING),
        (Facts(num_processes=9, pinning=pinned(1000, 600)), Stage.WARMING),
        (Facts(num_processes=9, pinning=pinned(1000), is_answering=True), Stage.SERVING),
        (Facts(num_processes=9, pinning=NO_POOLS, is_answering=True, is_draining=True), Stage.DRAINING),
        (Facts(num_processes=9, pinning=NO_POOLS, is_answering=True, is_asked_to_stop=True), Stage.DRAINING),
        # /drain on an engine that does not serve yet changes nothing: it is not ready anyway.
        (Facts(num_processes=1, pinning=NO_POOLS, is_draining=True), Stage.STARTING),
        (Facts(num_processes=9, pinning=pinned(500), is_asked_to_stop=True), Stage.STOPPING),
        (Facts(num_processes=1, pinning=NO_POOLS, is_answering=True, is_asked_to_stop=True, has_ended=True), Stage.STOPPING),
    ],
)
def test_stage_follows_from_what_can_be_seen(facts: Facts, stage: Stage) -> None:
    assert stage_of(facts) is stage


def test_a_pool_that_is_filled_twice_is_counted_twice() -> None:
    assert pinned(0, 500, 1000, 1000, 400, 0, 300).passes == 1
    assert pinned(0, 500, 1000, 0, 990).passes == 2


def test_an_engine_without_pools_never_pins() -> None:
    assert pinned(0, 5, planned_bytes=0) == Pinning(planned_bytes=0, pinned_bytes=5)
