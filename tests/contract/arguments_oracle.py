"""Asks released vLLM about command lines and about its options, in a process inside its environment."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

from tests.contract.arguments_lines import MODELS, Case
from tests.contract.oracle import MAX_ERROR_LENGTH, REPOSITORY, Answer, OracleError
from tools.upstream import upstream


def ask_about(version: str, cases: Sequence[Case], *, timeout_seconds: float) -> list[Answer]:
    """Answers in the order of `cases`. OracleError after `timeout_seconds`, or when the process fails."""
    lines = [json.dumps(case | {"config": MODELS[case["model"]]}) + "\n" for case in cases]
    output = _run(version, "arguments_answer", "".join(lines), timeout_seconds=timeout_seconds)
    answers = {answer["id"]: answer for answer in map(json.loads, output.splitlines())}
    if len(answers) != len(cases):
        raise OracleError(f"vLLM {version} gave {len(answers)} different answers to {len(cases)} command lines")
    return [answers[case["id"]] for case in cases]


def options_of(version: str, *, timeout_seconds: float) -> dict[str, Any]:
    """Every option of `vllm serve`, as its own parser has it."""
    table: dict[str, Any] = json.loads(_run(version, "arguments_options", "", timeout_seconds=timeout_seconds))
    return table


def _run(version: str, module: str, asked: str, *, timeout_seconds: float) -> str:
    environment = upstream(version)
    # A session of its own: the process forks, and all of it has to end with it.
    process = subprocess.Popen(
        [str(environment.python), "-m", f"tests.contract.upstream_side.{module}"],
        cwd=REPOSITORY,
        env={**os.environ, **environment.environment},
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
