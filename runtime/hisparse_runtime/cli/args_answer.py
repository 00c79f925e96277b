"""What `hisparse args explain` knows when it explains, and how its answer looks."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from hisparse_runtime.capacity import gib_bytes
from hisparse_runtime.capacity.gpus import gpu
from hisparse_runtime.cli.plan.model import ModelFileError, ModelFiles, read_model_files
from hisparse_runtime.cli.plan.output import OutputFormat, machine_text
from hisparse_runtime.cli.plan.units import gib
from hisparse_runtime.geometry import ModelConfigError, UnknownVersionError, complete_config, vllm_version
from hisparse_runtime.vllm.command_line.options import option_table
from hisparse_runtime.vllm.command_line.words import CommandLineError, read_command_line
from hisparse_runtime.vllm.dialects import Dialect, dialect_of_version
from hisparse_runtime.vllm.explain.branch import explain_branch
from hisparse_runtime.vllm.explain.explanation import Explanation, explain, shell_text
from hisparse_runtime.vllm.explain.knowledge import Knowledge

_WIDTH = 120


class AskedWronglyError(ValueError):
    """An option of ours is wrong; `option` is its name."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """As typed. None: not given."""

    words: tuple[str, ...]
    version: str
    model_config: Path | None
    gpu: str | None
    gpu_kv_gib: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`unjudged`: what would have to be known to judge the sizes; empty where they are."""

    explanation: Explanation
    unjudged: tuple[str, ...]


def answer(question: Question) -> Answer:
    """Raises AskedWronglyError."""
    try:
        if dialect_of_version(question.version) is Dialect.BRANCH:
            return Answer(explanation=explain_branch(question.words), unjudged=())
        knowledge = _knowledge(question)
        explanation = explain(question.words, knowledge)
    except UnknownVersionError as error:
        raise AskedWronglyError("--vllm-version", str(error)) from error
    except CommandLineError as error:
        raise AskedWronglyError("COMMAND", str(error)) from error
    return Answer(explanation=explanation, unjudged=tuple(_unjudged(knowledge)))


def text_of(found: Answer, *, output: OutputFormat) -> str:
    if output is not OutputFormat.TABLE:
        return machine_text(_plain(found), output=output)
    return "\n".join(_lines(found)) + "\n"


def _knowledge(question: Question) -> Knowledge:
    version = vllm_version(question.version)
    name = read_command_line(question.words, option_table(version)).model or ""
    files = _model_files(question.model_config, name)
    try:
        config = complete_config(name, files.config)[0]
    except ModelConfigError:
        config = None
    return Knowledge(
        version=version,
        config=config,
        index=files.index,
        gpu=None if question.gpu is None else _named("--gpu", gpu, question.gpu),
        gpu_kv_bytes=None if question.gpu_kv_gib is None else gib_bytes(_named("--gpu-kv-gib", gib, question.gpu_kv_gib)),
    )


def _model_files(path: Path | None, name: str) -> ModelFiles:
    """A model that is a folder brings its own config.json."""
    if path is None and name and (Path(name) / "config.json").is_file():
        path = Path(name)
    try:
        return read_model_files(name=name, path=path)
    except ModelFileError as error:
        raise AskedWronglyError("--model-config", str(error)) from error


def _named(option: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise AskedWronglyError(option, str(error)) from error


def _unjudged(knowledge: Knowledge) -> Iterator[str]:
    if knowledge.config is None:
        yield "the model (--model-config)"
    if knowledge.gpu is None:
        yield "the kind of GPU (--gpu)"


def _plain(found: Answer) -> dict[str, Any]:
    explanation = found.explanation
    return {
        "vllm_version": explanation.version,
        "accepted": explanation.is_accepted,
        "command": explanation.command,
        "summary": dict(explanation.summary),
        "rejections": [
            {
                "code": rejection.code,
                "stage": rejection.stage.value,
                "when": rejection.stage.when,
                "option": rejection.option,
                "message": rejection.message,
                "vllm_says": rejection.says,
            }
            for rejection in explanation.rejections
        ],
        "cautions": [{"code": caution.code, "message": caution.message} for caution in explanation.cautions],
        "working": explanation.working,
        "changes": explanation.changes,
        "sizes_unjudged_without": found.unjudged,
    }


def _lines(found: Answer) -> Iterator[str]:
    explanation = found.explanation
    if explanation.is_accepted:
        yield (
            f"vLLM {explanation.version} takes this command."
            if not found.unjudged
            else (f"vLLM {explanation.version} takes this command, as far as can be told.")
        )
    else:
        yield f"vLLM {explanation.version} does not start with this command: it stops {explanation.rejections[0].stage.when}."
    yield ""
    for number, rejection in enumerate(explanation.rejections, start=1):
        yield f"{number}. {rejection.code}, {rejection.stage.when}"
        yield _wrapped(rejection.message, indent=3)
        if rejection.says:
            yield f'   vLLM: "... {rejection.says} ..."'
        yield ""
    yield from _working(explanation)
    yield "What it asks for" if explanation.working is None or explanation.is_accepted else "What that asks for"
    width = max(len(name) for name, _ in explanation.summary)
    for name, value in explanation.summary:
        yield f"  {name:{width}}  {value}"
    if found.unjudged:
        yield f"  {'sizes':{width}}  not judged: {' and '.join(found.unjudged)} not given"
    if explanation.cautions:
        yield ""
        yield "Mind"
        for caution in explanation.cautions:
            yield _wrapped(caution.message, indent=4, first="  - ")


def _working(explanation: Explanation) -> Iterator[str]:
    if explanation.is_accepted and not explanation.changes:
        return
    if explanation.working is None:
        yield "What was meant cannot be told: no command that works is given."
    else:
        yield "This is better" if explanation.is_accepted else "This works"
        yield "  " + shell_text(explanation.working).replace("\n", "\n  ")
        yield ""
        yield from (_wrapped(change, indent=4, first="  * ") for change in explanation.changes)
    yield ""


def _wrapped(text: str, *, indent: int, first: str | None = None) -> str:
    blanks = " " * indent
    return fill(
        text,
        width=_WIDTH,
        initial_indent=blanks if first is None else first,
        subsequent_indent=blanks,
        break_long_words=False,
        break_on_hyphens=False,
    )
