"""The engine as a process group of its own, and all other children that a first process has to reap."""

import ctypes
import os
import signal
from collections.abc import Mapping, Sequence

from hisparse_runtime.vllm.launch.last_words import LastWords

_PR_SET_CHILD_SUBREAPER = 36
# Python ignores these two for itself, and a child would inherit that.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class EngineStartError(RuntimeError):
    """The program cannot be run; the text has its name and why."""


class EngineProcess:
    """The leader is what was started; engine core and workers are in its group.

    Only one thread may call it: the one that started it. Not subprocess: that reaps only what it started itself, and would
    compete for the rest.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], *, words: LastWords) -> None:
        """Raises EngineStartError."""
        _adopt_orphans()
        pipes = {descriptor: os.pipe() for descriptor in (1, 2)}
        try:
            self.process_group = os.posix_spawnp(
                arguments[0],
                list(arguments),
                dict(environment),
                file_actions=[(os.POSIX_SPAWN_DUP2, writer, descriptor) for descriptor, (_, writer) in pipes.items()],
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, *_IGNORED_BY_PYTHON),
            )
        except OSError as error:
            for reader, _ in pipes.values():
                os.close(reader)
            raise EngineStartError(f"{arguments[0]}: {error.strerror}; next step: look at the engine image") from error
        finally:
            for _, writer in pipes.values():
                os.close(writer)
        for descriptor, (reader, _) in pipes.items():
            words.copy(reader, descriptor, keeps_last_lines=descriptor == 2)
        self.exit_code: int | None = None
        """Of the leader, once it is reaped; -N for a signal."""

    def reap(self) -> None:
        """Every child that has ended, also those that lost their parents."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.process_group:
                self.exit_code = os.waitstatus_to_exitcode(status)

    @property
    def is_group_alive(self) -> bool:
        """Leader, engine core or workers; after `reap`."""
        try:
            os.killpg(self.process_group, 0)
        except ProcessLookupError:
            return False
        return True

    def signal_leader(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            os.kill(self.process_group, number)

    def signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process_group, number)
        except ProcessLookupError:
            return


def _adopt_orphans() -> None:
    """As a first process does by itself. In a pod that shares its processes, that is another one."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
