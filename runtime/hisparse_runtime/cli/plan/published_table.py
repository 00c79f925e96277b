"""The published calculator's figures for people."""

import math
from collections.abc import Sequence
from typing import TextIO

from rich.text import Text

from hisparse_runtime.cli.plan.published import PublishedAnswer
from hisparse_runtime.cli.plan.table import bullets, plain_table, show

_HEADERS = (
    "GPU",
    "tokens",
    "KV GiB\nper GPU",
    "ordinary",
    "HiSparse",
    "least host\nGiB",
    "GPU MiB/request\nordinary",
    "\nHiSparse",
    "host MiB\n/request",
)


def print_published(stream: TextIO, answers: Sequence[PublishedAnswer]) -> None:
    """A row for each answer. Requests are those of the whole deployment, memory is that of one replica, as on the page."""
    inputs = answers[0].inputs
    table = plain_table()
    for header in _HEADERS:
        table.add_column(header, justify="left" if header == "GPU" else "right", no_wrap=True, vertical="bottom")
    for answer in answers:
        table.add_row(*_row(answer))
    experts = "" if inputs.expert_parallel else ", no expert parallelism"
    heading = f"GLM-5.3 as published, TP {inputs.tensor_parallel_size}, DP {inputs.data_parallel_size}{experts}, KV {inputs.kv}"
    too_large = [
        f"{answer.inputs.gpu}: weights and reserve take {answer.result.needed_gib:.1f} GiB of {answer.result.budget_gib:.1f} GiB"
        for answer in answers
        if not answer.result.fits
    ]
    notes = [bullets(dict.fromkeys(too_large), mark="!", style="yellow")] if too_large else []
    show(stream, [Text(heading, style="bold"), table, *notes])


def _row(answer: PublishedAnswer) -> list[str]:
    inputs, result = answer.inputs, answer.result
    return [
        inputs.gpu,
        f"{inputs.sequence_tokens:,}",
        f"{result.kv_gib:.1f}",
        f"{result.total_ordinary:,}",
        f"{result.total_hisparse:,}",
        f"{result.min_host_gib:,}",
        f"{_rounded(result.gpu_mib_per_request_ordinary):,}",
        f"{_rounded(result.gpu_mib_per_request_hisparse):,}",
        f"{_rounded(result.host_mib_per_request):,}",
    ]


def _rounded(size_mib: float) -> int:
    """Halves upwards, as the page's JavaScript does."""
    return math.floor(size_mib + 0.5)
