"""Processes that outlive their starter, known by more than a number: pids are given out again, also after a reboot."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.devcluster.failure import DevClusterError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process for as long as it lives: `start_ticks` since boot tells it from a later one with the same pid."""

    pid: int
    start_ticks: int
    boot_id: str

    def is_alive(self) -> bool:
        return identity_of(self.pid) == self

    def write(self, path: Path) -> None:
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(path)


def read_identity(path: Path) -> ProcessIdentity | None:
    """None when there is no such file; what a crash left half written counts as absent too."""
    try:
        return ProcessIdentity(**json.loads(path.read_text()))
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        return None


def identity_of(pid: int) -> ProcessIdentity | None:
    """None when no such process runs; a zombie does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[
        stat.rindex(")") + 2 :
    ].split()  # the command in brackets may hold spaces; proc(5) counts from pid = 1, so state = 3
    if fields[0] in "ZX":
        return None
    return ProcessIdentity(pid=pid, start_ticks=int(fields[19]), boot_id=_BOOT_ID.read_text().strip())


def start_daemon(
    command: Sequence[str | Path],
    *,
    log: Path,
    pid_file: Path,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    timeout_seconds: float = 30,
) -> ProcessIdentity:
    """Starts `command` in a session of its own, adopted by the machine's pid 1, with its output in `log`.

    The shell in between writes its pid and then becomes the command, so the identity is the command's.
    """
    pid_file.unlink(missing_ok=True)
    words = ["setsid", "--fork", "sh", "-c", 'echo $$ > "$0"; exec "$@"', str(pid_file), *(str(word) for word in command)]
    with log.open("ab") as output:
        subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            pass_fds=pass_fds,
            check=True,
        )
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        text = pid_file.read_text() if pid_file.exists() else ""
        if text.endswith("\n"):
            pid_file.unlink()
            identity = identity_of(int(text))
            if identity is None:
                break
            return identity
        time.sleep(0.01)
    last_lines = log.read_text(errors="replace").strip().splitlines()[-5:]
    raise DevClusterError(
        "\n".join([f"{command[0]} ended at once; its log {log} says:", *(f"    {line}" for line in last_lines)])
    )


def end(identity: ProcessIdentity, *, timeout_seconds: float = 20) -> None:
    """SIGKILL, and waits until the process is gone."""
    if identity.is_alive():
        try:
            os.kill(identity.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
    wait_for_end(identity, timeout_seconds=timeout_seconds)


def wait_for_end(identity: ProcessIdentity, *, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while identity.is_alive():
        if time.monotonic() > deadline:
            raise DevClusterError(
                f"process {identity.pid} is still there {timeout_seconds:.0f} s after SIGKILL; see /proc/{identity.pid}/stack"
            )
        time.sleep(0.02)


def first_child(identity: ProcessIdentity) -> ProcessIdentity | None:
    try:
        children = Path(f"/proc/{identity.pid}/task/{identity.pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return identity_of(int(children[0])) if children and identity.is_alive() else None
