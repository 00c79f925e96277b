"""`python -m benchmarks.plan [--quick] [--json FILE]`: how long a process of `hisparse plan` takes, from start to exit.

Every form is a process of its own, run in turn with an interpreter that does nothing. Bytecode is cached, as after any first run.
The figure is the processor time (user and system) of the slowest form, median of the rounds; a busy machine moves it less than
the time on the wall.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import machine

_GOAL_SECONDS = 0.5
_ROUNDS = 30
_QUICK_ROUNDS = 7
_NOTHING = "an interpreter"
_DEPLOYMENT = """\
apiVersion: hisparse.dev/v1alpha1
kind: HiSparseDeployment
metadata: {name: glm}
spec:
  model: {name: zai-org/GLM-5.3}
  engine:
    type: VLLM
    maxModelLen: 142000
    vllm: {gpu: H200, tensorParallelSize: 8, kvCacheDtype: fp8}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of one form, medians of the rounds, and the slowest round."""

    cpu_seconds: float
    wall_seconds: float
    slowest_cpu_seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description="Process time of `hisparse plan`.")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_ROUNDS} rounds instead of {_ROUNDS}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON, too")
    arguments = parser.parse_args()
    rounds = _QUICK_ROUNDS if arguments.quick else _ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        timings = measure(_forms(Path(folder)), rounds=rounds)
    print(f"{'':24}{'cpu s':>8}{'wall s':>8}{'slowest':>9}   median of {rounds} rounds")
    for name, timing in timings.items():
        print(f"{name:24}{timing.cpu_seconds:8.3f}{timing.wall_seconds:8.3f}{timing.slowest_cpu_seconds:9.3f}")
    figure = max(timing.cpu_seconds for timing in timings.values())
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(_report(timings, rounds=rounds, figure=figure), indent=2) + "\n", encoding="utf-8")
    print(f"plan: {figure:.2f} (goal <= {_GOAL_SECONDS})")
    return 0


def measure(forms: dict[str, list[str]], *, rounds: int) -> dict[str, Timing]:
    """Runs all forms in each round, so that a change of the machine's speed meets them all. The first round is not counted."""
    cpu: dict[str, list[float]] = {name: [] for name in forms}
    wall: dict[str, list[float]] = {name: [] for name in forms}
    for number in range(rounds + 1):
        for name, command in forms.items():
            cpu_seconds, wall_seconds = _run(command)
            if number:
                cpu[name].append(cpu_seconds)
                wall[name].append(wall_seconds)
    return {
        name: Timing(
            cpu_seconds=statistics.median(cpu[name]),
            wall_seconds=statistics.median(wall[name]),
            slowest_cpu_seconds=max(cpu[name]),
        )
        for name in forms
    }


def _forms(folder: Path) -> dict[str, list[str]]:
    file = folder / "glm.yaml"
    file.write_text(_DEPLOYMENT, encoding="utf-8")
    plan = [sys.executable, "-c", "from hisparse_runtime.cli import app; app()", "plan"]
    flags = [*plan, "--model", "zai-org/GLM-5.3", "--gpu", "H200", "--kv-cache-dtype", "fp8", "--max-model-len", "142000"]
    return {
        _NOTHING: [sys.executable, "-c", "pass"],
        "plan -o json": [*flags, "-o", "json"],
        "plan": flags,
        "plan --explain": [*flags, "--explain"],
        "plan --compare": [*flags[:-2], "--compare", "64K,128K,256K,512K,1M"],
        "plan -f": [*plan, "-f", str(file)],
        "plan -f -o yaml": [*plan, "-f", str(file), "-o", "yaml"],
    }


def _run(command: list[str]) -> tuple[float, float]:
    """Processor and wall seconds of one process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = os.posix_spawn(
        command[0], command, environment, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    )
    _, status, usage = os.wait4(process, 0)
    wall_seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, wall_seconds


def _report(timings: dict[str, Timing], *, rounds: int, figure: float) -> dict[str, object]:
    return {
        "benchmark": "plan",
        "command": shlex.join(["python", "-m", "benchmarks.plan", *sys.argv[1:]]),
        "figure_cpu_seconds": figure,
        "goal_seconds": _GOAL_SECONDS,
        "rounds": rounds,
        "forms": {name: asdict(timing) for name, timing in timings.items()},
        "machine": machine(),
    }


if __name__ == "__main__":
    sys.exit(main())
