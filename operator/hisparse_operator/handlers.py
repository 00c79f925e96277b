"""kopf's part: the process, signals and login. Nothing is decided here.

kopf watches nothing for us (see cluster.informer for why); its start-up handler starts the operator's own tasks, its clean-up
handler ends them.
"""

import asyncio
import logging
from typing import Any

import kopf
from kubernetes.aio import client

from hisparse_operator.api import GROUP
from hisparse_operator.cluster.login import kopf_credentials
from hisparse_operator.service import Service
from hisparse_operator.settings import Settings

logger = logging.getLogger(__name__)


def registry(*, settings: Settings, configuration: client.Configuration, stop: asyncio.Event) -> kopf.OperatorRegistry:
    """All handlers of this operator. `stop` ends the process when one of its own tasks fails."""
    handlers = kopf.OperatorRegistry()
    running: list[asyncio.Task[None]] = []

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf_credentials(configuration)

    @kopf.on.startup(registry=handlers)
    async def start(**_: Any) -> None:
        service = Service(settings=settings, configuration=configuration)
        task = asyncio.create_task(service.run(), name="hisparse operator")
        task.add_done_callback(lambda ended: _stop_on_failure(ended, stop))
        running.append(task)

    @kopf.on.cleanup(registry=handlers)
    async def end(**_: Any) -> None:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    return handlers


def kopf_settings() -> kopf.OperatorSettings:
    """kopf tuned to what it is used for here."""
    settings = kopf.OperatorSettings()
    # kopf posts what its handlers log; events about objects are the reconciler's, see cluster.events.
    settings.posting.enabled = False
    # No look at all CRDs and namespaces: it needs cluster-wide rights that this operator does not ask for.
    settings.scanning.disabled = True
    settings.peering.standalone = True
    # Nothing of ours is stored on objects; the names are set in case a handler is ever added that does.
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    # The default is ten minutes, longer than the pod's own grace period.
    settings.process.ultimate_exiting_timeout = 30
    return settings


def _stop_on_failure(task: asyncio.Task[None], stop: asyncio.Event) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("the operator's own tasks ended: %s", error, exc_info=error)
        stop.set()
