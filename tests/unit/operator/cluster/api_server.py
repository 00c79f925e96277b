"""A small API server on localhost, over real HTTP: one collection with pages, watch, bookmarks and compaction.

It records what it is asked.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from kubernetes.aio import client

from hisparse_operator.cluster.api import Api

PATH = "/api/v1/namespaces/shop/widgets"


@dataclass(frozen=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


class ApiServer:
    """Keeps widgets by name. Every change gets the next resource version and is an event."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.page_size = 500
        self.refusals: deque[web.Response] = deque()
        """Answers to give before any other, first one first."""
        self.watch_refusals: deque[web.Response] = deque()
        self._objects: dict[str, dict[str, Any]] = {}
        self._version = 100
        self._compacted = 0
        self._log: list[tuple[int, dict[str, Any]]] = []
        self._changed = asyncio.Event()
        self._streams_end_at = 0
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def num_lists(self) -> int:
        return sum(request.method == "GET" and request.path == PATH and not request.is_watch for request in self.requests)

    @property
    def watches(self) -> list[Request]:
        return [request for request in self.requests if request.is_watch]

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Connections are refused from now on."""
        self.end_streams()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def put(self, name: str, **fields: Any) -> None:
        self._version += 1
        kind = "MODIFIED" if name in self._objects else "ADDED"
        metadata = {"name": name, "namespace": "shop", "resourceVersion": str(self._version)}
        self._objects[name] = {"metadata": metadata, **fields}
        self._tell(kind, self._objects[name])

    def delete(self, name: str) -> None:
        self._version += 1
        last = self._objects.pop(name)
        self._tell("DELETED", {**last, "metadata": {**last["metadata"], "resourceVersion": str(self._version)}})

    def bookmark(self) -> None:
        self._version += 1
        self._tell("BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})

    def compact(self) -> None:
        """What happened until now cannot be watched any more."""
        self._version += 1
        self._compacted = self._version

    def end_streams(self) -> None:
        """Watches that run now end, as after `timeoutSeconds`."""
        self._streams_end_at += 1
        self._wake()

    def expire_streams(self) -> None:
        """Watches that run now are told that their version is too old."""
        self._tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})

    def _tell(self, kind: str, item: dict[str, Any]) -> None:
        self._log.append((self._version, {"type": kind, "object": item}))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        seen = Request(request.method, request.path, dict(request.query), dict(request.headers), await request.read())
        self.requests.append(seen)
        if self.refusals:
            return self.refusals.popleft()
        if seen.is_watch:
            return self.watch_refusals.popleft() if self.watch_refusals else await self._watch(request)
        if request.method != "GET":
            return web.json_response({**json.loads(seen.body), "kind": "Answer"})
        if request.path == PATH:
            return self._list(seen)
        item = self._objects.get(request.path.removeprefix(f"{PATH}/"))
        return web.json_response(item) if item else refusal(404, "NotFound", f"widgets {request.path} not found")

    def _list(self, seen: Request) -> web.Response:
        first = int(seen.query.get("continue", "0"))
        items = list(self._objects.values())
        metadata = {"resourceVersion": str(self._version)}
        if first + self.page_size < len(items):
            metadata["continue"] = str(first + self.page_size)
        return web.json_response({"metadata": metadata, "items": items[first : first + self.page_size]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        since, streams_end_at = int(request.query["resourceVersion"]), self._streams_end_at
        if since < self._compacted:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": f"too old resource version: {since}"}
            await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return response
        sent = next((index for index, (version, _) in enumerate(self._log) if version > since), len(self._log))
        while True:
            for _, event in self._log[sent:]:
                await response.write(json.dumps(event).encode() + b"\n")
            sent = len(self._log)
            if self._streams_end_at != streams_end_at:
                return response
            await self._changed.wait()


def refusal(status: int, reason: str, message: str) -> web.Response:
    """What the API server answers when it refuses."""
    return web.json_response(
        {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}, status=status
    )


@asynccontextmanager
async def api_server() -> AsyncIterator[tuple[ApiServer, Api]]:
    """A server that runs, and the operator's client of it."""
    server = ApiServer()
    await server.start()
    configuration = client.Configuration(
        host=f"http://127.0.0.1:{server.port}", api_key={"BearerToken": "Bearer token-of-the-operator"}
    )
    try:
        async with client.ApiClient(configuration) as api_client:
            yield server, Api(api_client)
    finally:
        await server.stop()
