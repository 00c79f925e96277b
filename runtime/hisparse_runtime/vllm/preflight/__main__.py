"""`python -m hisparse_runtime.vllm.preflight`: the first command of an engine container."""

import json
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hisparse_runtime.vllm.pod_plan import CONFIG_FILE, FOLDER, PLAN_FILE, PodPlanError, read_planned_config, read_pod_plan
from hisparse_runtime.vllm.preflight.findings import Reason, refused
from hisparse_runtime.vllm.preflight.report import Report
from hisparse_runtime.vllm.preflight.run import run_preflight

_TERMINATION_LOG = Path("/dev/termination-log")


class _Output(StrEnum):
    TEXT = "text"
    JSON = "json"


def main(
    words: Annotated[list[str] | None, typer.Argument(help="The command line of vLLM, behind --.")] = None,
    *,
    plan: Annotated[Path, typer.Option(help="What the pod was planned with.")] = Path(FOLDER, PLAN_FILE),
    config: Annotated[Path, typer.Option(help="config.json that the plan was made from.")] = Path(FOLDER, CONFIG_FILE),
    model: Annotated[str, typer.Option(help="The model's folder, or its name on Hugging Face.")] = "",
    output: Annotated[_Output, typer.Option("-o", "--output")] = _Output.TEXT,
) -> None:
    """Whether this container can hold the engine of the plan. Exit status 3: it cannot, and /dev/termination-log says why."""
    report = _report(plan, config, model=model, words=words or [])
    text = json.dumps(report.to_json(), indent=2) if output is _Output.JSON else "\n".join(report.lines())
    sys.stdout.write(f"{text}\n")
    if not report.passed and _TERMINATION_LOG.exists():
        # all is said above as well
        with suppress(OSError):
            _TERMINATION_LOG.write_text(report.termination_message(), encoding="utf-8")
    raise typer.Exit(report.exit_code)


def _report(plan: Path, config: Path, *, model: str, words: list[str]) -> Report:
    try:
        return run_preflight(read_pod_plan(plan), model=model, planned_config=read_planned_config(config), words=words)
    except PodPlanError as error:
        return Report(findings=(refused(Reason.INVALID_PLAN, str(error)),), facts={})


if __name__ == "__main__":
    typer.run(main)
