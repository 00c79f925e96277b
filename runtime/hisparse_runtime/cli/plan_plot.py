"""`--plot`: how many requests run at once, against the length of their context."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from hisparse_runtime.capacity import EnginePlan, concurrency
from hisparse_runtime.cli.plan_case import Case

_SHORTEST_TOKENS = 8192
_POINTS_PER_DOUBLING = 16
# Colours that stay apart in print and for people who see red and green alike.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_GREY = "#6b6b6b"


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
    # its own figure: no window, no state that outlives it
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for colour, (case, plan) in zip(_COLOURS, plans, strict=False):
        lines = curves(plan, is_host_bounded=case.is_host_bounded)
        axes.plot(lines.tokens, lines.hisparse, color=colour, linewidth=2.2)
        axes.plot(lines.tokens, lines.ordinary, color=colour, linewidth=2.2)
    axes.set_xscale("log", base=2)
    figure.savefig(path, dpi=150)


def _lengths(longest_tokens: int, *, page_tokens: int) -> tuple[int, ...]:
    """Whole pages, evenly spaced on a logarithmic axis, and the longest itself."""
    lengths = {longest_tokens}
    step = 0
    while (length := _SHORTEST_TOKENS * 2 ** (step / _POINTS_PER_DOUBLING)) < longest_tokens:
        lengths.add(round(length / page_tokens) * page_tokens)
        step += 1
    return tuple(sorted(lengths))
