"""The model's own files: config.json, and beside it the index of a checkpoint's tensors."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"


class ModelFileError(ValueError):
    """A file cannot be read, or is not JSON; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """`config` is empty where there is no config.json, `index` None where there is no index. `name` selects a preset."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    index: dict[str, Any] | None = None


def read_model_files(*, name: str | None, path: Path | None) -> ModelFiles:
    """`path` is a config.json, or a folder that has one and perhaps an index. Raises ModelFileError."""
    if path is None:
        return ModelFiles(name=name or "")
    config_path = path / _CONFIG if path.is_dir() else path
    index_path = config_path.with_name(_INDEX)
    return ModelFiles(
        # without a name there is no preset: the file has to say everything
        name=name or "",
        config=_read(config_path),
        index=_read(index_path) if index_path.is_file() else None,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelFileError(f"cannot read {path}: {reason}") from error
    except ValueError as error:
        raise ModelFileError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"{path} must hold a JSON object, and holds a {type(content).__name__}")
    return content
