"""The launcher's HTTP server: there from the first second on, whatever the engine does, and bounded in what it holds."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv6Address, ip_address
from typing import Any, Protocol

from hisparse_runtime.vllm.launch.status_answers import Answer

# Between two packets of a client.
_CLIENT_SECONDS = 5
# Probes come one by one; the operator and people ask for the rest. Above it, connections are closed.
_MAX_REQUESTS = 64


class Answering(Protocol):
    """From the path with its query, and whether it is asked from inside of the container."""

    def __call__(self, target: str, *, is_local: bool) -> Answer: ...


class StatusServerError(RuntimeError):
    """Nobody could ask for the engine; the text has the port and the next step."""


def serve_status(answer: Answering, *, port: int) -> None:
    """Until the process ends, in threads of its own. Raises StatusServerError."""
    server = _Server(_listen(port), answer)
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()


def is_loopback(address: str) -> bool:
    """Of either family, or of the one written as the other."""
    parsed = ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, answer: Answering) -> None:
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
            # Others than processes of this container cannot have a loopback address.
            answer = self.server.answer(self.path, is_local=is_loopback(self.client_address[0]))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it, and probes go on
            answer = Answer(status=500, body=f"{type(error).__name__}: {error}")
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
