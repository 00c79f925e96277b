"""`python -m tests.contract.make_arguments_data [--options] [--anew] [VERSION ...]`: asks vLLM about new command lines.

With --anew, about all of them. With --options, the table of options that the runtime package reads is made first.
"""

import argparse
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.contract.arguments_data import Row, asked, load_rows, save_rows
from tests.contract.arguments_lines import Case
from tests.contract.arguments_options_file import merged, write
from tests.contract.arguments_oracle import ask_about, options_of
from tests.contract.oracle import Answer
from tools.bootstrap import Timeline
from tools.upstream import VERSIONS, prepare

TIMEOUT_SECONDS = 1800.0
NUM_AT_A_TIME = 2  # each keeps one core busy and needs 1 GB


def main() -> int:
    parser = argparse.ArgumentParser(prog="make_arguments_data", description="Writes what vLLM makes of command lines.")
    parser.add_argument("versions", nargs="*", default=list(VERSIONS), metavar="VERSION", help=f"of {', '.join(VERSIONS)}")
    parser.add_argument("--anew", action="store_true", help="also what is answered already")
    parser.add_argument("--options", action="store_true", help="the table of options first")
    arguments = parser.parse_args()
    timeline = Timeline()
    prepare(timeline=timeline)
    with ThreadPoolExecutor(max_workers=NUM_AT_A_TIME) as pool:
        if arguments.options:
            tables = pool.map(lambda version: options_of(version, timeout_seconds=TIMEOUT_SECONDS), VERSIONS)
            write(merged(dict(zip(VERSIONS, tables, strict=True))))
            timeline.say("the table of options is written")
        made = pool.map(partial(_make, is_anew=arguments.anew), arguments.versions)
        for version, stages in zip(arguments.versions, made, strict=True):
            told = ", ".join(f"{number} {stage}" for stage, number in stages.most_common())
            timeline.say(f"{version}: {stages.total()} answers: {told}")
    return 0


def _make(version: str, *, is_anew: bool) -> Counter[str]:
    wanted = asked(version)
    known = {} if is_anew else {row.case["id"]: row for row in load_rows(version)}
    new = [case for case in wanted if case["id"] not in known or known[case["id"]].case != case]
    known |= {case["id"]: Row(case, answer) for case, answer in zip(new, _answers(version, new), strict=True)}
    rows = [known[case["id"]] for case in wanted]
    save_rows(version, rows)
    return Counter(row.answer["refused"]["stage"] if "refused" in row.answer else "started" for row in rows)


def _answers(version: str, cases: list[Case]) -> list[Answer]:
    return ask_about(version, cases, timeout_seconds=TIMEOUT_SECONDS) if cases else []


if __name__ == "__main__":
    sys.exit(main())
