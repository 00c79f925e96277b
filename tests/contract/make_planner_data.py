"""`python -m tests.contract.make_planner_data [VERSION ...]`: asks vLLM all cases anew and writes the data files."""

import argparse
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.contract.cases import cases
from tests.contract.data import Row, save_answers
from tests.contract.oracle import ask
from tools.bootstrap import Timeline
from tools.upstream import VERSIONS, prepare

TIMEOUT_SECONDS = 1800.0
NUM_AT_A_TIME = 2  # each keeps one core busy and needs 1 GB


def main() -> int:
    parser = argparse.ArgumentParser(prog="make_planner_data", description="Writes tests/contract/data from vLLM's own answers.")
    parser.add_argument("versions", nargs="*", default=list(VERSIONS), metavar="VERSION", help=f"of {', '.join(VERSIONS)}")
    versions = parser.parse_args().versions
    timeline = Timeline()
    prepare(timeline=timeline)

    def make(version: str) -> None:
        wanted = cases(version)
        answers = ask(version, wanted, timeout_seconds=TIMEOUT_SECONDS)
        save_answers(version, [Row(case, answer) for case, answer in zip(wanted, answers, strict=True)])
        stages = Counter(answer["refused"]["stage"] if "refused" in answer else "planned" for answer in answers)
        timeline.say(
            f"{version}: {len(answers)} answers: {', '.join(f'{number} {stage}' for stage, number in stages.most_common())}"
        )

    with ThreadPoolExecutor(max_workers=NUM_AT_A_TIME) as pool:
        for _ in pool.map(make, versions):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
