"""`python -m tests.contract.upstream_side.arguments_options`: the options of `vllm serve` as its own parser has them."""

import argparse
import dataclasses
import json
import sys
import typing
from importlib import import_module
from typing import Any

from tests.contract.upstream_side.arguments_parser import serve_command, serve_parser
from tests.contract.upstream_side.fake_platform import GPUS, Machine, install
from tests.contract.upstream_side.per_gpu import private_stdout

TAKES = {None: "one", 0: "nothing", "?": "optional", "+": "many"}
# A parser's function -> what it makes of a value. Others are not known here, and their values not judged.
VALUES = {
    "int": "int",
    "float": "float",
    "str": "text",
    "human_readable_int": "human_int",
    "human_readable_int_or_auto": "human_int_or_auto",
    "loads": "json",
    "union_dict_and_str": "json_or_text",
    "_parse_type": "json",
    "parse_dataclass": "config",
}


def main() -> int:
    output = private_stdout()
    install()
    Machine.gpu = GPUS["H200"]
    json.dump(options(), output)
    output.close()
    return 0


def options() -> dict[str, Any]:
    """`{"options": [...], "configs": {class: {field: class of its value, or null}}}`"""
    command = serve_command(serve_parser())
    configs: dict[str, Any] = {}
    entries = [_entry(action, command, configs) for action in command._actions if action.option_strings]
    # a plain object to the parser; its class takes it later
    _add_fields(import_module("vllm.config").SpeculativeConfig, configs, follow=False)
    return {"options": entries, "configs": configs}


def _entry(action: Any, command: Any, configs: dict[str, Any]) -> dict[str, Any]:
    # with those that the help does not show
    strings = [name for name, owner in command._option_string_actions.items() if owner is action]
    off = [name for name in strings if name in _negative(action)]
    function, nullable, config = _conversion(action.type)
    if config is not None:
        _add_fields(config, configs)
    entry = {
        "names": [name for name in strings if name not in off],
        "off": off,
        "takes": TAKES[action.nargs],
        "value": VALUES.get(function) if action.nargs != 0 else None,
        "nullable": nullable,
        "config": None if config is None else config.__name__,
        # an unnamed function changes the word before it is looked up
        "choices": [str(choice) for choice in action.choices or () if choice is not None] if function != "<lambda>" else [],
        # 0.33 lets the configuration look for it
        "listed": sorted(action.metavar) if action.dest == "kv_cache_dtype" and action.metavar else [],
    }
    return {key: value for key, value in entry.items() if value not in (None, [], False)}


def _negative(action: Any) -> set[str]:
    if hasattr(action, "negative_option_strings"):
        return set(action.negative_option_strings)
    if isinstance(action, argparse.BooleanOptionalAction):
        return {name for name in action.option_strings if name.startswith("--no-")}
    return set()


def _conversion(function: Any) -> tuple[str, bool, Any]:
    """Name of the innermost function, whether "None" and nothing are values, and the class that a JSON object becomes."""
    if function is None:
        return "str", False, None
    name = function.__qualname__.rpartition(".")[2]
    if name == "_optional_type":
        inner, _, config = _conversion(function.__closure__[0].cell_contents)
        return inner, True, config
    return name, False, function.__defaults__[0] if name == "parse_dataclass" else None


def _add_fields(config: Any, configs: dict[str, Any], *, follow: bool = True) -> None:
    if config.__name__ in configs:
        return
    found: dict[str, str | None] = {}
    configs[config.__name__] = found
    for field in dataclasses.fields(config):
        if field.init:
            kinds = (field.type, *typing.get_args(field.type)) if follow else ()
            nested = [kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
            found[field.name] = nested[0].__name__ if nested else None
            for kind in nested:
                _add_fields(kind, configs)


if __name__ == "__main__":
    sys.exit(main())
