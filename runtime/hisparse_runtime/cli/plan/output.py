"""An answer for programs: JSON or YAML, always with every field."""

import json
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from enum import StrEnum
from typing import Any


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def machine_text(answer: object, *, output: OutputFormat) -> str:
    """One answer as an object, several as a list. Ends with a line break."""
    plain = _plain(answer)
    if output is OutputFormat.JSON:
        return json.dumps(plain, indent=2) + "\n"
    import yaml  # noqa: PLC0415 (30 ms that only this form pays)

    return yaml.safe_dump(plain, sort_keys=False, width=130)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value
