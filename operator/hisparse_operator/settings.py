"""What an installation can choose: read once from the environment, where the Helm chart puts it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hisparse_operator.resources import EngineImages


class SettingsError(ValueError):
    """An environment variable is missing or wrong; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`watch_namespaces` empty means the whole cluster."""

    images: EngineImages
    watch_namespaces: tuple[str, ...]
    log_level: str
    scrape_seconds: float
    http_port: int

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> "Settings":
        namespaces = tuple(
            sorted({name.strip() for name in environment.get("HISPARSE_WATCH_NAMESPACES", "").split(",") if name.strip()})
        )
        for name in namespaces:
            if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
                raise SettingsError(
                    f"HISPARSE_WATCH_NAMESPACES has {name!r}, which cannot be a namespace: give names with commas between them, "
                    "or leave it empty for the whole cluster"
                )
        log_level = (environment.get("HISPARSE_LOG_LEVEL") or "INFO").upper()
        if log_level not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise SettingsError(f"HISPARSE_LOG_LEVEL is {log_level!r}: use DEBUG, INFO, WARNING or ERROR")
        return Settings(
            images=EngineImages(
                embedded=_image(environment, "HISPARSE_EMBEDDED_IMAGE"), vllm=_image(environment, "HISPARSE_VLLM_IMAGE")
            ),
            watch_namespaces=namespaces,
            log_level=log_level,
            scrape_seconds=_number(environment, "HISPARSE_SCRAPE_SECONDS", default=5.0, smallest=1.0, largest=30.0),
            http_port=_port(environment, "HISPARSE_HTTP_PORT", default=8080),
        )


def _image(environment: Mapping[str, str], name: str) -> str:
    image = environment.get(name, "").strip()
    if not image:
        raise SettingsError(f"{name} is not set: it names the engine image of objects that name none themselves")
    return image


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


def _port(environment: Mapping[str, str], name: str, *, default: int) -> int:
    value = _number(environment, name, default=float(default), smallest=1, largest=65535)
    if not value.is_integer():
        raise SettingsError(f"{name} is {environment[name]!r}: use a whole number from 1 to 65535")
    return int(value)
