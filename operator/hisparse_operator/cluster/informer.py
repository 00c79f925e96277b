"""List, then watch, for ever: a cache of slim values that never keeps what the server no longer has.

kopf's own watching does not tell of a deletion that happened while its watch was down, and spends 25 times the CPU on an event.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import aiohttp

from hisparse_operator.cluster.api import Api, ApiError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 10.0
# A server that ends each stream at once must not be asked in a tight loop.
_RESUME_SECONDS = 0.2


class Informer(Generic[T]):
    """Keeps `key -> slim value` of one collection.

    `slim` turns an API object into what is worth keeping, or None to leave it out. `on_change(key, old, new)` is called for
    every difference, also for those that only a new list shows; equal values call nobody.
    """

    def __init__(
        self,
        *,
        api: Api,
        path: str,
        slim: Callable[[dict[str, Any]], T | None],
        on_change: Callable[[str, T | None, T | None], None],
        selector: str = "",
    ) -> None:
        self._api = api
        self._path = path
        self._slim = slim
        self._on_change = on_change
        self._selector = selector
        self._values: dict[str, T] = {}
        self.synced = asyncio.Event()
        self._heard_at = time.monotonic()
        self._retry_seconds = _FIRST_RETRY_SECONDS

    @property
    def values(self) -> Mapping[str, T]:
        return MappingProxyType(self._values)

    @property
    def path(self) -> str:
        return self._path

    @property
    def idle_seconds(self) -> float:
        """Time since the server last said anything on this collection, or was last asked in vain."""
        return time.monotonic() - self._heard_at

    async def run(self) -> None:
        """Until cancelled. A server that is away or refuses is asked again, at most every ten seconds."""
        while True:
            try:
                await self._watch(await self._list())
            except ApiError as error:
                # 410 is the server's way to say "list again"; 403 happens while a server that just started still loads its roles.
                log = logger.debug if error.status == 410 else logger.warning
                log("watching %s: %s; listing again in %.1f s", self._path, error, self._retry_seconds)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                kind = type(error).__name__
                logger.warning("watching %s: %s: %s; listing again in %.1f s", self._path, kind, error, self._retry_seconds)
            self._heard_at = time.monotonic()
            await asyncio.sleep(self._retry_seconds * random.uniform(0.75, 1.25))  # noqa: S311 - jitter, not a secret
            self._retry_seconds = min(self._retry_seconds * 2, _LAST_RETRY_SECONDS)

    async def _list(self) -> str:
        listed: set[str] = set()
        token = ""
        while True:
            page = await self._api.list_page(self._path, continue_token=token, selector=self._selector)
            self._heard_at = time.monotonic()
            for item in page.items:
                listed.add(self._put(item))
            token = page.continue_token
            if not token:
                break
        for key in [key for key in self._values if key not in listed]:
            self._drop(key)
        self.synced.set()
        return page.resource_version

    async def _watch(self, resource_version: str) -> None:
        """Watch until the server stops answering or says that the version is too old; a stream that merely ends is resumed."""
        while True:
            async for event in self._api.watch(self._path, resource_version=resource_version, selector=self._selector):
                self._watch_works()
                resource_version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._drop(object_key(event["object"]))
                elif event["type"] != "BOOKMARK":
                    self._put(event["object"])
            self._watch_works()
            await asyncio.sleep(_RESUME_SECONDS)

    def _watch_works(self) -> None:
        """Only a watch that says something resets the delay: lists that succeed while watches fail would be a tight loop."""
        self._heard_at = time.monotonic()
        self._retry_seconds = _FIRST_RETRY_SECONDS

    def _put(self, item: dict[str, Any]) -> str:
        key = object_key(item)
        new = self._slim(item)
        if new is None:
            self._drop(key)
            return key
        old = self._values.get(key)
        if old != new:
            self._values[key] = new
            self._on_change(key, old, new)
        return key

    def _drop(self, key: str) -> None:
        old = self._values.pop(key, None)
        if old is not None:
            self._on_change(key, old, None)


def object_key(item: Mapping[str, Any]) -> str:
    """`namespace/name`, or `name` for what has no namespace."""
    metadata = item["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
