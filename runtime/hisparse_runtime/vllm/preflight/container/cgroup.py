"""The memory that the container may use, of control groups version 1 and 2."""

from collections.abc import Iterator
from pathlib import Path

from hisparse_runtime.vllm.preflight.container.files import text_of

# Version 1 has a number for "no limit": the largest that is a multiple of a page.
_UNLIMITED_BYTES = 1 << 62


def memory_limit_bytes(root: Path) -> int | None:
    """The smallest limit that is in force; None where there is none, or no control group."""
    limits = [limit for limit in _limits_bytes(root) if limit < _UNLIMITED_BYTES]
    return min(limits, default=None)


def _limits_bytes(root: Path) -> Iterator[int]:
    mount = root / "sys/fs/cgroup"
    if (mount / "memory").is_dir():
        # The container's own group is the mount's root, although /proc/self/cgroup has the machine's path.
        yield from _number(text_of(mount / "memory/memory.limit_in_bytes"))
        yield from _number(_hierarchical(text_of(mount / "memory/memory.stat")))
        return
    for group in _groups(root, mount):
        yield from _number(text_of(group / "memory.max"))


def _groups(root: Path, mount: Path) -> Iterator[Path]:
    """The process's group and those above it: with a cgroup namespace, as usual, it is the mount's root alone."""
    lines = text_of(root / "proc/self/cgroup").splitlines()
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    group = mount / path
    while group != mount:
        yield group
        group = group.parent
    yield mount


def _hierarchical(stat: str) -> str:
    """Of memory.stat: the smallest limit of the group and all above it."""
    return next((line.partition(" ")[2] for line in stat.splitlines() if line.startswith("hierarchical_memory_limit ")), "")


def _number(text: str) -> Iterator[int]:
    """Nothing for `max`, and where there is no such file."""
    if text.strip().isdecimal():
        yield int(text)
