"""The whole answer for GLM-5.3 on 8 x H200, as people and programs get it.

A difference is either a mistake or a change of the plan: read it, then refresh the files with
    HISPARSE_REFRESH_GOLDEN=1 pytest tests/unit/cli/test_plan_golden.py
"""

import os
from pathlib import Path

import pytest

from tests.unit.cli.plan_runs import plan

_GOLDEN = Path(__file__).parent / "golden"
_GLM = ("--model", "zai-org/GLM-5.3", "--gpu", "H200", "--gpus-per-node", "8", "--kv-cache-dtype", "fp8")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("glm-142000.txt", (*_GLM, "--max-model-len", "142000", "--explain")),
        ("glm-142000.json", (*_GLM, "--max-model-len", "142000", "-o", "json")),
        ("glm-1048576.txt", (*_GLM, "--max-model-len", "1048576")),
        ("glm-1048576.json", (*_GLM, "--max-model-len", "1048576", "-o", "json")),
        ("glm-compare.txt", (*_GLM, "--compare", "64K,142000,1M", "--node-memory", "512Gi")),
    ],
)
def test_the_answer_is_that_of_the_golden_file(name: str, arguments: tuple[str, ...]) -> None:
    run = plan(*arguments)
    assert (run.exit_code, run.stderr) == (0, "")
    path = _GOLDEN / name
    if os.environ.get("HISPARSE_REFRESH_GOLDEN"):
        path.write_text(run.stdout, encoding="utf-8")
        pytest.skip(f"wrote {path.name}: read the difference before you commit it")
    assert run.stdout == path.read_text(encoding="utf-8")


def test_a_table_fits_a_hundred_columns_and_has_neither_colours_nor_trailing_blanks() -> None:
    for arguments in ((*_GLM, "--explain"), (*_GLM, "--compare", "8K,1M"), (*_GLM[:2], "--compare", "H200,B300,RTX-PRO-6000")):
        lines = plan(*arguments).stdout.splitlines()
        assert max(len(line) for line in lines) <= 100
        assert all(line == line.rstrip() and "\x1b" not in line for line in lines)
