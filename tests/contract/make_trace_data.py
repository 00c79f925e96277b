"""`python -m tests.contract.make_trace_data [KIND ...]`: asks vLLM for the traces anew and writes the data files.

The file of a kind holds what vLLM 0.32 does. Where 0.33 does something else, its trace is in a file of its own.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.contract.scheduling_oracle import Failure, upstream_traces
from tests.contract.trace_data import DEVIATING_VERSION, REFERENCE_VERSION, save_deviations, save_reference
from tests.contract.traces import Trace, differences
from tests.contract.workload_agents import agent_workloads
from tests.contract.workload_random import KINDS, random_workload
from tests.contract.workloads import Workload
from tools.bootstrap import Timeline
from tools.upstream import prepare

AGENTS = "agents"
SEEDS_PER_KIND = 24
TIMEOUT_SECONDS = 1800.0


def workloads(kind: str) -> list[Workload]:
    """All of a kind."""
    if kind == AGENTS:
        return agent_workloads()
    return [random_workload(name, seed) for name in KINDS if name == kind for seed in range(SEEDS_PER_KIND)]


def is_different(one: Trace, other: Trace) -> bool:
    """In any field of any step."""
    pairs = zip(one.steps, other.steps, strict=False)
    return len(one.steps) != len(other.steps) or one.limits != other.limits or any(differences(*pair) for pair in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make_trace_data", description="Writes tests/contract/data from vLLM's own scheduler.")
    parser.add_argument("kinds", nargs="*", default=[*KINDS, AGENTS], metavar="KIND", help=f"of {', '.join(KINDS)}, {AGENTS}")
    kinds = parser.parse_args().kinds
    timeline = Timeline()
    prepare(timeline=timeline)
    wanted = {kind: workloads(kind) for kind in kinds}

    def ask(version: str) -> dict[str, Trace]:
        flat = [workload for kind in kinds for workload in wanted[kind]]
        answers = list(upstream_traces(version, flat, timeout_seconds=TIMEOUT_SECONDS))
        for failure in answers:
            if isinstance(failure, Failure):
                timeline.say(f"vLLM {version} fails at {failure.workload}: {failure.error}")
        return {answer.workload.name: answer for answer in answers if isinstance(answer, Trace)}

    with ThreadPoolExecutor() as pool:
        reference, deviating = pool.map(ask, (REFERENCE_VERSION, DEVIATING_VERSION))
    for kind in kinds:
        names = [workload.name for workload in wanted[kind]]
        deviations = [deviating[name] for name in names if name in deviating and is_different(deviating[name], reference[name])]
        save_reference(kind, [reference[name] for name in names])
        save_deviations(kind, deviations)
        num_steps = sum(len(reference[name].steps) for name in names)
        timeline.say(f"{kind}: {len(names)} workloads, {num_steps} steps; {len(deviations)} differ in {DEVIATING_VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
