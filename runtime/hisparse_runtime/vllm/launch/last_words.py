"""The engine's output on its way to the log, and of it what an end is explained by.

The kubelet's FallbackToLogsOnError would take the last lines, and those of vLLM are "See root cause above".
"""

import os
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping

_CHUNK_BYTES = 1 << 16
_NUM_ERRORS = 6
_NUM_LAST_LINES = 8
_MAX_LINE_LENGTH = 400
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_MIN_SECRET_LENGTH = 6
# The last line of a traceback, or of an argument parser, behind the prefixes of vLLM's log: process, level, place.
_ERROR = re.compile(
    r"^(?:\([^)]*\) ?)?(?:(?:ERROR|CRITICAL)[^\]]*\] ?)?"
    r"(?P<text>(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception)\b: .+|[\w. -]+: error: .+)"
)


class LastWords:
    """Reads streams of a child in threads of its own and writes them on unchanged."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._secrets = [
            value for name, value in environment.items() if _SECRET_NAME.search(name) and len(value) >= _MIN_SECRET_LENGTH
        ]
        self._lock = threading.Lock()
        self._errors: OrderedDict[str, None] = OrderedDict()
        self._last_lines: deque[str] = deque(maxlen=_NUM_LAST_LINES)
        self._threads: list[threading.Thread] = []

    def copy(self, source: int, target: int, *, keeps_last_lines: bool) -> None:
        """Until the end of descriptor `source`, which is closed then."""
        thread = threading.Thread(target=self._copy, args=(source, target, keeps_last_lines), name="output", daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self, *, timeout_seconds: float) -> None:
        """Until everything is written: after the last process of the engine has ended."""
        for thread in self._threads:
            thread.join(timeout_seconds)

    def lines(self) -> list[str]:
        """The last different errors, oldest first; without any, the last lines. Values of secret variables are masked."""
        with self._lock:
            lines = list(self._errors) or list(self._last_lines)
        return [self._masked(line) for line in lines]

    def _copy(self, source: int, target: int, keeps_last_lines: bool) -> None:  # noqa: FBT001 - a thread's argument
        rest = b""
        with open(source, "rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                _write(target, chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                # A line without an end is not kept: it could be of any length.
                rest = rest[-_CHUNK_BYTES:]
                self._keep(lines, keeps_last_lines=keeps_last_lines)
            self._keep([rest], keeps_last_lines=keeps_last_lines)

    def _keep(self, lines: list[bytes], *, keeps_last_lines: bool) -> None:
        for raw in lines:
            line = raw[: 4 * _MAX_LINE_LENGTH].decode("utf-8", errors="replace").strip()
            found = _ERROR.match(line)
            with self._lock:
                if found:
                    self._errors[found["text"]] = None
                    self._errors.move_to_end(found["text"])
                    while len(self._errors) > _NUM_ERRORS:
                        self._errors.popitem(last=False)
                elif line and keeps_last_lines:
                    self._last_lines.append(line)

    def _masked(self, line: str) -> str:
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line[:_MAX_LINE_LENGTH]


def _write(target: int, content: bytes) -> None:
    """Whoever reads our output may be gone; the engine must not stop for that."""
    try:
        while content:
            content = content[os.write(target, content) :]
    except OSError:
        return
