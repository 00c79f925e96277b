"""`python -m benchmarks.policy [--quick] [--json FILE]`: residency work per scheduler step, vLLM's and ours under the same load.

Residency work is what a step costs with HiSparse beyond what it costs without it, in the same scheduler under the same load. All
four are measured in turn, round by round, so that a change of the machine's speed meets them all. The figure is how many times
vLLM's residency work is ours, at 64 requests x 1,250 pages x 20 groups, in decode or prefill, whichever is less.
"""

import argparse
import gc
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.pauses import Pauses
from benchmarks.policy_bytes import bytes_per_page
from benchmarks.policy_cases import Case, Phase, cases
from benchmarks.policy_flat import FLAT_GOAL, NUM_REQUESTS, Flatness, measure_flatness
from benchmarks.policy_ours import Session
from tests.contract.workloads import PAGE_TOKENS
from tools.upstream import upstream

_GOAL = 10.0
_MAX_STEP_MS = 10.0
_VERSION = "0.32"
_ROUNDS, _QUICK_ROUNDS = 8, 3
# All requests of the load reach the end of a page in the same step, the slowest in decode: each round has one such step.
# Of ours, which take a fraction of the time, there are more: their residency work is a small difference.
_STEPS = {"vllm": PAGE_TOKENS, "ours": 4 * PAGE_TOKENS}
_FIGURE_REQUESTS, _FIGURE_PAGES, _FIGURE_GROUPS = 64, 1250, 20
_REPOSITORY = Path(__file__).resolve().parents[1]

