"""The committed answers of vLLM's planner: one file per version, one case with its answer per line."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.contract.cases import Case
from tests.contract.oracle import Answer

FOLDER = Path(__file__).parent / "data"


class Row(NamedTuple):
    """A configuration, and what vLLM makes of it: `answer` has "plan", or "refused" with "stage" and "text"."""

    case: Case
    answer: Answer


def load_answers(version: str) -> list[Row]:
    """All rows of "0.30", "0.31", "0.32" or "0.33"."""
    with gzip.open(_path(version), "rt", encoding="utf-8") as file:
        return [Row(**json.loads(line)) for line in file]


def save_answers(version: str, rows: Sequence[Row]) -> None:
    """Without a time of day in the file: the same rows give the same bytes."""
    lines = "".join(json.dumps(row._asdict(), sort_keys=True) + "\n" for row in rows)
    _path(version).write_bytes(gzip.compress(lines.encode(), mtime=0))


def _path(version: str) -> Path:
    return FOLDER / f"planner-{version}.jsonl.gz"
