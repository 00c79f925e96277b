"""Numbers as people read them."""

_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size_text(num_bytes: int) -> str:
    """Bytes in the largest binary unit that leaves a number of at least 1, with one decimal unless it is whole."""
    for unit_bytes, unit in _UNITS:
        if num_bytes >= unit_bytes:
            return f"{num_bytes / unit_bytes:.1f}".removesuffix(".0") + f" {unit}"
    return f"{num_bytes} B"
