"""The operator's own tasks in one event loop: informers, workers, the scraper, the resync and the HTTP server."""

import asyncio
import logging
import time
from collections.abc import Iterator

import aiohttp
from kubernetes.aio import client

from hisparse_operator import metrics
from hisparse_operator.cluster.api import Api, ApiError
from hisparse_operator.cluster.cache import Cache
from hisparse_operator.cluster.events import EventPoster
from hisparse_operator.cluster.queue import WorkQueue
from hisparse_operator.http_server import serve
from hisparse_operator.reconcile import Reconciler
from hisparse_operator.settings import Settings
from hisparse_operator.summary import REFRESH_SECONDS
from hisparse_operator.telemetry import Scraper
from hisparse_operator.telemetry.scraper import Target, target
from hisparse_runtime.vllm.pod_plan import STATUS_PORT

logger = logging.getLogger(__name__)

_WORKERS = 4
# What nobody told us of (an edited Service, a deleted ConfigMap) is put right this often.
_RESYNC_SECONDS = 300.0
# Bookmarks come once a minute and an unreachable server is asked again within ten seconds: a watch silent for longer is stuck.
_STUCK_SECONDS = 180.0


class Service:
    """Wires the parts of one operator process."""

    def __init__(self, *, settings: Settings, configuration: client.Configuration) -> None:
        self._settings = settings
        self._client = client.ApiClient(configuration)
        self._client.user_agent = "hisparse-operator"
        api = Api(self._client)
        self._events = EventPoster(api)
        self._queue = WorkQueue()
        self._cache = Cache(api=api, queue=self._queue, namespaces=settings.watch_namespaces, on_gone=self._gone)
        self._scraper = Scraper(
            targets=self._targets,
            wake=self._wake_known,
            period_seconds=settings.scrape_seconds,
            refresh_seconds=REFRESH_SECONDS,
        )
        self._reconciler = Reconciler(
            api=api,
            cache=self._cache,
            images=settings.images,
            sample=self._scraper.samples.get,
            stale_after_seconds=self._scraper.stale_after_seconds,
            post=self._events.post,
        )

    async def run(self) -> None:
        """Until cancelled, or until one task fails: then all end, and Kubernetes restarts the pod."""
        started = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    serve(port=self._settings.http_port, is_live=self._is_live, is_ready=lambda: self._cache.synced), name="http"
                )
                group.create_task(self._cache.run(), name="informers")
                await self._cache.wait_synced()
                logger.info("caches filled in %.1f s: %d objects", time.monotonic() - started, self._cache.num_objects)
                for number in range(_WORKERS):
                    group.create_task(self._work(), name=f"worker {number}")
                group.create_task(self._events.run(), name="events")
                group.create_task(self._scraper.run(), name="scraper")
                group.create_task(self._resync(), name="resync")
        finally:
            await self._client.close()

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            metrics.QUEUE_LENGTH.set(len(self._queue))
            metrics.OBJECTS.set(self._cache.num_objects)
            failed = False
            try:
                with metrics.RECONCILE_SECONDS.time():
                    await self._reconciler.reconcile(key)
            except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
                failed = True
                metrics.RECONCILE_ERRORS.labels(error.reason if isinstance(error, ApiError) else type(error).__name__).inc()
                reason = str(error) or type(error).__name__
            except Exception as error:
                # One object that trips a defect must not end the service of all others: it is logged whole and comes again.
                failed = True
                metrics.RECONCILE_ERRORS.labels(type(error).__name__).inc()
                reason = f"{type(error).__name__}: {error}"
                logger.exception("reconciling %s failed unexpectedly", key)
            delay_seconds = self._queue.done(key, failed=failed)
            if failed:
                logger.warning("reconciling %s: %s; again in %.1f s", key, reason, delay_seconds)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(_RESYNC_SECONDS)
            self._reconciler.apply_all_again()
            for key in self._cache.object_keys():
                self._queue.add(key)

    def _targets(self) -> Iterator[Target]:
        for owner in list(self._cache.owners()):
            for key, pod in self._cache.pods(owner).items():
                if pod.ip and not pod.deleting and (pod.ready or pod.report_port == STATUS_PORT):
                    yield target(pod=key, owner=owner, address=pod.ip, port=pod.report_port, is_ready=pod.ready)

    def _wake_known(self, key: str) -> None:
        if self._cache.object(key) is not None:
            self._queue.add(key)

    def _gone(self, key: str) -> None:
        self._reconciler.gone(key)

    def _is_live(self) -> bool:
        return self._cache.idle_seconds < _STUCK_SECONDS
