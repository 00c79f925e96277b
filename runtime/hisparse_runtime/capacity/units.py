"""Bytes as people read them: binary units, as in Kubernetes."""

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def human_bytes(size_bytes: int) -> str:
    """`512 B`, `12.0 KiB`, `8.0 MiB`, `23.13 GiB`: one digit after the point, two from a GiB on, thousands apart."""
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:,.2f} GiB"
    if size_bytes >= MIB:
        return f"{size_bytes / MIB:,.1f} MiB"
    if size_bytes >= KIB:
        return f"{size_bytes / KIB:,.1f} KiB"
    return f"{size_bytes} B"


def round_up(size_bytes: int, *, to_bytes: int) -> int:
    """The next multiple of `to_bytes` that is not below `size_bytes`."""
    return -(-size_bytes // to_bytes) * to_bytes
