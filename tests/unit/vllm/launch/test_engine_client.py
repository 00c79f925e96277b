"""What is taken for an answer of the engine, and what is not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from typing import ClassVar

import pytest

from hisparse_runtime.vllm.launch.engine_client import EngineClient, NoAnswerError
from tests.unit.vllm.launch.launched import free_port

MODELS = b'{"data": [{"id": "tiny"}, {"id": "tiny-lora"}]}'


class Handler(BaseHTTPRequestHandler):
    pages: ClassVar[dict[str, tuple[int, bytes, int]]] = {}
    """Status, content, and how often that comes."""
    authorization: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.authorization.append(self.headers["Authorization"])
        status, content, times = self.pages[self.path]
        self.send_response(status)
        self.end_headers()
        for chunk in repeat(content, times):
            try:
                self.wfile.write(chunk)
            except OSError:
                return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        pass


@contextmanager
def serving(**pages: tuple[int, bytes, int]) -> Iterator[EngineClient]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Handler.pages = {f"/{path.replace('_', '/')}": page for path, page in pages.items()}
        Handler.authorization.clear()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield EngineClient(host="127.0.0.1", port=server.server_address[1], served_name="tiny", api_key="canary")
        finally:
            server.shutdown()
            thread.join()


def test_a_healthy_engine_with_the_model_is_served() -> None:
    with serving(health=(200, b"", 1), v1_models=(200, MODELS, 1)) as client:
        client.check_served(timeout_seconds=30)
    assert Handler.authorization == ["Bearer canary"] * 2


@pytest.mark.parametrize(
    ("models", "text"),
    [
        ((200, b'{"data": [{"id": "other"}]}', 1), "/v1/models has no 'tiny'"),
        ((401, b"", 1), "/v1/models answers 401"),
        ((200, b"<html>", 1), "is no list of models"),
        ((200, b'{"data": 7}', 1), "is no list of models"),
        ((200, b"x" * 70_000, 100), "/v1/models is above 1048576 bytes"),
    ],
)
def test_anything_else_is_no_answer_for_the_model(models: tuple[int, bytes, int], text: str) -> None:
    with serving(health=(200, b"", 1), v1_models=models) as client, pytest.raises(NoAnswerError, match=text):
        client.check_served(timeout_seconds=30)


def test_an_unhealthy_engine_is_not_asked_for_its_models() -> None:
    with serving(health=(503, b"", 1)) as client, pytest.raises(NoAnswerError, match="/health answers 503"):
        client.check_served(timeout_seconds=30)


def test_a_page_without_end_is_given_up_in_time() -> None:
    with serving(metrics=(200, b"", 1)) as client:
        assert client.metrics(timeout_seconds=30) == ""
    with serving(metrics=(200, b"#", 10**9)) as client, pytest.raises(NoAnswerError, match=r"took more than 0\.2 s|timed out"):
        client.metrics(timeout_seconds=0.2)


def test_nobody_at_the_port_is_no_answer() -> None:
    client = EngineClient(host="127.0.0.1", port=free_port(), served_name="tiny")
    with pytest.raises(NoAnswerError, match=r"/health: .*refused"):
        client.check_health(timeout_seconds=30)
