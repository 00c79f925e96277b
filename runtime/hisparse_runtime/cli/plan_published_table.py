"""The published calculator's figures for people, with the columns of the published page."""

import sys
from collections.abc import Sequence

from hisparse_runtime.cli.plan_published import PublishedAnswer
from hisparse_runtime.cli.plan_table import make_console, plain_table

_HEADERS = (
    "GPU",
    "tokens",
    "KV GiB",
    "ordinary",
    "HiSparse",
    "min host GiB",
    "GPU MiB/request ordinary",
    "HiSparse",
    "host MiB/request",
)


def print_published(answers: Sequence[PublishedAnswer]) -> None:
    """A row for each answer."""
    console = make_console(sys.stdout)
    inputs = answers[0].inputs
    table = plain_table()
    for header in (
        "GPU",
        "tokens",
        "KV GiB",
        "ordinary",
        "HiSparse",
        "min host GiB",
        "GPU MiB/req ordinary",
        "HiSparse",
        "host MiB/req",
    ):
        table.add_column(header, justify="right")
    for answer in answers:
        now, result = answer.inputs, answer.result
        table.add_row(
            now.gpu,
            f"{now.sequence_tokens:,}",
            f"{result.kv_gib:.1f}",
            f"{result.total_ordinary:,}",
            f"{result.total_hisparse:,}",
            f"{result.min_host_gib:,}",
            f"{result.gpu_mib_per_request_ordinary:,.0f}",
            f"{result.gpu_mib_per_request_hisparse:,.0f}",
            f"{result.host_mib_per_request:,.0f}",
        )
    console.print(f"GLM-5.3 as published: TP {inputs.tensor_parallel_size}, DP {inputs.data_parallel_size}, KV {inputs.kv}")
    console.print(table)
