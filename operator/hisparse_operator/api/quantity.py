"""Kubernetes quantities ("384Gi", "500m", 1073741824) as fields of the API. All of ours are above zero."""

import re
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

# The pattern that Kubernetes itself publishes for quantities, without a sign (no size of ours may be negative) and with an
# exponent of at most two digits, because 1e999999999 is a number that takes a gigabyte to write down.
_PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][0-9]{1,2}))?$"
_NUMBER_AND_SUFFIX = r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+)(?P<suffix>([KMGTPE]i)|[numkMGTPE]|([eE][0-9]{1,2})|)"
_MAX_CHARACTERS = 32

_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def quantity_bytes(quantity: int | str) -> int:
    """The number of bytes (or whole units) that a quantity stands for, rounded up as Kubernetes does.

    Raises ValueError when the text is not a quantity.
    """
    if isinstance(quantity, int):
        return quantity
    match = re.fullmatch(_NUMBER_AND_SUFFIX, quantity)
    if match is None or len(quantity) > _MAX_CHARACTERS:
        raise ValueError(f"{quantity!r} is not a quantity: write a number with an optional suffix, such as 512Mi, 1.5Gi or 500m")
    number, suffix = Decimal(match["number"]), match["suffix"]
    return int((number * _scale(suffix)).to_integral_value(rounding=ROUND_CEILING))


def _scale(suffix: str) -> Decimal:
    if suffix in _BINARY_EXPONENTS:
        return Decimal(2) ** _BINARY_EXPONENTS[suffix]
    exponent = int(suffix[1:]) if suffix[:1] in {"e", "E"} and suffix != "E" else _DECIMAL_EXPONENTS.get(suffix, 0)
    return Decimal(10) ** exponent


def _positive(value: int | str) -> int | str:
    if quantity_bytes(value) <= 0:
        raise ValueError(f"{value!r} must be above zero")
    return value


_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": _PATTERN,
    # bounds what the API server estimates the rule to cost
    "maxLength": _MAX_CHARACTERS,
    "x-kubernetes-int-or-string": True,
    "x-kubernetes-validations": [
        {
            # Above zero means a digit above zero before the suffix. CEL's quantity() is kept away from what people write: rules
            # run even where the pattern does not match, and quantity('1e999999999') holds the API server until the time-out.
            "rule": "type(self) == int ? self > 0 : self.matches('^[0-9.]*[1-9]')",
            "message": "must be a quantity above zero, such as 512Mi, 1.5Gi or 1073741824",
            "reason": "FieldValueInvalid",
        }
    ],
}

Quantity = Annotated[int | str, AfterValidator(_positive), WithJsonSchema(_SCHEMA)]
