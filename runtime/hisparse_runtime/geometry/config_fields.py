"""Reads single fields of a model's config.json; every error names the field and what is expected."""

from collections.abc import Mapping
from typing import Any

# config.json comes from whoever made the object or the checkpoint: far above any model, low enough to count in an instant.
MOST_LAYERS = 1_000
LARGEST_DIMENSION = 1 << 24


class ModelConfigError(ValueError):
    """config.json cannot be served; the message names the field and what is expected."""


def whole_number(
    config: Mapping[str, Any],
    field: str,
    *,
    minimum: int = 1,
    maximum: int = LARGEST_DIMENSION,
    default: int | None = None,
) -> int:
    """The field as a whole number within its bounds. Absent or null: `default`, or ModelConfigError when there is none."""
    value = config.get(field)
    if value is None:
        if default is not None:
            return default
        raise ModelConfigError(
            f"config.json has no {field!r}: a sparse-MLA model with a lightning indexer (GLM-5.x, DeepSeek-V3.2) has one"
        )
    # bool is an int in Python, not in config.json
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise ModelConfigError(f"config.json: {field} must be a whole number from {minimum} to {maximum:,}, got {value!r}")
    return value
