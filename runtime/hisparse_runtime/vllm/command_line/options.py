"""The options of `vllm serve`, release by release. serve_options.json has them as vLLM's own parsers do.

`python -m tests.contract.make_arguments_data --options` writes it anew, and a contract test compares it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from hisparse_runtime.geometry import VllmVersion

_FILE = "serve_options.json"


class Takes(StrEnum):
    """How many words follow an option."""

    NOTHING = "nothing"
    ONE = "one"
    OPTIONAL = "optional"
    MANY = "many"


class ValueKind(StrEnum):
    """What a value becomes. CONFIG: a JSON object with the fields of a class."""

    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    HUMAN_INT = "human_int"
    HUMAN_INT_OR_AUTO = "human_int_or_auto"
    JSON = "json"
    JSON_OR_TEXT = "json_or_text"
    CONFIG = "config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOption:
    """`names` begins with the one that this project uses; `off` switches a flag off. `listed` is checked later than `choices`."""

    names: tuple[str, ...]
    off: tuple[str, ...]
    takes: Takes
    value: ValueKind | None
    is_nullable: bool
    config: str | None
    choices: tuple[str, ...]
    listed: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def is_json(self) -> bool:
        return self.value in (ValueKind.JSON, ValueKind.CONFIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionTable:
    """One release's options by every name, and the fields of its config classes: name -> class of the value, or None."""

    version: str
    by_name: Mapping[str, ServeOption]
    configs: Mapping[str, Mapping[str, str | None]]

    def find(self, name: str) -> ServeOption | None:
        """By its exact name."""
        return self.by_name.get(name)

    def abbreviated(self, name: str) -> tuple[str, ...]:
        """Names that begin with it: vLLM takes an abbreviation where there is only one."""
        return tuple(known for known in self.by_name if known.startswith(name))


@cache
def option_table(version: VllmVersion) -> OptionTable:
    content = json.loads(files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))
    versions = content["versions"]
    options = [_option(entry) for entry in content["options"] if version.name in entry.get("in", versions)]
    return OptionTable(
        version=version.name,
        by_name={name: option for option in options for name in (*option.names, *option.off)},
        configs={
            config: {
                name: field.get("config")
                for name, field in fields.items()
                if version.name in field.get("in", content["versions"])
            }
            for config, fields in content["configs"].items()
        },
    )


def known_versions(name: str) -> tuple[str, ...]:
    """Releases whose `vllm serve` has an option of this name."""
    content = json.loads(files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))
    found = [
        entry.get("in", content["versions"]) for entry in content["options"] if name in (*entry["names"], *entry.get("off", ()))
    ]
    return tuple(version for version in content["versions"] if any(version in versions for versions in found))


def _option(entry: dict[str, Any]) -> ServeOption:
    return ServeOption(
        names=tuple(entry["names"]),
        off=tuple(entry.get("off", ())),
        takes=Takes(entry["takes"]),
        value=ValueKind(entry["value"]) if "value" in entry else None,
        is_nullable=entry.get("nullable", False),
        config=entry.get("config"),
        choices=tuple(entry.get("choices", ())),
        listed=tuple(entry.get("listed", ())),
    )
