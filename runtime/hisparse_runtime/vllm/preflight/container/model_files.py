"""The model's config.json in the container: in its folder, or in the cache of Hugging Face. Nothing is fetched."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hisparse_runtime.vllm.preflight.container.files import below, text_of

_CONFIG = "config.json"
_MAIN = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    path: Path
    config: dict[str, Any]


def find_model(root: Path, model: str, *, revision: str | None, environment: Mapping[str, str]) -> FoundModel | None:
    """`model`: a folder, or a name on Hugging Face. None where its config.json is not there yet."""
    folders = [below(root, Path(model))] if model else []
    if not Path(model).is_absolute():
        cache = below(root, _hub_cache(environment)) / f"models--{model.replace('/', '--')}"
        commit = text_of(cache / "refs" / (revision or _MAIN)).strip() or revision
        if commit:
            folders.append(cache / "snapshots" / commit)
    for folder in folders:
        content = _json_object(folder / _CONFIG)
        if content is not None:
            return FoundModel(path=folder / _CONFIG, config=content)
    return None


def _hub_cache(environment: Mapping[str, str]) -> Path:
    """Where huggingface_hub keeps snapshots."""
    if environment.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"])
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"], "hub")
    caches = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/root"), ".cache")
    return Path(caches, "huggingface", "hub")


def _json_object(path: Path) -> dict[str, Any] | None:
    """None also for a file that is being written."""
    try:
        content = json.loads(text_of(path))
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
