"""The queue between events and reconciliation: every key at most once in it, and never worked on twice at the same time."""

import asyncio
import random
from collections import deque

_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 60.0


class WorkQueue:
    """Keys to reconcile.

    Changes of a spec take the urgent lane, so that a person does not wait behind a thousand pod heartbeats. A key that is woken
    while it is being worked on runs once more afterwards. Failed keys come back after a growing delay.
    """

    def __init__(self) -> None:
        self._urgent: deque[str] = deque()
        self._normal: deque[str] = deque()
        self._dirty: dict[str, bool] = {}  # key -> whether it is in the urgent lane
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._delayed: dict[str, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._dirty)

    def add(self, key: str, *, urgent: bool = False) -> None:
        """Have `key` reconciled soon."""
        self._cancel_timer(key)
        if key in self._dirty:
            if not urgent or self._dirty[key]:
                return
            if key not in self._busy:
                self._normal.remove(key)
                self._urgent.append(key)
            self._dirty[key] = True
            return
        self._dirty[key] = urgent
        if key not in self._busy:
            self._push(key)

    def add_later(self, key: str, *, seconds: float) -> None:
        """Have `key` reconciled after a delay, unless it comes up before. Events in the meantime share the one run.

        The earlier of two delays counts: what happens to a failed key's pods is looked at now, not at the end of its back-off.
        """
        loop = asyncio.get_running_loop()
        timer = self._delayed.get(key)
        if key in self._dirty or (timer is not None and timer.when() <= loop.time() + seconds):
            return
        self._cancel_timer(key)
        self._delayed[key] = loop.call_later(seconds, self._due, key)

    async def take(self) -> str:
        """The next key; whoever takes it must call `done`."""
        while not self._urgent and not self._normal:
            self._wake.clear()
            await self._wake.wait()
        key = (self._urgent or self._normal).popleft()
        del self._dirty[key]
        self._busy.add(key)
        return key

    def done(self, key: str, *, failed: bool = False) -> float:
        """Give `key` back. A failed key comes again by itself; the answer is the delay in seconds, 0 when it succeeded."""
        self._busy.discard(key)
        if key in self._dirty:
            self._push(key)
        if not failed:
            self._failures.pop(key, None)
            return 0.0
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay: float = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2**failures) * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, not a secret
        self.add_later(key, seconds=delay)
        return delay

    def forget(self, key: str) -> None:
        """The object is gone: no retry, no memory of its failures."""
        self._failures.pop(key, None)
        self._cancel_timer(key)

    def _push(self, key: str) -> None:
        (self._urgent if self._dirty[key] else self._normal).append(key)
        self._wake.set()

    def _due(self, key: str) -> None:
        self._delayed.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: str) -> None:
        timer = self._delayed.pop(key, None)
        if timer is not None:
            timer.cancel()
