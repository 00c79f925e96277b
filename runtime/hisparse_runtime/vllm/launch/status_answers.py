"""What the launcher tells of its engine: probes, the call before a stop, progress, residency."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hisparse_runtime.vllm.launch.engine_client import EngineClient, NoAnswerError
from hisparse_runtime.vllm.launch.measure import measure
from hisparse_runtime.vllm.launch.stages import Stage
from hisparse_runtime.vllm.launch.state import LaunchState

DRAIN_PATH = "/drain"
DRAIN_SECONDS = 5.0
"""How long /drain takes when it is not told: for endpoints to leave the routers."""
_MAX_DRAIN_SECONDS = 600.0
_MAX_DRAINS = 8
# Below the 5 s after which the kubelet gives a probe up.
_ENGINE_SECONDS = 4.0

Residency = Callable[[str, float], dict[str, Any]]
"""From the text of /metrics and the engine's age in seconds to the body of /hisparse/residency; may raise NoAnswerError."""
_Query = dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`body` is sent as JSON, or as text."""

    status: int
    body: dict[str, Any] | str


# Who may stop an engine from being ready takes it out of service: that is for the container's own preStop command.
_DRAIN_REFUSED = Answer(
    status=403, body=f"{DRAIN_PATH} is for the container itself: python3 -m hisparse_runtime.vllm.launch.drain"
)


class StatusAnswers:
    """For GET /startup, /ready, /live, /drain, /hisparse/progress and /hisparse/residency, from any thread."""

    def __init__(self, *, state: LaunchState, client: EngineClient, residency: Residency) -> None:
        self._state = state
        self._client = client
        self._residency = residency
        self._drains = threading.BoundedSemaphore(_MAX_DRAINS)
        self._routes: dict[str, Callable[[], Answer]] = {
            "/startup": self._startup,
            "/ready": self._ready,
            "/live": self._live,
            "/hisparse/progress": lambda: Answer(status=200, body=self._progress()),
            "/hisparse/residency": self._report,
        }

    def answer(self, target: str, *, is_local: bool) -> Answer:
        """For a path with its query; /drain takes its time, and is answered inside of the container only."""
        url = urlsplit(target)
        if url.path == DRAIN_PATH:
            return self._drain(parse_qs(url.query)) if is_local else _DRAIN_REFUSED
        if url.path not in self._routes:
            return Answer(status=404, body=f"not found; there is {' '.join((DRAIN_PATH, *self._routes))}")
        return self._routes[url.path]()

    def _startup(self) -> Answer:
        return Answer(status=200 if self._state.is_answering else 503, body=self._progress())

    def _live(self) -> Answer:
        return Answer(status=503 if self._state.has_ended else 200, body={"stage": str(self._state.stage)})

    def _ready(self) -> Answer:
        stage = self._state.stage
        if stage is not Stage.SERVING:
            return Answer(status=503, body={"stage": str(stage)})
        try:
            self._client.check_health(timeout_seconds=_ENGINE_SECONDS)
        except NoAnswerError as error:
            return Answer(status=503, body={"stage": str(stage), "reason": str(error)})
        return Answer(status=200, body={"stage": str(stage)})

    def _drain(self, query: _Query) -> Answer:
        """Returns when its time is over: the kubelet sends SIGTERM then."""
        seconds = _seconds(query)
        if seconds is None:
            return Answer(status=400, body=f"seconds must be a number of 0 to {_MAX_DRAIN_SECONDS:g}")
        if not self._state.is_answering:
            # No router knows of it: a pod that is deleted while it starts goes at once.
            return Answer(status=200, body={"stage": str(self._state.stage), "waited_seconds": 0.0})
        self._state.call_drain(seconds=seconds)
        if not self._drains.acquire(blocking=False):
            return Answer(status=503, body=f"{_MAX_DRAINS} calls of /drain are waiting already")
        try:
            time.sleep(seconds)
        finally:
            self._drains.release()
        return Answer(status=200, body={"stage": str(self._state.stage), "waited_seconds": seconds})

    def _report(self) -> Answer:
        if not self._state.is_answering:
            return Answer(status=503, body=f"the engine does not serve yet: {self._state.stage}")
        try:
            text = self._client.metrics(timeout_seconds=_ENGINE_SECONDS)
            return Answer(status=200, body=self._residency(text, self._state.engine_seconds))
        except NoAnswerError as error:
            return Answer(status=503, body=f"the engine does not answer: {error}")

    def _progress(self) -> dict[str, Any]:
        self._state.observe(measure(self._state.process_group))
        return self._state.progress()


def _seconds(query: _Query) -> float | None:
    try:
        seconds = float(query.get("seconds", [str(DRAIN_SECONDS)])[-1])
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _MAX_DRAIN_SECONDS else None
