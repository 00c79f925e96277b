"""`python -m benchmarks.telemetry [--quick] [--json FILE]`: what our telemetry costs inside of vLLM's scheduler.

One of vLLM's schedulers runs a load of 64 requests, and its connector is ours and upstream's in turn, step by step. Ten steps of
each make a block, in which a quarter of a second of an engine's time passes and one measurement falls due. `difference` is that
between both sides of two blocks, median of all, as a share of the side without telemetry, in processor time of the scheduler's
thread. `inside` is the time inside of the telemetry's own calls. The cost is the larger one in decode; in prefill, steps differ
from each other by many times what telemetry costs, so there it is `inside`. The figure is the largest cost.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.policy_cases import Case, Phase
from benchmarks.telemetry_upstream import STEPS_PER_BLOCK
from tests.contract.oracle import python_path
from tools.upstream import upstream

_GOAL_PERCENT = 1.0
_VERSION = "0.33"
_BLOCKS, _QUICK_BLOCKS, _PREFILL_BLOCKS = 600, 200, 100
_NUM_REQUESTS, _NUM_PAGES = 64, 1250
_REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Milliseconds of a step without telemetry, and percents of it; `spread_percent`: the middle half of the differences."""

    phase: str
    num_groups: int
    step_ms: float
    difference_percent: float
    spread_percent: float
    inside_percent: float
    measurement_us: float
    step_us: float

    @property
    def cost_percent(self) -> float:
        return max(self.difference_percent, self.inside_percent) if self.phase == "decode" else self.inside_percent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description="Cost of telemetry inside of vLLM.")
    parser.add_argument(
        "--quick", action="store_true", help=f"6 groups in decode only, {_QUICK_BLOCKS} blocks instead of {_BLOCKS}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON, too")
    arguments = parser.parse_args()
    print(f"{'phase   groups':18}{'step ms':>9}{'difference':>12}{'spread':>9}{'inside':>11}{'measurement':>13}{'a step':>9}")
    rows = []
    for row in measure(quick=arguments.quick):
        rows.append(row)
        print(
            f"{row.phase:8}{row.num_groups:6}{row.step_ms:13.2f}{row.difference_percent:11.2f}%{row.spread_percent:8.2f}%"
            f"{row.inside_percent:10.2f}%{row.measurement_us:10.0f} us{row.step_us:6.1f} us",
            flush=True,
        )
    figure = max(row.cost_percent for row in rows)
    report = {
        "benchmark": "telemetry",
        "command": shlex.join(["python", "-m", "benchmarks.telemetry", *sys.argv[1:]]),
        "figure_percent": figure,
        "goal_percent": _GOAL_PERCENT,
        "num_requests": _NUM_REQUESTS,
        "num_pages": _NUM_PAGES,
        "rows": [asdict(row) for row in rows],
        "machine": machine(vllm=_VERSION),
    }
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"telemetry: {figure:.1f} (goal <= {_GOAL_PERCENT:.0f})")
    return 0


def measure(*, quick: bool) -> list[Row]:
    """One process of vLLM for all cases."""
    phases: tuple[Phase, ...] = ("decode",) if quick else ("decode", "prefill")
    cases = [
        Case(phase=phase, num_requests=_NUM_REQUESTS, num_pages=_NUM_PAGES, num_groups=groups, with_hisparse=True)
        for phase in phases
        for groups in ((6,) if quick else (6, 20))
    ]
    blocks = {"decode": _QUICK_BLOCKS if quick else _BLOCKS, "prefill": _PREFILL_BLOCKS}
    environment = upstream(_VERSION)
    done = subprocess.run(
        [str(environment.python), "-m", "benchmarks.telemetry_upstream"],
        cwd=_REPOSITORY,
        env={**os.environ, **environment.environment, "PYTHONPATH": python_path(environment)},
        input="".join(json.dumps({"case": asdict(case), "blocks": blocks[case.phase]}) + "\n" for case in cases),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"vLLM's process ended with {done.returncode}\n{done.stderr[-3000:]}")
    return [_row(case, json.loads(line)) for case, line in zip(cases, done.stdout.splitlines(), strict=True)]


def _row(case: Case, answer: dict[str, Any]) -> Row:
    with_ms, without_ms = _in_twos(answer["with_ms"]), _in_twos(answer["without_ms"])
    block_ms = statistics.median(without_ms)
    differences = sorted(100 * (one - other) / block_ms for one, other in zip(with_ms, without_ms, strict=True))
    quarter = len(differences) // 4
    return Row(
        phase=case.phase,
        num_groups=case.num_groups,
        step_ms=block_ms / STEPS_PER_BLOCK,
        difference_percent=statistics.median(differences),
        spread_percent=differences[-1 - quarter] - differences[quarter],
        inside_percent=100 * answer["own_ms"] / answer["total_ms"],
        measurement_us=answer["measurement_us"],
        step_us=answer["step_us"],
    )


def _in_twos(blocks_ms: list[float]) -> list[float]:
    """What recurs every few steps falls on one side in a block, and on the other in the next."""
    return [(one + other) / 2 for one, other in zip(blocks_ms[::2], blocks_ms[1::2], strict=True)]


if __name__ == "__main__":
    sys.exit(main())
