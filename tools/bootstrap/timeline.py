"""Says what is being done and since when, and at the end where the time went."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timeline:
    """Lines such as `[  12.3 s] virtual environment: ...`; the clock starts with the object."""

    def __init__(self) -> None:
        self._start_seconds = time.monotonic()
        self._steps: list[tuple[str, float]] = []

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._start_seconds

    def say(self, text: str) -> None:
        sys.stdout.write(f"[{self.elapsed_seconds:6.1f} s] {text}\n")
        sys.stdout.flush()  # a pipe is block buffered: without this a log shows every line at the end

    @contextmanager
    def step(self, name: str, text: str = "") -> Iterator[None]:
        """Times what happens inside; a step that fails is counted too."""
        self.say(f"{name}: {text}" if text else name)
        begin_seconds = time.monotonic()
        try:
            yield
        finally:
            self._steps.append((name, time.monotonic() - begin_seconds))

    def table(self) -> str:
        """Where the time went, longest first; shares are of the whole, so the last line says what no step covers."""
        total_seconds = max(self.elapsed_seconds, 1e-9)
        rows = sorted(self._steps, key=lambda row: -row[1])
        rows.append(("everything else", max(total_seconds - sum(seconds for _, seconds in rows), 0.0)))
        width = max(len(name) for name, _ in [*rows, ("total", 0.0)])
        lines = [f"  {name:<{width}}  {seconds:7.1f} s  {seconds / total_seconds:4.0%}" for name, seconds in rows]
        return "\n".join(["Where the time went:", *lines, f"  {'total':<{width}}  {total_seconds:7.1f} s"])
