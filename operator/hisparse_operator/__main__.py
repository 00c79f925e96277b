"""`hisparse-operator`: the process."""

import asyncio
import logging
import os
import sys

import kopf
from kubernetes.config.config_exception import ConfigException

from hisparse_operator.cluster.login import load_configuration
from hisparse_operator.handlers import kopf_settings, registry
from hisparse_operator.settings import Settings, SettingsError


def main() -> None:
    """Exit status 0 after SIGTERM, 1 when a task failed, 2 when it could not start."""
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        sys.exit(_refuse(error))
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # A line for each request to each pod is a debugger's need.
    for name in ("httpx", "httpcore", "kopf"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(settings.log_level)))
    try:
        failed = asyncio.run(_run(settings))
    except ConfigException as error:
        sys.exit(_refuse(error))
    sys.exit(1 if failed else 0)


async def _run(settings: Settings) -> bool:
    configuration = await load_configuration()
    stop = asyncio.Event()
    # kopf calls itself after the user, even without peers; the numeric user of a container has no name to be found.
    os.environ.setdefault("USER", "hisparse-operator")
    await kopf.operator(
        registry=registry(settings=settings, configuration=configuration, stop=stop),
        settings=kopf_settings(),
        standalone=True,
        clusterwide=True,
        stop_flag=stop,
    )
    return stop.is_set()


def _refuse(error: Exception) -> int:
    print(f"hisparse-operator: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
