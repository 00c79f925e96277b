"""What an installation can choose: read once from the environment, where the Helm chart puts it."""

from collections.abc import Mapping
from dataclasses import dataclass


class SettingsError(ValueError):
    """An environment variable is missing or wrong; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`watch_namespaces` empty means the whole cluster."""

    engine_image: str
    watch_namespaces: tuple[str, ...]
    log_level: str
    scrape_seconds: float
    http_port: int

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> "Settings":
        engine_image = environment.get("HISPARSE_ENGINE_IMAGE", "")
        if not engine_image:
            raise SettingsError(
                "HISPARSE_ENGINE_IMAGE is not set: it names the engine image of objects that name none themselves"
            )
        namespaces = tuple(
            sorted({name.strip() for name in environment.get("HISPARSE_WATCH_NAMESPACES", "").split(",") if name.strip()})
        )
        log_level = environment.get("HISPARSE_LOG_LEVEL", "INFO").upper()
        if log_level not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise SettingsError(f"HISPARSE_LOG_LEVEL is {log_level!r}: use DEBUG, INFO, WARNING or ERROR")
        return Settings(
            engine_image=engine_image,
            watch_namespaces=namespaces,
            log_level=log_level,
            scrape_seconds=_number(environment, "HISPARSE_SCRAPE_SECONDS", default=5.0, smallest=1.0, largest=30.0),
            http_port=int(_number(environment, "HISPARSE_HTTP_PORT", default=8080, smallest=1, largest=65535)),
        )


def _number(environment: Mapping[str, str], name: str, *, default: float, smallest: float, largest: float) -> float:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not smallest <= value <= largest:
        raise SettingsError(f"{name} is {text!r}: use a number from {smallest:g} to {largest:g}")
    return value
