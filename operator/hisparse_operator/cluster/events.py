"""Kubernetes events about objects, as `kubectl describe` shows them. They are news, not state: one that is lost is only logged.

kopf posts events for its own handlers only, and the reconciler does not run in one.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from hisparse_operator.cluster.api import FIELD_MANAGER, Api, ApiError

logger = logging.getLogger(__name__)

# A server that is away for long must not fill the memory with old news.
_MOST_WAITING = 1000
# The API server refuses more.
_MOST_CHARACTERS = 1024


class EventPoster:
    """Takes events without waiting and posts them one after the other."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=_MOST_WAITING)

    def post(self, body: Mapping[str, Any], *, type: str, reason: str, message: str) -> None:  # noqa: A002 - the field's own name
        """An event about the object `body`; `type` is Normal or Warning."""
        try:
            self._waiting.put_nowait(_event(body, event_type=type, reason=reason, message=message, now=datetime.now(UTC)))
        except asyncio.QueueFull:
            logger.warning("%d events wait to be posted; dropped one: %s: %s", _MOST_WAITING, reason, message)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            event = await self._waiting.get()
            try:
                await self._api.create(f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event)
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                logger.warning("event %s was not posted: %s: %s", event["reason"], type(error).__name__, error)


def _event(body: Mapping[str, Any], *, event_type: str, reason: str, message: str, now: datetime) -> dict[str, Any]:
    metadata = body["metadata"]
    about = {name: metadata[name] for name in ("name", "namespace", "uid")}
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": metadata["namespace"], "generateName": f"{metadata['name']}."},
        "involvedObject": {"apiVersion": body["apiVersion"], "kind": body["kind"], **about},
        "type": event_type,
        "reason": reason,
        "message": message if len(message) <= _MOST_CHARACTERS else f"{message[: _MOST_CHARACTERS - 3]}...",
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
