"""`python -m tests.contract.upstream_side.answer_cases`: cases as JSON lines in, plans or refusals as JSON lines out."""

import sys
from collections.abc import Iterator
from typing import Any

from tests.contract.upstream_side.fake_platform import GPUS, Machine
from tests.contract.upstream_side.per_gpu import Case, answer_by_gpu


def _answers(gpu: str, cases: list[Case]) -> Iterator[dict[str, Any]]:
    from tests.contract.upstream_side.planner import answer  # noqa: PLC0415  after the fork

    Machine.gpu = GPUS[gpu]
    yield from map(answer, cases)


if __name__ == "__main__":
    sys.exit(answer_by_gpu(_answers))
