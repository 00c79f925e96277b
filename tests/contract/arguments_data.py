"""What vLLM made of the command lines, committed: one file per version, one case with its answer per line."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hisparse_runtime.capacity.gpus import gpu
from hisparse_runtime.geometry import vllm_version
from hisparse_runtime.vllm.explain.explanation import Explanation, explain
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from tests.contract.arguments_cases import written_cases
from tests.contract.arguments_lines import MODELS, Case
from tests.contract.arguments_random import random_cases
from tests.contract.arguments_rendered import rendered

FOLDER = Path(__file__).parent / "data"
WORKS = "works-"
# GPUs as the two sides call them; without one, vLLM runs on another platform.
_GPUS = {"RTX_PRO_6000": "RTX PRO 6000", "none": "MI300X"}


class Row(NamedTuple):
    """`answer` has "started" or "refused", with "stage" and "text"."""

    case: Case
    answer: dict[str, Any]


def asked(version: str) -> list[Case]:
    """All that a version is asked: rendered, written and random lines, and what our explanations give for wrong ones."""
    lines = [*written_cases(version), *random_cases()]
    return [*(entry.case for entry in rendered(version)), *lines, *repaired(lines, version)]


def repaired(cases: Sequence[Case], version: str) -> list[Case]:
    """The command that works, for each case that is rejected and has one."""
    found = []
    for case in cases:
        explanation = explained(case, version)
        if explanation.working is not None and not explanation.is_accepted:
            found.append(case | {"id": f"{WORKS}{case['id']}"} | _parts(explanation.working))
    return found


def explained(case: Case, version: str) -> Explanation:
    device: str = case["gpu"]
    knowledge = Knowledge(
        version=vllm_version(version),
        config=MODELS[case["model"]],
        gpu=gpu(_GPUS.get(device, device)),
        gpu_kv_bytes=case["gpu_kv_bytes"],
    )
    variables = [f"{name}={value}" for name, value in case["environment"].items()]
    return explain([*variables, "vllm", *case["words"]], knowledge)


def load_rows(version: str) -> list[Row]:
    """All rows of "0.30", "0.31", "0.32" or "0.33"; none where the file is not there yet."""
    if not _path(version).is_file():
        return []
    with gzip.open(_path(version), "rt", encoding="utf-8") as file:
        return [Row(**json.loads(line)) for line in file]


def save_rows(version: str, rows: Sequence[Row]) -> None:
    """Without a time of day in the file: the same rows give the same bytes."""
    lines = "".join(json.dumps(row._asdict(), sort_keys=True) + "\n" for row in rows)
    _path(version).write_bytes(gzip.compress(lines.encode(), mtime=0))


def _parts(words: Sequence[str]) -> dict[str, Any]:
    start = words.index("vllm")
    return {"environment": dict(word.split("=", 1) for word in words[:start]), "words": list(words[start + 1 :])}


def _path(version: str) -> Path:
    return FOLDER / f"arguments-{version}.jsonl.gz"
