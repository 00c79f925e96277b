"""Sizes with a unit, as people write them where vLLM wants a plain number."""

import re

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT])(i?)B?\s*")
_EXPONENTS = {"K": 1, "M": 2, "G": 3, "T": 4}


def quantity_bytes(given: object) -> int | None:
    """Bytes of `384GiB`, `128Gi`, `1.5 TB`; None for anything else."""
    match = _QUANTITY.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        return None
    base = 1024 if match[3] else 1000
    factor: int = base ** _EXPONENTS[match[2]]
    return round(float(match[1]) * factor)
