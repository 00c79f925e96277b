"""Keeps components running: starts, restarts and, on request, holds them down. The process that uses it is pid 1 of the box.

    desired: a file held/NAME says "keep NAME down"; SIGUSR1 says "look again"
    observed: components.json, rewritten at every change

Files instead of a socket: they have no path limit, survive a busy pid 1, and a person can read them.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from tools.devcluster.configuration import Component

RESTART_SECONDS = 1.0
_WAKING = frozenset({signal.SIGCHLD, signal.SIGUSR1})


class ComponentState(TypedDict):
    """One entry of components.json; `pid` counts in the box's pid namespace, 0 when it does not run."""

    pid: int
    ends: int
    held: bool


@dataclass(slots=True)
class _Supervised:
    component: Component
    pid: int | None = None
    ends: int = 0
    restart_at_seconds: float | None = None
    held: bool = False


class Supervisor:
    """One thread, woken by signals: SIGCHLD and SIGUSR1 stay blocked and are fetched by `turn`."""

    def __init__(self, *, log_of: Callable[[str], Path], held: Path, state_file: Path, environment: Mapping[str, str]) -> None:
        self._log_of = log_of
        self._held = held
        self._state_file = state_file
        self._environment = dict(environment)
        self._supervised: dict[str, _Supervised] = {}
        self._exit_codes: dict[int, int] = {}
        self._written: dict[str, ComponentState] | None = None
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAKING)

    def start(self, component: Component) -> None:
        """Starts it and takes care of it from now on."""
        supervised = _Supervised(component)
        self._supervised[component.name] = supervised
        self._apply_held()
        if not supervised.held:
            self._spawn(supervised)
        self._publish()

    def turn(self, *, timeout_seconds: float) -> None:
        """Waits for a signal or the time-out, then puts everything in order once."""
        due = [entry.restart_at_seconds for entry in self._supervised.values() if entry.restart_at_seconds is not None]
        wait_seconds = min([timeout_seconds, *(moment - time.monotonic() for moment in due)])
        signal.sigtimedwait(_WAKING, max(wait_seconds, 0))
        self._reap()
        self._apply_held()
        for entry in self._supervised.values():
            if entry.restart_at_seconds is not None and entry.restart_at_seconds <= time.monotonic() and not entry.held:
                self._spawn(entry)
        self._publish()

    def run_until(self, condition: Callable[[], bool], *, poll_seconds: float = 0.05) -> None:
        while not condition():
            self.turn(timeout_seconds=poll_seconds)

    def run_once(self, name: str, command: list[str], *, stdin: Path | None = None) -> int:
        """Runs a program to its end, while the components are looked after; gives its exit code."""
        pid = self._launch(name, tuple(command), stdin=stdin)
        self.run_until(lambda: pid in self._exit_codes)
        return self._exit_codes.pop(pid)

    def states(self) -> dict[str, ComponentState]:
        return {
            name: ComponentState(pid=entry.pid or 0, ends=entry.ends, held=entry.held) for name, entry in self._supervised.items()
        }

    def _reap(self) -> None:
        """Collects every child, also orphans that the kernel gave to pid 1: shims and what they leave behind."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            entry = next((entry for entry in self._supervised.values() if entry.pid == pid), None)
            if entry is None:
                self._exit_codes = {**dict(list(self._exit_codes.items())[-100:]), pid: os.waitstatus_to_exitcode(status)}
            else:
                self._note_end(entry, exit_code=os.waitstatus_to_exitcode(status))

    def _note_end(self, entry: _Supervised, *, exit_code: int) -> None:
        entry.pid = None
        entry.ends += 1
        entry.restart_at_seconds = None if entry.held else time.monotonic() + RESTART_SECONDS
        next_step = "held down on request" if entry.held else "starting it again"
        with self._log_of(entry.component.name).open("a") as log:
            log.write(f"--- {entry.component.name} ended with {exit_code}, {next_step}\n")

    def _apply_held(self) -> None:
        wanted = {path.name for path in self._held.iterdir()}
        for name, entry in self._supervised.items():
            was_held, entry.held = entry.held, name in wanted
            if entry.held:
                entry.restart_at_seconds = None
                if entry.pid is not None and not was_held:
                    # Not SIGTERM: an API server with watch clients takes more than 45 s, and for ever when etcd has gone first.
                    os.kill(entry.pid, signal.SIGKILL)
            elif was_held and entry.pid is None:
                entry.restart_at_seconds = time.monotonic()

    def _spawn(self, entry: _Supervised) -> None:
        entry.restart_at_seconds = None
        entry.pid = self._launch(entry.component.name, entry.component.command)

    def _launch(self, name: str, command: tuple[str, ...], *, stdin: Path | None = None) -> int:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, str(stdin or os.devnull), os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self._log_of(name)), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        # The children must not inherit the blocked signals: a Go program would never see its own children end.
        return os.posix_spawnp(command[0], command, self._environment, file_actions=actions, setsigmask=[], setsid=True)

    def _publish(self) -> None:
        states = self.states()
        if states == self._written:
            return
        temporary = self._state_file.with_suffix(".new")
        temporary.write_text(json.dumps(states))
        temporary.replace(self._state_file)
        self._written = states
