"""What the container shows of an engine from outside: memory by its cgroup, /dev/shm, processes. Nothing here can fail."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hisparse_runtime.vllm.pod_plan import PodPlan

_SHM = Path("/dev/shm")  # noqa: S108 - where vLLM has its pools
_CGROUP = Path("/sys/fs/cgroup")
# Of a container's own cgroup, which is at the mount's root: with version 2 of the interface, and with version 1.
_MEMORY_STATS = (("memory.stat", "anon"), ("memory/memory.stat", "total_rss"))
_OOM_COUNTS = (("memory.events", "oom_kill"), ("memory/memory.oom_control", "oom_kill"))

_LASTING_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Bytes are 0 where they cannot be seen. `num_processes`: of the engine, without those that have just begun."""

    shm_used_bytes: int
    anonymous_bytes: int
    num_processes: int


def measure(process_group: int | None, *, shm: Path = _SHM, cgroup: Path = _CGROUP, proc: Path = Path("/proc")) -> Measured:
    """Now; some milliseconds. `process_group` None: the engine is not started."""
    return Measured(
        shm_used_bytes=_used_bytes(shm),
        anonymous_bytes=_first_count(_MEMORY_STATS, cgroup),
        num_processes=0 if process_group is None else _num_processes(process_group, proc),
    )


def pinned_bytes(measured: Measured, plan: PodPlan) -> int:
    """Of the pools that are planned, what is there.

    Shared ones lie in /dev/shm. Private ones are anonymous memory, as is the processes' own, for which the plan has a
    figure: up to its error, what is above it is pool.
    """
    private_bytes = 0 if plan.shares_host_pool else plan.all_host_pools_bytes
    above_bytes = max(0, measured.anonymous_bytes - plan.working_set_bytes)
    return min(measured.shm_used_bytes, plan.shared_pools_bytes) + min(above_bytes, private_bytes)


def num_oom_kills(*, cgroup: Path = _CGROUP) -> int:
    """Processes of this container that the kernel killed for memory."""
    return _first_count(_OOM_COUNTS, cgroup)


def _used_bytes(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _first_count(places: tuple[tuple[str, str], ...], cgroup: Path) -> int:
    for file, key in places:
        with suppress(OSError, ValueError):
            rows = dict(line.split(maxsplit=1) for line in (cgroup / file).read_text(encoding="ascii").splitlines())
            if key in rows:
                return int(rows[key])
    return 0


def _num_processes(process_group: int, proc: Path) -> int:
    """That have lasted: imports run short programs, too, to ask for the machine."""
    last_start_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - _LASTING_SECONDS
    found = (_group_and_start(folder) for folder in proc.iterdir() if folder.name.isdigit())
    return sum(group == process_group and start_seconds <= last_start_seconds for group, start_seconds in found)


def _group_and_start(folder: Path) -> tuple[int | None, float]:
    """Start in seconds since boot. No group: the process is gone by now, or has ended and waits to be reaped."""
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None, 0.0
    # From the third field on; the second is the name, which is in brackets and can have anything in it.
    fields = text.rpartition(")")[2].split()
    return (None if fields[0] == "Z" else int(fields[2])), int(fields[19]) / os.sysconf("SC_CLK_TCK")
