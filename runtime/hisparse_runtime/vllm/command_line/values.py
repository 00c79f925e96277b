"""Words -> values, as vLLM's parser converts them: numbers with suffixes, JSON with such numbers, dotted keys; the last wins."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hisparse_runtime.vllm.command_line.options import OptionTable, ServeOption, Takes, ValueKind
from hisparse_runtime.vllm.command_line.words import CommandLine, Item, ItemKind

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_BARE_HUMAN = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
_OBJECT = re.compile(r"\s*{.*}\s*", re.DOTALL)


class ValueProblem(ValueError):  # noqa: N818  not the user's program that fails, but his value
    """vLLM's parser refuses the value. `says` is a part of its own text, `keys` the JSON key that it does not know."""

    def __init__(self, text: str, *, says: str, keys: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text, self.says, self.keys = text, says, keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What an option has in the end. `problem` is why vLLM's parser takes none of it; `value` is then None, or a JSON object with
    keys that it does not know.

    `items`: all that were typed for it; `overridden`: those of them that have no effect; `wrong`: those of the problem.
    """

    value: Any
    items: tuple[Item, ...]
    overridden: tuple[Item, ...] = ()
    problem: ValueProblem | None = None
    wrong: tuple[Item, ...] = ()

    @property
    def is_wrong_in_vain(self) -> bool:
        """Whether the problem is in what has no effect."""
        return self.problem is not None and any(item is self.wrong[0] for item in self.overridden)


def given_values(line: CommandLine) -> dict[str, Given]:
    """By the option's first name. Dotted items of one spelling are one JSON object, and come behind everything else."""
    found: dict[str, Given] = {}
    for items in _assignments(line):
        option = items[0].option
        assert option is not None
        value, problem = None, None
        try:
            value = _value(items, option, line.table)
            if option.config is not None and value is not None:
                problem = _unknown_key(value, option.config, line.table, ())
        except ValueProblem as error:
            problem = error
        before = found.get(option.name)
        is_wrong_before = before is not None and before.problem is not None
        found[option.name] = Given(
            value=value,
            items=(*(before.items if before else ()), *items),
            overridden=before.items if before else (),
            # argparse converts each occurrence, and stops at the first that it cannot
            problem=before.problem if before is not None and is_wrong_before else problem,
            wrong=before.wrong if before is not None and is_wrong_before else items if problem is not None else (),
        )
    return found


def human_int(text: str) -> int:
    """`8k`, `8K`, `25.6k`. Raises ValueError, also for a fraction of a binary unit."""
    match = _HUMAN.fullmatch(text.strip())
    if match is None:
        return int(text)
    number, suffix = match.groups()
    return int(float(number) * _DECIMAL[suffix]) if suffix in _DECIMAL else int(number) * _BINARY[suffix]


def _assignments(line: CommandLine) -> list[tuple[Item, ...]]:
    plain: list[tuple[Item, ...]] = []
    dotted: dict[str, list[Item]] = {}
    for item in line.items:
        if item.kind is not ItemKind.OPTION or item.lack:
            continue
        if item.keys:
            dotted.setdefault(item.name, []).append(item)
        else:
            plain.append((item,))
    return [*plain, *map(tuple, dotted.values())]


def _value(items: tuple[Item, ...], option: ServeOption, table: OptionTable) -> Any:
    if items[0].keys:
        return _converted(json.dumps(_merged(items)), option, table)
    (item,) = items
    if option.takes is Takes.NOTHING:
        return not item.is_off
    if option.takes is Takes.MANY:
        return [_converted(value, option, table) for value in item.values]
    return _converted(item.values[0], option, table) if item.values else True


def _merged(items: tuple[Item, ...]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for item in items:
        *path, last = item.keys
        value = _dotted_value(item.values[0])
        if last.endswith("+"):
            last, value = last[:-1], item.values[0].split(",")
        where = merged
        for key in path:
            inner = where.setdefault(key, {})
            if not isinstance(inner, dict):
                inner = where[key] = {}
            where = inner
        before = where.get(last)
        if isinstance(before, dict) and isinstance(value, dict):
            before.update(value)
        elif isinstance(before, list) and isinstance(value, list):
            before += value
        else:
            where[last] = value
    return merged


def _dotted_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        try:
            return human_int(text)
        except ValueError:
            return text


def _converted(text: str, option: ServeOption, table: OptionTable) -> Any:
    if option.is_nullable and text in ("", "None"):
        return None
    converted = _CONVERSIONS[option.value](text, option, table) if option.value is not None else text
    if option.choices and str(converted) not in option.choices:
        raise ValueProblem(f"{text!r} is none of {', '.join(option.choices)}", says="invalid choice")
    return converted


def _integer(text: str, option: ServeOption, _: OptionTable) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueProblem(
            f"{text!r} is no whole number, and this option takes no suffix", says=_refusal(option, "invalid int value")
        ) from None


def _number(text: str, option: ServeOption, _: OptionTable) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueProblem(f"{text!r} is no number", says=_refusal(option, "invalid float value")) from None


def _human(text: str, option: ServeOption, _: OptionTable) -> int:
    if option.value is ValueKind.HUMAN_INT_OR_AUTO and text.strip().lower() in ("-1", "auto"):
        return -1
    try:
        return human_int(text)
    except ValueError:
        if _HUMAN.fullmatch(text.strip()):
            says = "Decimals are not allowed"
        else:
            says = _refusal(option, f"invalid human_readable_{option.value[6:] if option.value else ''} value")
        raise ValueProblem(
            f"{text!r} is no whole number: write 131072, 128K for 131,072 or 128k for 128,000; only small letters take fractions",
            says=says,
        ) from None


def _json(text: str, option: ServeOption, _: OptionTable) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueProblem(f"is not JSON: {error}", says=_refusal(option, "invalid loads value")) from error


def _json_or_text(text: str, _: ServeOption, __: OptionTable) -> Any:
    if not _OBJECT.fullmatch(text):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueProblem(f"is not JSON: {error}", says="cannot be converted to") from error


def _config(text: str, _: ServeOption, __: OptionTable) -> Any:
    try:
        value = json.loads(_expanded(text))
    except ValueError as error:
        raise ValueProblem(f"is not JSON: {error}", says="Invalid JSON") from error
    if not isinstance(value, dict):
        raise ValueProblem(f"must be a JSON object, and is {text}", says="Input should be an object")
    return value


def _text(text: str, _: ServeOption, __: OptionTable) -> str:
    return text


def _expanded(text: str) -> str:
    """128G outside of quotes is a number to vLLM, though not to JSON."""
    parts = _QUOTED.split(text)
    parts[::2] = [_BARE_HUMAN.sub(lambda match: str(human_int(match[0])), part) for part in parts[::2]]
    return "".join(parts)


def _unknown_key(value: Mapping[str, Any], config: str, table: OptionTable, path: tuple[str, ...]) -> ValueProblem | None:
    fields = table.configs[config]
    for key, inner in value.items():
        if key not in fields:
            return ValueProblem(
                f"has no field {'.'.join((*path, key))!r}; vLLM {table.version} knows {', '.join(fields)}",
                says="Unexpected keyword argument",
                keys=(*path, key),
            )
        nested = fields[key]
        problem = _unknown_key(inner, nested, table, (*path, key)) if nested is not None and isinstance(inner, dict) else None
        if problem is not None:
            return problem
    return None


def _refusal(option: ServeOption, says: str) -> str:
    """Options that may be None have a converter of their own around the one that they name."""
    return "cannot be converted to" if option.is_nullable else says


_CONVERSIONS = {
    ValueKind.TEXT: _text,
    ValueKind.INT: _integer,
    ValueKind.FLOAT: _number,
    ValueKind.HUMAN_INT: _human,
    ValueKind.HUMAN_INT_OR_AUTO: _human,
    ValueKind.JSON: _json,
    ValueKind.JSON_OR_TEXT: _json_or_text,
    ValueKind.CONFIG: _config,
}
