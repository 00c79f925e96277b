"""Shared memory, /dev/shm: how large it is, and what an engine that was killed has left in it.

A container that starts again finds the emptyDir of its predecessor, with every file that was not unlinked in time. They take
the pod's memory, so the next engine would find too little of it.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

# Regions of vLLM's pools, its message queues, and what NCCL and PyTorch share between processes.
_PATTERNS = ("vllm_offload_*.mmap*", "psm_*", "nccl-*", "torch_*")
_PREFIX = "/dev/shm/"  # noqa: S108 - a mount of the pod's own
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    total_bytes: int
    free_bytes: int


class Fate(StrEnum):
    """HELD: a process has it open. FOREIGN: this /dev/shm is not the pod's own. STUCK: it could not be removed."""

    REMOVED = "removed"
    HELD = "held"
    FOREIGN = "foreign"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """`size_bytes`: of memory, less than its length where it was not filled. `detail`: who holds it, or why it is stuck."""

    name: str
    size_bytes: int
    age_seconds: int
    fate: Fate
    detail: str = ""


def shared_memory(root: Path) -> SharedMemory | None:
    """None where there is no /dev/shm."""
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return SharedMemory(total_bytes=found.f_blocks * found.f_frsize, free_bytes=found.f_bavail * found.f_frsize)


def sweep_leftovers(root: Path, *, planned_bytes: int, now_seconds: float) -> tuple[Leftover, ...]:
    """Removes what nobody holds. `planned_bytes`: size of the pod's own /dev/shm; in one of another size, as that of the node
    with hostIPC, other pods may have files whose processes cannot be seen from here: it is left alone.
    """
    folder = root / "dev/shm"
    files = [(path, found) for path, found in _files(folder) if any(path.match(pattern) for pattern in _PATTERNS)]
    if not files:
        return ()
    space = os.statvfs(folder)
    # tmpfs rounds up to whole pages
    is_own = -(-planned_bytes // space.f_frsize) == space.f_blocks
    holders = _holders(root, [path.name for path, _ in files]) if is_own else {}
    return tuple(_swept(path, found, is_own=is_own, holders=holders, now_seconds=now_seconds) for path, found in files)


def _swept(path: Path, found: os.stat_result, *, is_own: bool, holders: dict[str, str], now_seconds: float) -> Leftover:
    fate, detail = Fate.FOREIGN, ""
    if path.name in holders:
        fate, detail = Fate.HELD, holders[path.name]
    elif is_own:
        try:
            path.unlink(missing_ok=True)
            fate = Fate.REMOVED
        except OSError as error:
            fate, detail = Fate.STUCK, error.strerror or str(error)
    return Leftover(
        name=path.name,
        size_bytes=found.st_blocks * _BLOCK_BYTES,
        age_seconds=max(0, int(now_seconds - found.st_mtime)),
        fate=fate,
        detail=detail,
    )


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        try:
            found = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            yield path, found


def _holders(root: Path, names: list[str]) -> dict[str, str]:
    """File in /dev/shm -> the process that has it open or mapped; `names`: those that are asked about."""
    holders: dict[str, str] = {}
    for process in root.joinpath("proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            maps = ""
        except OSError:
            return dict.fromkeys(names, f"process {process.name}, perhaps: it may not be looked into")
        # the path is a line's last column
        mapped = (line.partition(_PREFIX)[2] for line in maps.splitlines())
        for name in filter(None, (*mapped, *_opened(process / "fd"))):
            holders[name] = f"process {process.name}"
    return holders


def _opened(folder: Path) -> Iterator[str]:
    try:
        descriptors = list(folder.iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        try:
            yield str(descriptor.readlink()).partition(_PREFIX)[2]
        except OSError:
            continue
