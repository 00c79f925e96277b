"""What `hisparse plan` does once it knows what is asked: plan, print, draw."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hisparse_runtime.capacity import CapacityError, EnginePlan, plan_engine
from hisparse_runtime.cli.plan.answer import Answer, planned, refused, refused_early
from hisparse_runtime.cli.plan.case import Case, RefusedError
from hisparse_runtime.cli.plan.output import OutputFormat, machine_text
from hisparse_runtime.geometry import CacheFormatError

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
_REFUSED_EXIT_CODE = 2


class FigureError(ValueError):
    """The figure cannot be drawn or written; the message has the next step."""


class CaseMaker(Protocol):
    """Makes the case that was asked for, or the same with another kind of GPU or context length. Raises RefusedError."""

    def __call__(self, *, gpu_name: str | None = None, max_model_len: int | None = None) -> Case: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """How the answer is shown; `plot` is a file to write."""

    output: OutputFormat
    is_explained: bool
    plot: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """`drawable` is there unless it was refused."""

    answer: Answer
    drawable: tuple[Case, EnginePlan] | None = None


def show_one(make_case: CaseMaker, display: Display) -> int:
    """Returns the exit code."""
    outcome = _plan(make_case)
    _draw([outcome], display)
    return show_answer(outcome.answer, display)


def show_answer(answer: Answer, display: Display) -> int:
    """Returns the exit code."""
    if display.output is not OutputFormat.TABLE:
        sys.stdout.write(machine_text(answer, output=display.output))
    else:
        from hisparse_runtime.cli.plan.table import print_answer, print_errors  # noqa: PLC0415 (rich: tables only)

        print_answer(sys.stdout, answer, is_explained=display.is_explained)
        if answer.errors:
            print_errors(sys.stderr, answer)
    return _REFUSED_EXIT_CODE if answer.errors else 0


def show_comparison(make_case: CaseMaker, compared: Sequence[int] | Sequence[str], display: Display) -> int:
    """Returns the exit code: a refusal among plans is an answer, refusals only are not."""
    outcomes = [
        _plan(make_case, gpu_name=entry) if isinstance(entry, str) else _plan(make_case, max_model_len=entry)
        for entry in compared
    ]
    by_gpu = isinstance(compared[0], str)
    # contexts are the axis of the figure: any plan has them all
    _draw(outcomes if by_gpu else [_first_plan(outcomes)], display)
    answers = [outcome.answer for outcome in outcomes]
    if display.output is not OutputFormat.TABLE:
        sys.stdout.write(machine_text(answers, output=display.output))
    else:
        from hisparse_runtime.cli.plan.compare import print_comparison  # noqa: PLC0415 (rich: tables only)

        print_comparison(sys.stdout, answers, by_gpu=by_gpu, is_explained=display.is_explained)
    return _REFUSED_EXIT_CODE if all(answer.errors for answer in answers) else 0


def _plan(make_case: CaseMaker, *, gpu_name: str | None = None, max_model_len: int | None = None) -> _Outcome:
    try:
        case = make_case(gpu_name=gpu_name, max_model_len=max_model_len)
    except RefusedError as error:
        return _Outcome(answer=refused_early(error))
    try:
        plan = plan_engine(case.request, names=case.names)
    except (CacheFormatError, CapacityError) as error:
        return _Outcome(answer=refused(case, error))
    return _Outcome(answer=planned(case, plan), drawable=(case, plan))


def _first_plan(outcomes: Sequence[_Outcome]) -> _Outcome:
    return next((outcome for outcome in outcomes if outcome.drawable), outcomes[0])


def _draw(outcomes: Sequence[_Outcome], display: Display) -> None:
    if display.plot is None:
        return
    drawable = [outcome.drawable for outcome in outcomes if outcome.drawable]
    if not drawable:
        sys.stderr.write(f"{display.plot} is not written: there is no plan to draw\n")
        return
    try:
        from hisparse_runtime.cli.plan.plot import draw  # noqa: PLC0415 (matplotlib: for figures only)

        draw(display.plot, drawable)
    except ImportError as error:
        raise FigureError("matplotlib is not installed: pip install 'hisparse-operator[plot]'") from error
    except OSError as error:
        raise FigureError(f"cannot write {display.plot}: {error.strerror}") from error
