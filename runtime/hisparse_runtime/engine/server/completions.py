"""POST /v1/completions: from a checked body to text, whole or as server-sent events."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from fastapi import Request as HttpRequest

from hisparse_runtime.engine.loop import Broken, EngineLoop, NewToken, NotServingError, QueueFullError
from hisparse_runtime.engine.server.errors import ApiError
from hisparse_runtime.engine.tokenizer import TextStream
from hisparse_runtime.scheduling import Request


class ClientGoneError(Exception):
    """The client closed the connection before the answer was complete."""


@dataclass(slots=True, kw_only=True)
class Completion:
    """One request's answer as it arrives."""

    model: str
    num_prompt_tokens: int
    completion_id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created_seconds: int = field(default_factory=lambda: int(time.time()))
    num_output_tokens: int = 0
    num_cached: int = 0

    def body(self, *, text: str, finish_reason: str | None) -> dict[str, object]:
        return {
            "id": self.completion_id,
            "object": "text_completion",
            "created": self.created_seconds,
            "model": self.model,
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}],
        }

    def usage(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_output_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.num_cached},
        }


class Running:
    """A submitted request. Leaving it as a context ends the request in the engine, whatever the reason."""

    def __init__(self, *, engine: EngineLoop, request: Request) -> None:
        self._engine = engine
        self._request = request
        self._events: asyncio.Queue[NewToken | Broken] = asyncio.Queue()

    def submit(self) -> None:
        """Raises ApiError if the engine takes no request in."""
        home = asyncio.get_running_loop()

        def deliver(event: NewToken | Broken) -> None:
            home.call_soon_threadsafe(self._events.put_nowait, event)

        try:
            self._engine.submit(self._request, deliver)
        except NotServingError as error:
            raise ApiError(str(error), status=503, code="not_serving") from error
        except QueueFullError as error:
            raise ApiError(f"{error}; try again later", status=503, code="queue_full") from error

    async def next_token(self) -> NewToken:
        event = await self._events.get()
        if isinstance(event, Broken):
            raise ApiError(event.message, status=500, code="engine_error")
        return event

    def abandon(self) -> None:
        self._engine.abort(self._request.request_id)


async def whole_answer(running: Running, completion: Completion, http: HttpRequest) -> dict[str, object]:
    """Raises ClientGoneError if the client leaves before the end."""
    answer = asyncio.create_task(_collect(running, completion))
    gone = asyncio.create_task(_disconnected(http))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientGoneError
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()
        running.abandon()


async def event_stream(running: Running, completion: Completion, *, include_usage: bool) -> AsyncIterator[str]:
    """Server-sent events. Cancelled by the server when the client leaves."""
    try:
        async for text, finish_reason in _pieces(running, completion):
            yield _event(completion.body(text=text, finish_reason=finish_reason))
        if include_usage:
            yield _event(completion.body(text="", finish_reason=None) | {"choices": [], "usage": completion.usage()})
        yield "data: [DONE]\n\n"
    except ApiError as error:
        # The status line is sent already: the error is the last event.
        yield _event(error.body())
    finally:
        running.abandon()


async def _collect(running: Running, completion: Completion) -> dict[str, object]:
    text, finish_reason = "", None
    async for piece, reason in _pieces(running, completion):
        text += piece
        finish_reason = reason
    return completion.body(text=text, finish_reason=finish_reason) | {"usage": completion.usage()}


async def _pieces(running: Running, completion: Completion) -> AsyncIterator[tuple[str, str | None]]:
    stream = TextStream()
    while True:
        event = await running.next_token()
        completion.num_output_tokens += 1
        completion.num_cached = event.num_cached
        text = stream.push(event.token)
        if event.finish_reason is not None:
            yield text + stream.finish(), event.finish_reason.value
            return
        yield text, None


async def _disconnected(http: HttpRequest) -> None:
    # The body has been read, so the next message can only be the end of the connection.
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _event(body: dict[str, object]) -> str:
    return f"data: {json.dumps(body, separators=(',', ':'))}\n\n"
