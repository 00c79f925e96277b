"""The launcher's HTTP server: probes, the call before a stop, progress, residency.

It answers from the first second on, whatever the engine does, and so that one client cannot hold all of its threads.
"""

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hisparse_runtime.vllm.launch.engine_client import EngineClient, NoAnswerError
from hisparse_runtime.vllm.launch.measure import measure
from hisparse_runtime.vllm.launch.stages import Stage
from hisparse_runtime.vllm.launch.state import LaunchState

DRAIN_SECONDS = 5.0
"""How long /drain takes when it is not told: for endpoints to leave the routers."""
_MAX_DRAIN_SECONDS = 600.0
# Below the 5 s after which the kubelet gives a probe up.
_ENGINE_SECONDS = 4.0
_CLIENT_SECONDS = 5
# Probes come one by one; the operator and people ask for the rest.
_MAX_REQUESTS = 32
_MAX_DRAINS = 8

Residency = Callable[[str, float], dict[str, Any]]
"""From the text of /metrics and the engine's age in seconds to the body of /hisparse/residency; may raise NoAnswerError."""


_Query = dict[str, list[str]]


class StatusServerError(RuntimeError):
    """Nobody could ask for the engine; the text has the port and the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    body: dict[str, Any] | str


class StatusServer:
    """Answers GET /startup, /ready, /live, /drain, /hisparse/progress and /hisparse/residency."""

    def __init__(self, *, state: LaunchState, client: EngineClient, residency: Residency, port: int) -> None:
        self._state = state
        self._client = client
        self._residency = residency
        self._drains = threading.BoundedSemaphore(_MAX_DRAINS)
        self._routes: dict[str, Callable[[_Query], _Answer]] = {
            "/startup": self._startup,
            "/ready": self._ready,
            "/live": self._live,
            "/drain": self._drain,
            "/hisparse/progress": lambda _: _Answer(status=200, body=self._progress()),
            "/hisparse/residency": self._report,
        }
        self._server = _Server(_listen(port), self.answer)
        # Its threads end with the process: nothing is lost with them.
        threading.Thread(target=self._server.serve_forever, name="status", daemon=True).start()

    def answer(self, target: str) -> _Answer:
        url = urlsplit(target)
        if url.path not in self._routes:
            return _Answer(status=404, body=f"not found; there is {' '.join(self._routes)}")
        return self._routes[url.path](parse_qs(url.query))

    def _startup(self, _: _Query) -> _Answer:
        return _Answer(status=200 if self._state.is_answering else 503, body=self._progress())

    def _live(self, _: _Query) -> _Answer:
        return _Answer(status=503 if self._state.has_ended else 200, body={"stage": str(self._state.stage)})

    def _ready(self, _: _Query) -> _Answer:
        stage = self._state.stage
        if stage is not Stage.SERVING:
            return _Answer(status=503, body={"stage": str(stage)})
        try:
            self._client.check_health(timeout_seconds=_ENGINE_SECONDS)
        except NoAnswerError as error:
            return _Answer(status=503, body={"stage": str(stage), "reason": str(error)})
        return _Answer(status=200, body={"stage": str(stage)})

    def _drain(self, query: _Query) -> _Answer:
        """Returns when its time is over: the kubelet sends SIGTERM then."""
        seconds = _seconds(query)
        if seconds is None:
            return _Answer(status=400, body=f"seconds must be a number of 0 to {_MAX_DRAIN_SECONDS:g}")
        self._state.call_drain(seconds=seconds)
        if not self._drains.acquire(blocking=False):
            return _Answer(status=503, body=f"{_MAX_DRAINS} calls of /drain are waiting already")
        try:
            time.sleep(seconds)
        finally:
            self._drains.release()
        return _Answer(status=200, body={"stage": str(self._state.stage), "waited_seconds": seconds})

    def _report(self, _: _Query) -> _Answer:
        if not self._state.is_answering:
            return _Answer(status=503, body=f"the engine does not serve yet: {self._state.stage}")
        try:
            text = self._client.metrics(timeout_seconds=_ENGINE_SECONDS)
            return _Answer(status=200, body=self._residency(text, self._state.engine_seconds))
        except NoAnswerError as error:
            return _Answer(status=503, body=f"the engine does not answer: {error}")

    def _progress(self) -> dict[str, Any]:
        self._state.observe(measure(self._state.process_group))
        return self._state.progress()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, answer: Callable[[str], _Answer]) -> None:
        # Not bound by the base class, which would ask the DNS for this machine's name.
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.answer = answer
        self._free = threading.BoundedSemaphore(_MAX_REQUESTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error; a bug of ours has been answered with 500."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_SECONDS
    server_version = "hisparse-launch"
    sys_version = ""

    def do_GET(self) -> None:
        try:
            answer = self.server.answer(self.path)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it, and probes go on
            answer = _Answer(status=500, body=f"{type(error).__name__}: {error}")
        is_text = isinstance(answer.body, str)
        content = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode() + b"\n"
        self.send_response(answer.status)
        self.send_header("Content-Type", "text/plain; charset=utf-8" if is_text else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Probes come every second; the log is the engine's."""


def _listen(port: int) -> socket.socket:
    """On all of the pod's addresses, of both families where there are two."""
    try:
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except (OSError, ValueError):
            return socket.create_server(("0.0.0.0", port))  # noqa: S104 - the kubelet comes by the pod's address
    except OSError as error:
        raise StatusServerError(
            f"port {port} for probes: {error.strerror or error}; next step: give the engine another --port, or --status-port here"
        ) from error


def _seconds(query: _Query) -> float | None:
    try:
        seconds = float(query.get("seconds", [str(DRAIN_SECONDS)])[-1])
    except ValueError:
        return None
    return seconds if 0 <= seconds <= _MAX_DRAIN_SECONDS else None
