"""`python -m hisparse_runtime.vllm.preflight`: the first command of an engine container."""

import json
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hisparse_runtime.vllm.pod_plan import CONFIG_FILE, FOLDER, PLAN_FILE, PodPlanError, read_pod_plan
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
        planned = read_pod_plan(plan.read_text(encoding="utf-8"), source=str(plan))
        return run_preflight(planned, model=model, planned_config=_planned_config(config), words=words)
    except OSError as error:
        message = f"{error.filename} cannot be read: {error.strerror}; the operator mounts it at {FOLDER}"
    except UnicodeDecodeError as error:
        message = f"{plan} is no text ({error.reason}): let the operator write it anew"
    except PodPlanError as error:
        message = str(error)
    return Report(findings=(refused(Reason.INVALID_PLAN, message),), facts={})


def _planned_config(path: Path) -> dict[str, Any] | None:
    """None where there is none: the model is not compared then."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PodPlanError(f"{path}: no JSON: {error}; next step: let the operator write it anew") from error
    return content if isinstance(content, dict) else None


if __name__ == "__main__":
    typer.run(main)
