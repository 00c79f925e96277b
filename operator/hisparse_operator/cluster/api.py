"""The five calls that the operator makes: get, list, watch, create, server-side apply. Plain dictionaries in and out.

Raw calls instead of the generated methods: no discovery, no model classes to build, and an apply of any kind looks the same.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client

from hisparse_operator import metrics

# Never renamed: the old name would keep owning fields that a newer operator leaves out.
FIELD_MANAGER = "hisparse-operator"

_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
_WATCH_SECONDS = 280
# Bookmarks come about once a minute; a stream that is silent for longer is dead, whatever TCP says.
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=75)
_PAGE_SIZE = 500


class ApiError(Exception):
    """The API server refused. `status` is the HTTP code, `reason` its machine-readable reason (Conflict, Forbidden...)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    items: list[dict[str, Any]]
    resource_version: str
    continue_token: str


class Api:
    """Calls on one cluster. ApiError is a refusal; with aiohttp.ClientError and TimeoutError the server cannot be reached."""

    def __init__(self, api_client: client.ApiClient) -> None:
        self._client = api_client

    async def get(self, path: str) -> dict[str, Any] | None:
        """The object at `path`, or None when there is none."""
        try:
            return await self._json("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def apply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply as the operator's field manager, taking over fields that others own."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._json("PATCH", path, query=query, body=dict(body), content_type="application/apply-patch+yaml")

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post a new object to the collection at `path`."""
        return await self._json("POST", path, query={"fieldManager": FIELD_MANAGER}, body=dict(body))

    async def list_page(self, path: str, *, continue_token: str = "", selector: str = "") -> Page:
        query = {"limit": str(_PAGE_SIZE), **_given("continue", continue_token), **_given("labelSelector", selector)}
        answer = await self._json("GET", path, query=query)
        return Page(answer["items"] or [], answer["metadata"]["resourceVersion"], answer["metadata"].get("continue", ""))

    async def watch(self, path: str, *, resource_version: str, selector: str = "") -> AsyncIterator[dict[str, Any]]:
        """Events after `resource_version`, until the server ends the stream. A refusal inside of the stream raises ApiError."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH_SECONDS),
            **_given("labelSelector", selector),
        }
        response = await self._call("GET", path, query=query, timeout=_WATCH_TIMEOUT)
        try:
            if response.status != 200:
                raise _refusal(response.status, await response.read())
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(status.get("code", 500), status.get("reason", "Unknown"), status.get("message", ""))
                yield event
        finally:
            response.close()

    async def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: dict[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        response = await self._call(
            method, path, query=query or {}, body=body, content_type=content_type, timeout=_REQUEST_TIMEOUT
        )
        content = await response.read()
        metrics.API_REQUESTS.labels(method, str(response.status)).inc()
        if response.status >= 300:
            raise _refusal(response.status, content)
        answer: dict[str, Any] = json.loads(content)
        return answer

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own time-outs tell connecting from reading
        body: dict[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        # Without auth_settings no token would be sent; a body that is a string would be encoded twice.
        args = await self._client.param_serialize(
            method,
            f"{path}?{urlencode(query)}" if query else path,
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = await self._client.call_api(*args, _request_timeout=timeout)
        response: aiohttp.ClientResponse = answer.response
        return response


def _given(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


def _refusal(status: int, content: bytes) -> ApiError:
    try:
        answer = json.loads(content)
    except ValueError:
        return ApiError(status, "Unknown", content[:500].decode("utf-8", "replace"))
    if not isinstance(answer, dict):  # of a proxy before the API server
        return ApiError(status, "Unknown", str(answer)[:500])
    return ApiError(status, answer.get("reason") or "Unknown", answer.get("message") or "")
