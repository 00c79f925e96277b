"""An answer for people."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.cli.plan.answer import Answer, ConcurrencySection, HostSection
from hisparse_runtime.cli.plan.case import Asked

# Of what is not a terminal: files and pipes are read at this width, whatever window wrote them.
_FILE_COLUMNS = 100
_WIDEST_COLUMNS = 120
_MOST_LISTED_FIELDS = 8
_LIMITS = {"gpu": "GPU memory", "host": "the host pool", "max_num_seqs": "max_num_seqs"}


def print_answer(stream: TextIO, answer: Answer, *, is_explained: bool) -> None:
    """The sizes, then what to mind; with `is_explained` every step of the arithmetic."""
    parts: list[RenderableType] = [Group(Text(answer.asked.title, style="bold"), *_preset_note(answer.asked))]
    if answer.concurrency is not None:
        parts.append(_concurrency_table(answer.concurrency, num_replicas=answer.asked.data_parallel_size))
    rows = list(_size_rows(answer))
    if rows:
        parts.append(_size_table(rows))
    if is_explained:
        parts += arithmetic(answer, heading="Step by step")
    show(stream, [*parts, *notes(answer.warnings)])


def print_errors(stream: TextIO, answer: Answer) -> None:
    """Why there is no plan."""
    errors = [f"{fault.reason}: {fault.message}" for fault in answer.errors]
    show(stream, [bullets(errors, mark="error:", style="red")])


def show(stream: TextIO, parts: Iterable[RenderableType]) -> None:
    """Prints the parts with an empty line between them; colours only where `stream` is a terminal, text as it is."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    console.width = min(console.width, _WIDEST_COLUMNS) if console.is_terminal else _FILE_COLUMNS
    texts = []
    for part in parts:
        with console.capture() as captured:
            console.print(part)
        # tables are padded to the full width
        texts.append("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    stream.write("\n".join(texts))


def arithmetic(answer: Answer, *, heading: str) -> list[RenderableType]:
    """Its steps; nothing for what was refused."""
    return [Group(Text(heading, style="bold"), bullets(answer.arithmetic, mark="-"))] if answer.arithmetic else []


def notes(warnings: Sequence[str]) -> list[RenderableType]:
    return [bullets(warnings, mark="!", style="yellow")] if warnings else []


def bullets(lines: Iterable[str], *, mark: str, style: str = "") -> Table:
    """Each line behind a mark, wrapped beside it."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, style=style)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(mark, line)
    return table


def plain_table() -> Table:
    """Columns two blanks apart, under a line."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))


def limit_text(limited_by: str) -> str:
    """What ends concurrency, in words."""
    return _LIMITS[limited_by]


def gain_text(now: ConcurrencySection) -> str:
    """HiSparse over ordinary; empty where there is no ordinary one."""
    return f"{now.steady / now.ordinary:.1f} x" if now.ordinary else ""


def _preset_note(asked: Asked) -> list[Text]:
    """Which fields of config.json are not from a config.json."""
    fields = asked.preset_fields
    if not fields:
        return []
    listed = ", ".join(fields[:_MOST_LISTED_FIELDS])
    more = f" and {len(fields) - _MOST_LISTED_FIELDS} more" if len(fields) > _MOST_LISTED_FIELDS else ""
    return [Text(f"from the model's preset, not from a config.json: {listed}{more}")]


def _concurrency_table(now: ConcurrencySection, *, num_replicas: int) -> Table:
    table = plain_table()
    table.add_column(f"requests of {now.max_model_len:,} tokens")
    table.add_column("at once" if num_replicas == 1 else "at once, in each replica", justify="right")
    table.add_column("")
    table.add_row("without HiSparse", f"{now.ordinary:.2f}", "")
    limit = f"limited by {limit_text(now.limited_by)}"
    table.add_row("with HiSparse", f"{now.steady:.2f}", ", ".join(part for part in (gain_text(now), limit) if part))
    table.add_row("as start-up logs it", f"{now.generic:.2f}", "each request as large as at its admission")
    return table


def _size_table(rows: Iterable[tuple[str, str, str]]) -> Table:
    table = plain_table()
    table.add_column("memory")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _size_rows(answer: Answer) -> Iterator[tuple[str, str, str]]:
    layout, device, hot = answer.geometry, answer.gpu, answer.hot
    if layout is not None:
        layers = f"{layout.num_layers} layers, {layout.num_indexer_layers} of them with an indexer"
        if layout.num_groups is None:
            yield "KV row", "", layers
        else:
            groups = "1 group" if layout.num_groups == 1 else f"{layout.num_groups} groups"
            yield "KV row", f"{layout.row_bytes} B", f"{layout.row_format}; {layers}; {groups}"
    if answer.weights is not None:
        yield "GPU weights", human_bytes(answer.weights.gpu_bytes), f"on each GPU ({answer.weights.source})"
    if device is not None:
        origin = "estimated" if device.is_estimated else "as given"
        owner, name = ("on each GPU", "GPU KV pool") if answer.asked.gpu else ("of the pod's memory", "device pool")
        blocks = f"{owner}, {origin}; {device.num_blocks:,} blocks of {human_bytes(device.bytes_per_block)}"
        yield name, human_bytes(device.kv_bytes), blocks
    if hot is not None:
        blocks = f"of it for a request that reads from the host: {hot.rows:,} rows, {hot.blocks_per_request:,} blocks"
        yield "hot region", human_bytes(hot.bytes_per_request), blocks
    if device is not None and device.overhead_bytes is not None:
        yield "GPU overhead", human_bytes(device.overhead_bytes), "HiSparse's own, on each GPU beside the KV pool"
    replica = "of each replica; " if answer.asked.data_parallel_size > 1 else ""
    if answer.host is not None:
        yield _host_row(answer.host, replica=replica)
    if answer.offload is not None:
        keys = f"{replica}indexer keys of {answer.offload.tokens:,} tokens, {answer.offload.bytes_per_token:,.0f} B each"
        yield "offload tier", human_bytes(answer.offload.cpu_bytes_to_use), keys
    if answer.pod is not None:
        pod = answer.pod
        replicas = f", {pod.num_replicas} replicas" if pod.num_replicas > 1 else ""
        yield "pod", human_bytes(pod.memory_bytes), f"request and limit{replicas}; /dev/shm {human_bytes(pod.shm_bytes)}"
        yield (
            "pod start",
            f"{pod.startup_seconds:,} s",
            f"until the start-up probe gives up; {pod.termination_seconds:,} s to stop",
        )


def _host_row(host: HostSection, *, replica: str) -> tuple[str, str, str]:
    blocks = f"blocks of {human_bytes(host.stride_bytes)}"
    needed = "" if host.min_blocks is None else f", one request needs {host.min_blocks:,}"
    if host.pool_bytes is None or host.num_blocks is None:
        return "host pool", "", f"{blocks}{needed}"
    size, blocks = human_bytes(host.pool_bytes), f"{host.num_blocks:,} {blocks}"
    if host.tokens is None:
        return "host pool", size, f"{blocks}{needed}"
    owner = replica if host.mode == "shared" else "of each rank; "
    return "host pool", size, f"{owner}{host.tokens:,} tokens, {blocks}"
