"""Which layers run an indexer of their own, and which use the choice of a layer before them (IndexShare)."""

from collections.abc import Mapping
from typing import Any

from hisparse_runtime.geometry.config_fields import ModelConfigError, whole_number

_SHARED = "S"


def indexer_owners(config: Mapping[str, Any], *, num_layers: int) -> tuple[bool, ...]:
    """One entry per layer: True for a leader, False for a follower.

    `index_topk_pattern` spells it out, a letter a layer, `S` for shared; layers past its end lead. Else every
    `index_topk_freq`-th layer leads, counted from `index_skip_topk_offset`, as in vLLM's model code. Raises ModelConfigError.
    """
    pattern = config.get("index_topk_pattern")
    if pattern is not None:
        if not isinstance(pattern, str | list):
            raise ModelConfigError(f"config.json: index_topk_pattern must be a letter per layer, S for shared, got {pattern!r}")
        shared = {layer for layer, letter in enumerate(pattern[:num_layers]) if letter == _SHARED}
        return tuple(layer not in shared for layer in range(num_layers))
    every = whole_number(config, "index_topk_freq", default=1)
    offset = whole_number(config, "index_skip_topk_offset", minimum=0, default=2)
    return tuple(max(layer - offset + 1, 0) % every == 0 for layer in range(num_layers))


def index_units(owners: tuple[bool, ...]) -> tuple[int, ...]:
    """Sizes of the units that never part: a leader and the followers behind it. The first layer always opens one."""
    sizes: list[int] = []
    for owns_indexer in owners:
        if owns_indexer or not sizes:
            sizes.append(0)
        sizes[-1] += 1
    return tuple(sizes)
