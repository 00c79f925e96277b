"""Asks released vLLM about command lines and about its options, in a process inside its environment."""

import json
from collections.abc import Sequence
from typing import Any

from tests.contract.arguments_lines import MODELS, Case
from tests.contract.oracle import Answer, answers_of, run_upstream


def ask_about(version: str, cases: Sequence[Case], *, timeout_seconds: float) -> list[Answer]:
    """Answers in the order of `cases`. OracleError after `timeout_seconds`, or when the process fails."""
    asked = [case | {"config": MODELS[case["model"]]} for case in cases]
    return answers_of(version, "arguments_answer", asked, timeout_seconds=timeout_seconds)


def options_of(version: str, *, timeout_seconds: float) -> dict[str, Any]:
    """Every option of `vllm serve`, as its own parser has it."""
    table: dict[str, Any] = json.loads(run_upstream(version, "arguments_options", "", timeout_seconds=timeout_seconds))
    return table
