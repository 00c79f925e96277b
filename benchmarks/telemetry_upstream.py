"""`python -m benchmarks.telemetry_upstream`, inside vLLM's environment: times vLLM's scheduler with our telemetry and without.

A JSON object a line on standard input, and one back: `{"case": CASE, "blocks": 60}` (fields of `policy_cases.Case`) runs so many
blocks of steps, and answers with the milliseconds of each block on both sides, and with what the telemetry's own calls take. It
is one scheduler all the time, whose connector is ours and upstream's in turn: two of them differ by more than telemetry costs.
"""

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from benchmarks.policy_cases import Case
from tests.contract.upstream_side.scheduling_answer import start

CONNECTOR = "hisparse_runtime.vllm.telemetry.connector"
# A step of a GPU takes this long; without one, steps follow each other faster than they ever will, and measurements are rarer.
STEP_SECONDS = 0.025
STEPS_PER_BLOCK = 10  # one measurement: four a second
NUM_CALLS = 300


def main() -> int:
    output = start()
    for line in sys.stdin:
        command = json.loads(line)
        output.write(json.dumps(_measure(Case(**command["case"]), num_blocks=command["blocks"])) + "\n")
        output.flush()
        gc.unfreeze()
        gc.collect()
    return 0


class _Clock:
    """The wall clock of an engine whose steps take STEP_SECONDS."""

    def __init__(self) -> None:
        self.num_steps = 0

    def __call__(self) -> float:
        return self.num_steps * STEP_SECONDS


def _measure(case: Case, *, num_blocks: int) -> dict[str, Any]:
    from benchmarks.policy_upstream import Session  # noqa: PLC0415  after vLLM's platform

    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    session = Session(case, hisparse_module=CONNECTOR, log_stats=True)
    connectors = session.scheduler.connector._connectors  # noqa: SLF001  there is no public way
    connector = next(one for one in connectors if hasattr(one, "reporter"))
    ours, upstream = type(connector), type(connector).__base__
    clock = connector.reporter.clock = _Clock()
    gc.collect()
    gc.freeze()  # as the engine core does once it is built
    blocks: dict[bool, list[float]] = {True: [], False: []}
    for number in range(num_blocks + 1):
        spent = dict.fromkeys(blocks, 0.0)
        for step in range(2 * STEPS_PER_BLOCK):
            # All requests reach the end of a page in the same step: let it be one side's as often as the other's.
            with_telemetry = bool((step + number) % 2)
            connector.__class__ = ours if with_telemetry else upstream
            clock.num_steps += with_telemetry
            answer = session.run(1)
            spent[with_telemetry] += answer["schedule_s"][0] + answer["update_s"][0]
        if number:  # the first one warms up
            for side, seconds in spent.items():
                blocks[side].append(1e3 * seconds)
    connector.__class__ = ours
    own_ms, total_ms = _time_inside(session, connector, clock, num_blocks=max(num_blocks // 4, 10))
    return {
        "with_ms": blocks[True],
        "without_ms": blocks[False],
        "own_ms": own_ms,
        "total_ms": total_ms,
        **_single_calls(session.scheduler, connector, upstream),
    }


def _time_inside(session: Any, connector: Any, clock: _Clock, *, num_blocks: int) -> tuple[float, float]:
    """Milliseconds inside of the telemetry, and of all steps. All that it does in an engine core goes through its guard."""
    guard = connector.reporter.guard
    run, spent, is_inside = guard.run, 0.0, False

    def timed(*arguments: Any, **keywords: Any) -> Any:
        nonlocal spent, is_inside
        if is_inside:
            return run(*arguments, **keywords)
        is_inside, begin = True, time.perf_counter()
        try:
            return run(*arguments, **keywords)
        finally:
            spent += time.perf_counter() - begin
            is_inside = False

    guard.run, total = timed, 0.0
    for _ in range(num_blocks * STEPS_PER_BLOCK):
        clock.num_steps += 1
        answer = session.run(1)
        total += answer["schedule_s"][0] + answer["update_s"][0]
    guard.run = run
    return 1e3 * spent, 1e3 * total


def _single_calls(scheduler: Any, connector: Any, upstream: Any) -> dict[str, float]:
    """Microseconds of a measurement, and of a step that has none: the clock stands."""
    from vllm.v1.request import RequestStatus  # type: ignore[import-not-found]  # noqa: PLC0415  vLLM's own environment

    from hisparse_runtime.vllm.telemetry.levels import pool_levels, request_levels, sizes_of  # noqa: PLC0415  installed there

    coordinator, requests = connector.connector_scheduler.coordinator, connector.connector_scheduler.requests
    sizes = sizes_of(scheduler.kv_cache_config, num_workers=1, steady_state_concurrency=None)
    nothing_to_copy = SimpleNamespace(command=None)
    return {
        "measurement_us": _microseconds(lambda: request_levels(coordinator, requests.values(), running=RequestStatus.RUNNING))
        + _microseconds(lambda: pool_levels(coordinator, sizes)),
        "step_us": _microseconds(connector.get_kv_connector_stats)
        - _microseconds(lambda: upstream.get_kv_connector_stats(connector))
        + _microseconds(lambda: connector.reporter.count_transfers(nothing_to_copy)),
    }


def _microseconds(call: Callable[[], Any]) -> float:
    """The median; calls are too short for the clock, so a hundred at a time."""
    times = []
    for _ in range(NUM_CALLS // 10):
        begin = time.perf_counter()
        for _ in range(100):
            call()
        times.append((time.perf_counter() - begin) * 1e4)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