Run = Callable[[int], list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Milliseconds of steps: medians with and without HiSparse, the residency work between their means, the slowest with it.

    Residency work is the median over rounds, `least_ms` and `most_ms` its least and most. `slow_ms` is the slowest step in the
    time of a page, in which all requests begin one: the median over all such times. `slowest_ms` is the slowest of all. All in
    processor time of the scheduler's thread, so that what else the machine does does not count, but for its cold caches.
    """

    with_ms: float
    without_ms: float
    residency_ms: float
    least_ms: float
    most_ms: float
    slow_ms: float
    slowest_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    phase: str
    num_requests: int
    num_pages: int
    num_groups: int
    vllm: Side | None
    ours: Side

    @property
    def ratio(self) -> float:
        """How many times our residency work is vLLM's."""
        return self.vllm.residency_ms / self.ours.residency_ms if self.vllm is not None else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy", description="Residency work per scheduler step.")
    parser.add_argument("--quick", action="store_true", help="1 and 64 requests x 1,250 pages, fewer rounds, no flatness")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON, too")
    parser.add_argument("--ours", action="store_true", help="without vLLM, which takes most of the time: no figure then")
    arguments = parser.parse_args()
    rounds = _QUICK_ROUNDS if arguments.quick else _ROUNDS
    pairs = [case for case in cases(quick=arguments.quick) if case.with_hisparse]
    rows, pauses = [], Pauses()
    print(_HEADER)
    with nullcontext() if arguments.ours else Upstream() as vllm:
        for case in pairs:
            rows.append(measure(case, vllm, pauses, rounds=rounds))
            print(_line(rows[-1]), flush=True)
    flatness = [] if arguments.quick else [measure_flatness(phase) for phase in _PHASES]
    figured = [row for row in rows if (row.num_requests, row.num_pages, row.num_groups) == _FIGURE]
    figure = None if arguments.ours else min(row.ratio for row in figured)
    report = {
        "benchmark": "policy",
        "command": shlex.join(["python", "-m", "benchmarks.policy", *sys.argv[1:]]),
        "figure": figure,
        "goal": _GOAL,
        "rows": [asdict(row) for row in rows],
        "flatness": [asdict(each) for each in flatness],
        "pauses": pauses.summary(),
        "machine": machine(vllm=_VERSION, numpy=np.__version__),
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"bytes per page of ours: {bytes_per_page(20):.0f} at 20 groups, {bytes_per_page(6):.0f} at 6")
    for each in flatness:
        print(_flat_line(each))
    for num_requests in sorted({row.num_requests for row in rows}):
        ours = [row.ours for row in rows if row.num_requests == num_requests]
        slow, slowest = max(side.slow_ms for side in ours), max(side.slowest_ms for side in ours)
        print(
            f"slowest step of ours at {num_requests} requests: {slow:.1f} ms in the time of a page, {slowest:.1f} ms at all"
            f" (goal <= {_MAX_STEP_MS:.0f})"
        )
    print("the same {loop_ms:.1f} ms of computing took up to {slowest_loop_ms:.1f} ms meanwhile".format(**pauses.summary()))
    if figure is not None:
        print(f"policy: {figure:.1f} (goal >= {_GOAL:.0f})")
    return 0


_FIGURE = (_FIGURE_REQUESTS, _FIGURE_PAGES, _FIGURE_GROUPS)
_PHASES: tuple[Phase, ...] = ("decode", "prefill")
_HEADER = (
    f"{'':34}{'vLLM ' + _VERSION + ', ms a step':>41}{'ours, ms a step':>43}\n"
    f"{'phase   requests   pages   groups':34}{'without':>10}{'with':>8}{'residency':>11}{'slow':>7}{'max':>9}"
    f"{'without':>10}{'with':>8}{'residency':>11}{'slow':>7}{'max':>7}{'ratio':>8}"
)


def measure(case: Case, vllm: "Upstream | None", pauses: Pauses, *, rounds: int) -> Row:
    """Rounds of vLLM's and our steps in turn, with HiSparse and without; of a large case one after the other.

    Beside them as many loops for the machine's pauses as we take steps.
    """
    openers = {
        (name, with_hisparse): partial(opener, replace(case, with_hisparse=with_hisparse))
        for with_hisparse in (True, False)
        for name, opener in (("ours", _open_ours), *((("vllm", vllm.open),) if vllm is not None else ()))
    }
    seconds: dict[tuple[str, bool], list[list[float]]] = {side: [] for side in openers}
    with ExitStack() as stack:
        runs = {}
        for side, opener in openers.items():
            if case.is_large:
                with opener() as run:
                    for _ in range(rounds):
                        seconds[side].append(run(_STEPS[side[0]]))
                        pauses.measure(_STEPS["ours"] // len(openers))
            else:
                runs[side] = stack.enter_context(opener())
        for _ in range(rounds if runs else 0):
            for side, run in runs.items():
                seconds[side].append(run(_STEPS[side[0]]))
                pauses.measure(_STEPS["ours"] // len(openers))
    return Row(
        phase=case.phase,
        num_requests=case.num_requests,
        num_pages=case.num_pages,
        num_groups=case.num_groups,
        vllm=_side(seconds["vllm", True], seconds["vllm", False]) if vllm is not None else None,
        ours=_side(seconds["ours", True], seconds["ours", False]),
    )


@contextmanager
def _open_ours(case: Case) -> Iterator[Run]:
    sessions = [Session(case)]

    def run(num_steps: int) -> list[float]:
        return sessions[0].run(num_steps)

    yield run
    sessions.clear()  # whoever still has the function has no session with it
    gc.unfreeze()  # sessions freeze what they make, which is gigabytes in the largest cases
    gc.collect()


def _side(with_s: Sequence[Sequence[float]], without_s: Sequence[Sequence[float]]) -> Side:
    """Of rounds of steps."""
    rounds = [1e3 * (statistics.fmean(one) - statistics.fmean(other)) for one, other in zip(with_s, without_s, strict=True)]
    return Side(
        with_ms=1e3 * statistics.median(chain.from_iterable(with_s)),
        without_ms=1e3 * statistics.median(chain.from_iterable(without_s)),
        residency_ms=statistics.median(rounds),
        least_ms=min(rounds),
        most_ms=max(rounds),
        slow_ms=1e3
        * statistics.median(max(one[at : at + PAGE_TOKENS]) for one in with_s for at in range(0, len(one), PAGE_TOKENS)),
        slowest_ms=1e3 * max(chain.from_iterable(with_s)),
    )


class Upstream(AbstractContextManager["Upstream"]):
    """vLLM's scheduler in its own environment (`policy_upstream`)."""

    def __init__(self) -> None:
        environment = upstream(_VERSION)
        self._process = subprocess.Popen(
            [str(environment.python), "-m", "benchmarks.policy_upstream"],
            cwd=_REPOSITORY,
            env={**os.environ, **environment.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    @contextmanager
    def open(self, case: Case) -> Iterator[Run]:
        """A scheduler with its load: it gives seconds of the processor in each step."""
        session = int(self._ask({"open": asdict(case)})["session"])

        def run(num_steps: int) -> list[float]:
            answer = self._ask({"session": session, "steps": num_steps})
            return [first + second for first, second in zip(answer["schedule_s"], answer["update_s"], strict=True)]

        yield run
        self._ask({"close": session})

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"vLLM's process ended with {self._process.wait()} at {command}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()


def _line(row: Row) -> str:
    vllm = _numbers(row.vllm, 9) if row.vllm is not None else " " * 45
    ratio = f"{row.ratio:8.1f}" if row.vllm is not None else ""
    return f"{row.phase:10}{row.num_requests:6,}{row.num_pages:10,}{row.num_groups:8}{vllm}{_numbers(row.ours, 7)}{ratio}"


def _numbers(side: Side, width: int) -> str:
    return f"{side.without_ms:10.2f}{side.with_ms:8.2f}{side.residency_ms:11.3f}{side.slow_ms:7.1f}{side.slowest_ms:{width}.1f}"


def _flat_line(flatness: Flatness) -> str:
    sizes = ", ".join(
        f"{size.num_pages:,} x {size.num_groups}: {size.residency_ms:.3f} ({size.low_ms:.3f} to {size.high_ms:.3f})"
        for size in flatness.sizes
    )
    return (
        f"{flatness.phase} of ours at {NUM_REQUESTS} requests, ms a step: {sizes}; {flatness.by_pages:.2f} times by pages,"
        f" {flatness.by_groups:.2f} times by groups (goal <= {FLAT_GOAL})"
    )


if __name__ == "__main__":
    sys.exit(main())
