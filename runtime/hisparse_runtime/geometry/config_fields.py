"""Reads single fields of a model's config.json; every error names the field and what is expected."""

from collections.abc import Mapping
from typing import Any


class ModelConfigError(ValueError):
    """config.json cannot be served; the message names the field and what is expected."""


def whole_number(config: Mapping[str, Any], field: str, *, minimum: int = 1, default: int | None = None) -> int:
    """The field as a whole number that is not below `minimum`. Absent or null: `default`, or an error when there is none."""
    value = config.get(field)
    if value is None:
        if default is not None:
            return default
        raise ModelConfigError(
            f"config.json has no {field!r}: a sparse-MLA model with a lightning indexer (GLM-5.x, DeepSeek-V3.2) has one"
        )
    # bool is an int in Python, not in config.json
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        kind = "a positive whole number" if minimum == 1 else f"a whole number, {minimum} or more"
        raise ModelConfigError(f"config.json: {field} must be {kind}, got {value!r}")
    return value
