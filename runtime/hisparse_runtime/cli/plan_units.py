"""Numbers as people write them on the command line: tokens, GiB, bytes. Each parser raises ValueError with a text to show."""

import math
import re

from hisparse_runtime.capacity import GIB

AUTO = "auto"
# vLLM's own suffixes for numbers of tokens: small letters count in thousands, capitals in 1,024s.
_TOKEN_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "K": 1 << 10, "M": 1 << 20}
_TOKENS = re.compile(r"(?P<number>[0-9]{1,12}(\.[0-9]{1,6})?)(?P<suffix>[kmKM]?)")
_BYTE_FACTORS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "Pi": 1 << 50,
}
_QUANTITY = re.compile(r"(?P<number>[0-9]{1,20}(\.[0-9]{1,9})?)(?P<suffix>[A-Za-z]*)")


def tokens(text: str) -> int:
    """`142000`, `64K` (65,536), `64k` (64,000), `1M` (1,048,576): as vLLM reads `--max-model-len`."""
    match = _TOKENS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number of tokens: write 142000, 64K for 65,536 or 64k for 64,000")
    exact = float(match["number"]) * _TOKEN_FACTORS[match["suffix"]]
    if not exact.is_integer() or exact < 1:
        raise ValueError(f"{text!r} is {exact:g} tokens: a whole number of one or more is needed")
    return int(exact)


def context(text: str) -> int | str:
    """Tokens, or AUTO for `auto` and `-1`: the longest context that fits."""
    return AUTO if text.strip().lower() in (AUTO, "-1") else tokens(text)


def gib(text: str, *, minimum: float = 0) -> float:
    """A plain number of GiB that is above `minimum`. A unit is an error: the option's name has it already."""
    try:
        size_gib = float(text)
    except ValueError as error:
        match = _QUANTITY.fullmatch(text.strip())
        if match is None or match["suffix"] not in _BYTE_FACTORS:
            raise ValueError(f"{text!r} is not a number: a plain number of GiB is needed, such as 384") from error
        size_gib = float(match["number"]) * _BYTE_FACTORS[match["suffix"]] / GIB
        raise ValueError(f"{text!r} has a unit: a plain number of GiB is needed, for {text.strip()} that is {size_gib:g}") from error
    if not math.isfinite(size_gib) or size_gib <= minimum:
        raise ValueError(f"{text!r}: a number of GiB above {minimum:g} is needed")
    return size_gib


def quantity_bytes(text: str) -> int:
    """Bytes, `137438953472`, or a quantity as in Kubernetes, `128Gi`; a fraction of a byte counts as one."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match["suffix"] not in _BYTE_FACTORS:
        raise ValueError(f"{text!r} is not a size: write bytes or a quantity such as 128Gi or 2Ti")
    return math.ceil(float(match["number"]) * _BYTE_FACTORS[match["suffix"]]) if match["suffix"] else math.ceil(float(match["number"]))
