"""Numbers as people write them on the command line: tokens, GiB, bytes. Each parser raises ValueError with a text to show."""

import re
from decimal import ROUND_CEILING, Decimal

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
# Far above any machine, and low enough to count in blocks.
MOST_BYTES = 1 << 60
_QUANTITY = re.compile(r"(?P<number>[0-9]{1,20}(\.[0-9]{1,9})?)(?P<suffix>[A-Za-z]*)")


def tokens(text: str) -> int:
    """`142000`, `64K` (65,536), `64k` (64,000), `1M` (1,048,576): as vLLM reads `--max-model-len`."""
    match = _TOKENS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number of tokens: write 142000, 64K for 65,536 or 64k for 64,000")
    exact = Decimal(match["number"]) * _TOKEN_FACTORS[match["suffix"]]
    if exact != int(exact) or exact < 1:
        raise ValueError(f"{text!r} is {exact:f} tokens: a whole number of one or more is needed")
    return int(exact)


def context(text: str) -> int | str:
    """Tokens, or AUTO for `auto` and `-1`: the longest context that fits."""
    return AUTO if text.strip().lower() in (AUTO, "-1") else tokens(text)


def gib(text: str) -> float:
    """A plain number of GiB above zero. A unit is an error, since the option's name has it already."""
    try:
        size_gib = float(text)
    except ValueError:
        size_bytes = _bytes_or_none(text)
        if size_bytes is None:
            raise ValueError(f"{text!r} is not a number: write GiB without a unit, such as 384") from None
        raise ValueError(
            f"{text!r} has a unit: write a plain number of GiB, as vLLM's host_pool_gib is one; {text.strip()} is"
            f" {size_bytes / GIB:g}"
        ) from None
    if not 0 < size_gib <= MOST_BYTES / GIB:  # nan is neither
        raise ValueError(f"{text!r}: a number of GiB above zero is needed, of at most {MOST_BYTES // GIB:,}")
    return size_gib


def quantity_bytes(text: str) -> int:
    """Bytes, `137438953472`, or a quantity as in Kubernetes, `128Gi`; a fraction of a byte counts as one."""
    size_bytes = _bytes_or_none(text)
    if size_bytes is None:
        raise ValueError(f"{text!r} is not a size: write bytes, or a quantity such as 128Gi or 2Ti")
    if size_bytes > MOST_BYTES:
        raise ValueError(f"{text!r} is larger than {MOST_BYTES:,} bytes")
    return size_bytes


def compared(text: str) -> tuple[int, ...] | tuple[str, ...]:
    """Context lengths, or names of GPUs. Raises ValueError for a list that is neither."""
    entries = tuple(entry.strip() for entry in text.split(","))
    if not all(entries):
        raise ValueError(f"{text!r} has an empty entry: write 65536,142000,1M or H200,B200,B300")
    are_numbers = [entry[0].isdigit() for entry in entries]
    if any(are_numbers) and not all(are_numbers):
        raise ValueError(f"{text!r}: give context lengths or kinds of GPU, not both")
    found = tuple(tokens(entry) for entry in entries) if all(are_numbers) else entries
    if len(set(found)) < len(found):
        raise ValueError(f"{text!r} names something twice")
    return found


def _bytes_or_none(text: str) -> int | None:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match["suffix"] not in _BYTE_FACTORS:
        return None
    exact = Decimal(match["number"]) * _BYTE_FACTORS[match["suffix"]]
    return int(exact.to_integral_value(rounding=ROUND_CEILING))
