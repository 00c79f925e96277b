"""Asks released vLLM: cases to a process inside its environment, answers back."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.contract.cases import Case
from tools.upstream import Upstream, upstream

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_ERROR_LENGTH = 3000
Answer = dict[str, Any]


class OracleError(Exception):
    """vLLM did not answer: its process failed or took too long."""


def ask(version: str, cases: Sequence[Case], *, timeout_seconds: float) -> list[Answer]:
    """Answers in the order of `cases`. OracleError after `timeout_seconds`, or when the process fails."""
    return answers_of(version, "answer_cases", cases, timeout_seconds=timeout_seconds)


def answers_of(version: str, module: str, cases: Sequence[dict[str, Any]], *, timeout_seconds: float) -> list[Answer]:
    """What `module` of the upstream side answers to cases, which are told apart by their "id"."""
    asked = "".join(json.dumps(case) + "\n" for case in cases)
    output = run_upstream(version, module, asked, timeout_seconds=timeout_seconds)
    answers = {answer["id"]: answer for answer in map(json.loads, output.splitlines())}
    if len(answers) != len(cases):
        raise OracleError(f"vLLM {version} gave {len(answers)} different answers to {len(cases)} cases")
    return [answers[case["id"]] for case in cases]


def python_path(environment: Upstream) -> str:
    """Our runtime is there as in an engine's image: vLLM imports our connector from it."""
    return os.pathsep.join(filter(None, (environment.environment["PYTHONPATH"], str(REPOSITORY / "runtime"))))


def run_upstream(version: str, module: str, asked: str, *, timeout_seconds: float) -> str:
    """Standard output of a module of the upstream side, in that version's environment."""
    environment = upstream(version)
    # A session of its own: the process forks, and all of it has to end with it.
    process = subprocess.Popen(
        [str(environment.python), "-m", f"tests.contract.upstream_side.{module}"],
        cwd=REPOSITORY,
        env={**os.environ, **environment.environment, "PYTHONPATH": python_path(environment)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(asked, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise OracleError(f"vLLM {version}: {module} did not answer in {timeout_seconds:.0f} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        raise OracleError(f"vLLM {version}: exit code {process.returncode}\n{errors[-MAX_ERROR_LENGTH:]}")
    return output
