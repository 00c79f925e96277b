"""Asks released vLLM: cases to a process inside its environment, answers back."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.contract.cases import Case
from tools.upstream import upstream

REPOSITORY = Path(__file__).resolve().parents[2]
Answer = dict[str, Any]


class OracleError(Exception):
    """vLLM did not answer: its process failed or took too long."""


def ask(version: str, cases: Sequence[Case], *, timeout_seconds: float) -> list[Answer]:
    """Answers in the order of `cases`. OracleError after `timeout_seconds`, or when the process fails."""
    environment = upstream(version)
    command = [str(environment.python), "-m", "tests.contract.upstream_side.answer_cases"]
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **environment.environment},
            input="".join(json.dumps(case) + "\n" for case in cases),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OracleError(f"vLLM {version} did not answer {len(cases)} cases in {timeout_seconds:.0f} s") from None
    if done.returncode:
        raise OracleError(f"vLLM {version}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    return [answers[case["id"]] for case in cases]
