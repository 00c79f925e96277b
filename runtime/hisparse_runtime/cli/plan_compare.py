"""`--compare`: one plan for each context length, or for each kind of GPU."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.cli.plan_answer import Answer
from hisparse_runtime.cli.plan_table import bullets, gain_text, limit_text, plain_table, print_arithmetic, print_notes


def print_comparison(console: Console, answers: Sequence[Answer], *, by_gpu: bool, is_explained: bool) -> None:
    """A row for each answer, in the order that was asked for; what was refused is explained below."""
    first = answers[0].asked
    console.print(first.model if by_gpu else first.title, style="bold")
    console.print(_table(answers, by_gpu=by_gpu))
    refused = [f"{_label(answer, by_gpu=by_gpu)}: {fault.message}" for answer in answers for fault in answer.errors]
    if refused:
        console.print(bullets(refused, mark="refused", style="red"))
    if is_explained:
        for answer in answers:
            print_arithmetic(console, answer, heading=_label(answer, by_gpu=by_gpu))
    # what holds for all is said once
    common = [note for note in answers[0].warnings if all(note in answer.warnings for answer in answers)]
    print_notes(console, common)


def _table(answers: Sequence[Answer], *, by_gpu: bool) -> Table:
    table = plain_table()
    headers = ["GPU" if by_gpu else "tokens", "KV per GPU", "row", "ordinary", "HiSparse", "gain", "host pool", "pod memory"]
    for header in headers:
        table.add_column(header, justify="left" if header == "GPU" else "right")
    table.add_column("limited by")
    for answer in answers:
        table.add_row(*_row(answer, by_gpu=by_gpu))
    return table


def _row(answer: Answer, *, by_gpu: bool) -> list[str]:
    now, host, pod = answer.concurrency, answer.host, answer.pod
    start = [
        _label(answer, by_gpu=by_gpu),
        human_bytes(answer.gpu.kv_bytes) if answer.gpu else "",
        f"{answer.geometry.row_bytes} B" if answer.geometry and answer.geometry.row_bytes else "",
    ]
    if now is None or host is None or pod is None or host.pool_bytes is None:
        return [*start, "", "refused", "", "", "", ""]
    return [
        *start,
        f"{now.ordinary:.2f}",
        f"{now.steady:.2f}",
        gain_text(now).rstrip(", "),
        human_bytes(host.pool_bytes),
        human_bytes(pod.memory_bytes),
        limit_text(now.limited_by),
    ]


def _label(answer: Answer, *, by_gpu: bool) -> str:
    if by_gpu:
        return answer.asked.gpu or ""
    return "" if answer.asked.max_model_len is None else f"{answer.asked.max_model_len:,}"
