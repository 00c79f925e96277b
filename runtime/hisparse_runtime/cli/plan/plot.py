"""`--plot`: how many requests run at once, against the length of their context."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from hisparse_runtime.capacity import EnginePlan, concurrency, human_bytes
from hisparse_runtime.cli.plan.case import Case

_SHORTEST_TOKENS = 8192
_POINTS_PER_DOUBLING = 16
# Colours that stay apart in print and for people who see red and green alike.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_GREY = "#6b6b6b"
# What the formats would date a file with.
_UNDATED: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Requests at once for each context length; `host` is None where the host pool follows what is needed."""

    tokens: tuple[int, ...]
    ordinary: tuple[float, ...]
    hisparse: tuple[float, ...]
    host: tuple[float, ...] | None


def curves(plan: EnginePlan, *, is_host_bounded: bool) -> Curves:
    """Up to the longest context of the model; without a bound on the host pool, only the GPU side limits."""
    sizes = plan.sizes
    lengths = _lengths(sizes.geometry.model.max_position_embeddings, page_tokens=sizes.geometry.page_tokens)
    found = [concurrency(sizes, host_blocks=plan.host.num_blocks, tokens=length) for length in lengths]
    on_gpu = [sizes.device.steady_concurrency(length) for length in lengths]
    return Curves(
        tokens=lengths,
        ordinary=tuple(now.ordinary for now in found),
        hisparse=tuple(now.steady for now in found) if is_host_bounded else tuple(on_gpu),
        host=tuple(now.host for now in found) if is_host_bounded else None,
    )


def draw(path: Path, plans: Sequence[tuple[Case, EnginePlan]]) -> None:
    """One plan, or one for each kind of GPU, in the format of the file's suffix. Raises OSError when it cannot be written."""
    first = plans[0][0].asked
    # its own figure: no window, no state that outlives it
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    if len(plans) == 1:
        _draw_one(axes, *plans[0])
    else:
        _draw_several(axes, plans)
    axes.set_title(first.title if len(plans) == 1 else first.title_of_any_gpu, loc="left", fontsize=11)
    _label_axes(axes)
    # the same plan gives the same file
    with rc_context({"svg.hashsalt": "hisparse"}):
        figure.savefig(path, dpi=150, metadata=_UNDATED[path.suffix])


def _draw_one(axes: Axes, case: Case, plan: EnginePlan) -> None:
    lines = curves(plan, is_host_bounded=case.is_host_bounded)
    hisparse, ordinary = _COLOURS[0], _COLOURS[1]
    axes.fill_between(lines.tokens, lines.ordinary, lines.hisparse, color=hisparse, alpha=0.08, linewidth=0)
    axes.plot(lines.tokens, lines.hisparse, color=hisparse, linewidth=2.2, label="HiSparse")
    axes.plot(lines.tokens, lines.ordinary, color=ordinary, linewidth=2.2, label="without HiSparse")
    if lines.host is not None:
        pool = human_bytes(plan.memory.host_pool_bytes)
        axes.plot(lines.tokens, lines.host, color=_GREY, linewidth=1.3, linestyle="--", label=f"limit of the host pool, {pool}")
    _draw_most(axes, plan)


def _draw_several(axes: Axes, plans: Sequence[tuple[Case, EnginePlan]]) -> None:
    for colour, (case, plan) in zip(cycle(_COLOURS), plans, strict=False):
        lines = curves(plan, is_host_bounded=case.is_host_bounded)
        name = case.asked.gpu
        axes.plot(lines.tokens, lines.hisparse, color=colour, linewidth=2.2, label=f"{name}, HiSparse")
        axes.plot(lines.tokens, lines.ordinary, color=colour, linewidth=1.6, linestyle=":", label=f"{name}, without")
    _draw_most(axes, plans[0][1])


def _draw_most(axes: Axes, plan: EnginePlan) -> None:
    """max_num_seqs, where it is within the figure."""
    most = plan.request.settings.max_num_seqs
    if most <= axes.get_ylim()[1]:
        axes.axhline(most, color=_GREY, linewidth=1, linestyle="-.", label=f"max_num_seqs {most:,}")


def _label_axes(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tokens, _: _tokens(tokens)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda requests, _: f"{requests:g}"))
    axes.axhline(1, color=_GREY, linewidth=0.8, label="one request; below, not even that fits")
    axes.set_xlabel("context of each request, tokens")
    axes.set_ylabel("requests at once, per replica")
    axes.margins(x=0)
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=9, framealpha=0.85, edgecolor="none")


def _tokens(tokens: float) -> str:
    """`64K`, `1M`: in 1,024s, as the axis is divided."""
    kibi = tokens / 1024
    return f"{kibi / 1024:g}M" if kibi >= 1024 else f"{kibi:g}K"


def _lengths(longest_tokens: int, *, page_tokens: int) -> tuple[int, ...]:
    """Whole pages, evenly spaced on a logarithmic axis, and the longest itself."""
    shortest_tokens = max(page_tokens, min(_SHORTEST_TOKENS, longest_tokens // 16))
    lengths = {longest_tokens}
    step = 0
    while (length := shortest_tokens * 2 ** (step / _POINTS_PER_DOUBLING)) < longest_tokens:
        lengths.add(round(length / page_tokens) * page_tokens)
        step += 1
    return tuple(sorted(lengths))
