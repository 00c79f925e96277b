"""An answer for people."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.cli.plan_answer import Answer, ConcurrencySection
from hisparse_runtime.cli.plan_case import Asked

# Of what is not a terminal: files and pipes are read at this width, whatever window wrote them.
_FILE_COLUMNS = 100
_WIDEST_COLUMNS = 120
_LIMITS = {"gpu": "GPU memory", "host": "the host pool", "max_num_seqs": "max_num_seqs"}


def make_console(stream: TextIO) -> Console:
    """Without colours where it is not a terminal; text is shown as it is, brackets and all."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    console.width = min(console.width, _WIDEST_COLUMNS) if console.is_terminal else _FILE_COLUMNS
    return console


def print_answer(console: Console, answer: Answer, *, is_explained: bool) -> None:
    """The table, then what to mind; with `is_explained` every step of the arithmetic."""
    console.print(Text(answer.asked.title, style="bold"))
    if answer.asked.preset_fields:
        console.print(_preset_note(answer.asked))
    if answer.concurrency is not None:
        console.print(_concurrency_table(answer.concurrency, num_replicas=answer.asked.data_parallel_size))
    console.print(_size_table(answer))
    if is_explained:
        print_arithmetic(console, answer, heading="Step by step")
    print_notes(console, answer.warnings)


def print_arithmetic(console: Console, answer: Answer, *, heading: str) -> None:
    if answer.arithmetic:
        console.print(Text(heading, style="bold"))
        console.print(bullets(answer.arithmetic, mark="-"))


def print_notes(console: Console, warnings: Sequence[str]) -> None:
    if warnings:
        console.print(bullets(warnings, mark="!", style="yellow"))


def print_errors(console: Console, answer: Answer) -> None:
    for fault in answer.errors:
        console.print(bullets([f"{fault.reason}: {fault.message}"], mark="error:", style="red"))


def limit_text(limited_by: str) -> str:
    """What ends concurrency, in words."""
    return _LIMITS[limited_by]


def bullets(lines: Iterable[str], *, mark: str, style: str = "") -> Table:
    """Each line behind a mark, wrapped beside it."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, style=style)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(mark, line)
    return table


def plain_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _preset_note(asked: Asked) -> str:
    return f"filled in from the preset of this model: {', '.join(asked.preset_fields)}"


def _concurrency_table(now: ConcurrencySection, *, num_replicas: int) -> Table:
    table = plain_table()
    unit = "requests at once" if num_replicas == 1 else "requests at once, each replica"
    table.add_column(f"{now.max_model_len:,} tokens each")
    table.add_column(unit, justify="right")
    table.add_column("")
    table.add_row("without HiSparse", f"{now.ordinary:.2f}", "")
    table.add_row("with HiSparse", f"{now.steady:.2f}", f"{gain_text(now)}limited by {limit_text(now.limited_by)}")
    table.add_row("while all are admitted", f"{now.generic:.2f}", "the first figure that vLLM logs at start-up")
    return table


def gain_text(now: ConcurrencySection) -> str:
    return f"{now.steady / now.ordinary:.1f} x, " if now.ordinary else ""


def _size_table(answer: Answer) -> Table:
    table = plain_table()
    for header in ("", "size", "what it holds"):
        table.add_column(header, justify="right" if header == "size" else "left", overflow="fold")
    for row in _size_rows(answer):
        table.add_row(*row)
    return table


def _size_rows(answer: Answer) -> Iterator[tuple[str, str, str]]:
    layout, device, host, hot = answer.geometry, answer.gpu, answer.host, answer.hot
    if layout is not None:
        layers = f"{layout.num_layers} layers, {layout.num_indexer_layers} with an indexer"
        if layout.num_groups is None:
            yield "model", "", layers
        else:
            groups = "1 group" if layout.num_groups == 1 else f"{layout.num_groups} groups"
            yield "KV row", f"{layout.row_bytes} B", f"one token in one of {layers}, in {groups} ({layout.row_format})"
    if device is not None:
        if device.weights_bytes is not None:
            yield "GPU weights", human_bytes(device.weights_bytes), "on each GPU"
        origin = ", estimated" if device.is_estimated else ""
        blocks = f"{device.num_blocks:,} blocks of {human_bytes(device.bytes_per_block)} on each GPU{origin}"
        yield "GPU KV pool", human_bytes(device.kv_bytes), blocks
        if device.overhead_bytes is not None:
            yield "GPU beside it", human_bytes(device.overhead_bytes), "state of the resolver, allocated after profiling"
    if hot is not None:
        yield (
            "hot region",
            human_bytes(hot.bytes_per_request),
            f"{hot.rows:,} rows, {hot.blocks_per_request:,} blocks, each request",
        )
    if host is not None:
        yield _host_row(answer)
    if answer.offload is not None:
        keys = f"indexer keys of {answer.offload.tokens:,} tokens, {answer.offload.bytes_per_token:,.0f} B each"
        yield "offload tier", human_bytes(answer.offload.cpu_bytes_to_use), keys
    if answer.pod is not None:
        pod = answer.pod
        replicas = f"; {pod.num_replicas} replicas" if pod.num_replicas > 1 else ""
        yield "pod memory", human_bytes(pod.memory_bytes), f"request and limit{replicas}"
        yield "pod /dev/shm", human_bytes(pod.shm_bytes), "part of it"
        yield "start-up", f"{pod.startup_seconds:,} s", f"until a probe gives up; {pod.termination_seconds:,} s to stop"


def _host_row(answer: Answer) -> tuple[str, str, str]:
    host = answer.host
    assert host is not None
    stride = human_bytes(host.stride_bytes)
    needed = "" if host.min_blocks is None else f", one request needs {host.min_blocks:,}"
    if host.pool_bytes is None or host.num_blocks is None:
        return "host pool", "", f"blocks of {stride}{needed}"
    if host.tokens is None:
        return "host pool", human_bytes(host.pool_bytes), f"{host.num_blocks:,} blocks of {stride}{needed}"
    copies = "" if host.mode == "shared" else ", for each rank"
    return (
        "host pool",
        human_bytes(host.pool_bytes),
        f"{host.tokens:,} tokens, {host.num_blocks:,} blocks of {stride}{copies}",
    )
