"""The engine's own HTTP server as its probes see it; every call is bounded in time and in size."""

import json
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any

_MODELS_BYTES = 1 << 20
_HEALTH_BYTES = 1 << 16
_METRICS_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 16


class NoAnswerError(RuntimeError):
    """The engine does not answer, or not well; the text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineClient:
    """`api_key` is sent to the paths that want it, and is in no text."""

    host: str
    port: int
    served_name: str
    api_key: str | None = None

    def check_health(self, *, timeout_seconds: float) -> None:
        """Raises NoAnswerError unless /health is 200. That holds while it drains, too."""
        self._get("/health", max_bytes=_HEALTH_BYTES, timeout_seconds=timeout_seconds)

    def check_served(self, *, timeout_seconds: float) -> None:
        """Raises NoAnswerError unless it is healthy and has the model under its name."""
        self.check_health(timeout_seconds=timeout_seconds)
        text = self._get("/v1/models", max_bytes=_MODELS_BYTES, timeout_seconds=timeout_seconds)
        if self.served_name not in _model_names(text):
            raise NoAnswerError(f"/v1/models has no {self.served_name!r}")

    def metrics(self, *, timeout_seconds: float) -> str:
        """The page in Prometheus' text format. Raises NoAnswerError."""
        return self._get("/metrics", max_bytes=_METRICS_BYTES, timeout_seconds=timeout_seconds)

    def _get(self, path: str, *, max_bytes: int, timeout_seconds: float) -> str:
        deadline = time.monotonic() + timeout_seconds
        connection = HTTPConnection(self.host, self.port, timeout=timeout_seconds)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.api_key}"} if self.api_key else {})
            response = connection.getresponse()
            if response.status != 200:
                raise NoAnswerError(f"{path} answers {response.status}")
            content = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                content += chunk
                if len(content) > max_bytes:
                    raise NoAnswerError(f"{path} is above {max_bytes} bytes")
                if time.monotonic() > deadline:
                    raise NoAnswerError(f"{path} took more than {timeout_seconds:g} s")
        except (OSError, HTTPException) as error:
            raise NoAnswerError(f"{path}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        return content.decode("utf-8", errors="replace")


def _model_names(text: str) -> list[Any]:
    try:
        models = json.loads(text)["data"]
        return [model["id"] for model in models]
    except (ValueError, LookupError, TypeError) as error:
        raise NoAnswerError(f"/v1/models is no list of models: {type(error).__name__}") from error
