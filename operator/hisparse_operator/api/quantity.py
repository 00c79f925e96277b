"""Kubernetes quantities ("384Gi", "500m", 1073741824) as fields of the API."""

from decimal import ROUND_CEILING
from typing import Annotated, Any

from kubernetes.utils.quantity import parse_quantity
from pydantic import AfterValidator, WithJsonSchema

# The pattern that Kubernetes itself publishes for quantities, without a sign: no size of ours may be negative.
_PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][0-9]+))?$"


def quantity_bytes(text: int | str) -> int:
    """The number of bytes (or whole units) that a quantity stands for, rounded up.

    Raises ValueError when the text is not a quantity.
    """
    return int(parse_quantity(text).to_integral_value(rounding=ROUND_CEILING))


def _checked(value: int | str) -> int | str:
    if quantity_bytes(value) < 0:
        raise ValueError(f"{value!r} is negative")
    return value


_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": _PATTERN, "x-kubernetes-int-or-string": True}

Quantity = Annotated[int | str, AfterValidator(_checked), WithJsonSchema(_SCHEMA)]
