"""One loop asks ready pods for their residency, and those that start how far they are.

A slow, huge or hostile answer costs its pod's own sample only.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import httpx
from pydantic import ValidationError

from hisparse_operator import metrics
from hisparse_operator.telemetry.report import PATH, PROGRESS_PATH, ProgressReport, ResidencyReport

logger = logging.getLogger(__name__)
_Report = TypeVar("_Report", ResidencyReport, ProgressReport)

_TIMEOUT_SECONDS = 3.0
_LARGEST_ANSWER_BYTES = 64 * 1024
_PARALLEL = 16
_PARALLEL_SUSPECTS = 4


@dataclass(frozen=True, slots=True)
class Target:
    """A pod: its key, the key of the object that it belongs to, and its address, with the path for one that is ready or not."""

    pod: str
    owner: str
    url: str
    is_ready: bool = True


@dataclass(frozen=True, slots=True)
class Sample:
    """The last answer of a pod. `error` says why there was none the last time; the report is then an older one, or None.

    `observed_at` is the time of the report, or of the attempt while there is none. `progress` is that of a pod that starts.
    """

    report: ResidencyReport | None
    error: str
    observed_at: datetime
    progress: ProgressReport | None = None


class ScrapeError(Exception):
    """A pod did not answer with a report; the message says what came instead."""


class Scraper:
    """Keeps the newest sample of every pod that is asked.

    Wakes the owner when a number changed, and when its status is due for a new time stamp. Each pod is asked on its own, and one
    that did not answer the last time shares a narrow lane with its like: a pod that hangs takes no time of those that answer.
    """

    def __init__(
        self,
        *,
        targets: Callable[[], Iterable[Target]],
        wake: Callable[[str], None],
        period_seconds: float,
        refresh_seconds: float,
    ) -> None:
        self._targets = targets
        self._wake = wake
        self._period_seconds = period_seconds
        self._refresh_seconds = refresh_seconds
        self._samples: dict[str, Sample] = {}
        self._woken_at: dict[str, float] = {}
        self._in_flight: set[str] = set()
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._suspect_slots = asyncio.Semaphore(_PARALLEL_SUSPECTS)

    @property
    def samples(self) -> Mapping[str, Sample]:
        return self._samples

    @property
    def stale_after_seconds(self) -> float:
        """A sample older than three periods speaks of the past."""
        return 3 * self._period_seconds

    async def run(self) -> None:
        """Until cancelled: one round a period."""
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, follow_redirects=False, trust_env=False) as client,
            asyncio.TaskGroup() as group,
        ):
            while True:
                for target in self._round():
                    group.create_task(self._scrape(client, target))
                await asyncio.sleep(self._period_seconds)

    def _round(self) -> list[Target]:
        """Whom to ask now: those that are not being asked already. Forgets pods that are gone."""
        targets = list(self._targets())
        alive = {target.pod for target in targets}
        for pod in [pod for pod in self._samples if pod not in alive]:
            del self._samples[pod]
        for owner in self._woken_at.keys() - {target.owner for target in targets}:
            del self._woken_at[owner]
        due = [target for target in targets if target.pod not in self._in_flight]
        self._in_flight.update(target.pod for target in due)
        return due

    async def _scrape(self, client: httpx.AsyncClient, target: Target) -> None:
        before = self._samples.get(target.pod)
        async with self._suspect_slots if before is not None and before.error else self._slots:
            try:
                now = await asyncio.wait_for(_ask(client, target), timeout=2 * _TIMEOUT_SECONDS)
            except (httpx.HTTPError, ScrapeError, TimeoutError) as error:
                metrics.SCRAPES.labels("failed").inc()
                text = f"{type(error).__name__}: {error}".rstrip(": ")[:200]
                logger.debug("scrape of %s: %s", target.pod, text)
                now = Sample(None, text, datetime.now(UTC))
                if before is not None and before.report is not None:
                    now = Sample(before.report, text, before.observed_at)
            else:
                metrics.SCRAPES.labels("ok").inc()
            finally:
                self._in_flight.discard(target.pod)
        self._samples[target.pod] = now
        due = time.monotonic() - self._woken_at.get(target.owner, 0.0) >= self._refresh_seconds
        if due or before is None or before.error != now.error or _numbers(before) != _numbers(now):
            self._woken_at[target.owner] = time.monotonic()
            self._wake(target.owner)


async def _ask(client: httpx.AsyncClient, target: Target) -> Sample:
    if target.is_ready:
        return Sample(await _fetch(client, target.url, ResidencyReport), "", datetime.now(UTC))
    return Sample(None, "", datetime.now(UTC), progress=await _fetch(client, target.url, ProgressReport))


async def _fetch(client: httpx.AsyncClient, url: str, kind: type[_Report]) -> _Report:
    """The report at `url`, read at most to the size limit."""
    path = PATH if kind is ResidencyReport else PROGRESS_PATH
    # Unencoded and raw: the size limit must hold for what is kept in memory, not for a compressed form of it.
    async with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
        if response.status_code != 200:
            raise ScrapeError(f"GET {path} answered {response.status_code}")
        content = b""
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > _LARGEST_ANSWER_BYTES:
                raise ScrapeError(f"GET {path} answered more than {_LARGEST_ANSWER_BYTES:,} bytes")
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ScrapeError(
            f"GET {path}: {'.'.join(map(str, first['loc']))}: {first['msg']} ({error.error_count()} such errors)"
        ) from error


def _numbers(sample: Sample) -> object:
    """The report without what always changes."""
    if sample.progress is not None:
        return sample.progress.stage, sample.progress.pinned_percent
    if sample.report is None:
        return None
    return sample.report.model_copy(update={"engine": sample.report.engine.model_copy(update={"uptime_seconds": 0.0})})


def target(*, pod: str, owner: str, address: str, port: int, is_ready: bool) -> Target:
    """The target of a pod, IPv6 addresses included."""
    host = f"[{address}]" if ":" in address else address
    path = PATH if is_ready else PROGRESS_PATH
    return Target(pod=pod, owner=owner, url=f"http://{host}:{port}{path}", is_ready=is_ready)
