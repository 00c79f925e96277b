"""`--compare`: one plan for each context length, or for each kind of GPU."""

from collections.abc import Sequence
from typing import TextIO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hisparse_runtime.capacity import GIB
from hisparse_runtime.cli.plan.answer import Answer
from hisparse_runtime.cli.plan.table import arithmetic, bullets, gain_text, limit_text, notes, plain_table, show


def print_comparison(stream: TextIO, answers: Sequence[Answer], *, by_gpu: bool, is_explained: bool) -> None:
    """A row for each answer, in the order that was asked for; what was refused is explained below."""
    first = answers[0].asked
    heading = first.title_of_any_gpu if by_gpu else first.title
    parts: list[RenderableType] = [Text(heading, style="bold"), _table(answers, by_gpu=by_gpu)]
    refused = [_refusal(answer, by_gpu=by_gpu) for answer in answers if answer.errors]
    if refused:
        parts.append(bullets(refused, mark="refused:", style="red"))
    if is_explained:
        for answer in answers:
            parts += arithmetic(answer, heading=_label(answer, by_gpu=by_gpu))
    # what holds for all is said once
    common = [note for note in answers[0].warnings if all(note in answer.warnings for answer in answers)]
    show(stream, [*parts, *notes(common)])


def _table(answers: Sequence[Answer], *, by_gpu: bool) -> Table:
    table = plain_table()
    table.add_column("GPU" if by_gpu else "tokens", justify="left" if by_gpu else "right", no_wrap=True, vertical="bottom")
    for header in ("GPU KV\nGiB", "row\nbytes", "ordinary", "HiSparse", "gain"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("limited by", no_wrap=True)
    for header in ("host pool\nGiB", "of use\nGiB", "pod\nGiB"):
        table.add_column(header, justify="right", no_wrap=True)
    for answer in answers:
        table.add_row(*_row(answer, by_gpu=by_gpu))
    return table


def _row(answer: Answer, *, by_gpu: bool) -> list[str]:
    now, host, pod = answer.concurrency, answer.host, answer.pod
    start = [
        _label(answer, by_gpu=by_gpu),
        _gib(answer.gpu.kv_bytes) if answer.gpu else "",
        f"{answer.geometry.row_bytes}" if answer.geometry and answer.geometry.row_bytes else "",
    ]
    if now is None or host is None or pod is None or host.pool_bytes is None or host.usable_bytes is None:
        return [*start, "", "refused"]
    return [
        *start,
        f"{now.ordinary:.2f}",
        f"{now.steady:.2f}",
        gain_text(now),
        limit_text(now.limited_by).removeprefix("the "),
        _gib(host.pool_bytes),
        _gib(host.usable_bytes),
        _gib(pod.memory_bytes),
    ]


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:,.2f}"


def _refusal(answer: Answer, *, by_gpu: bool) -> str:
    message, label = answer.errors[0].message, _label(answer, by_gpu=by_gpu)
    return message if label in message else f"{label}: {message}"


def _label(answer: Answer, *, by_gpu: bool) -> str:
    if by_gpu:
        return answer.asked.gpu or ""
    return "" if answer.asked.max_model_len is None else f"{answer.asked.max_model_len:,}"
