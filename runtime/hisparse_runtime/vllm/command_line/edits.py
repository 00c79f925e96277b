"""Changes of a command line that leave everything else where it is, and as it was typed."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hisparse_runtime.vllm.command_line.values import given_values
from hisparse_runtime.vllm.command_line.words import CommandLine, Item

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change; `what` says so in the past tense."""

    what: str
    apply: Callable[[CommandLine], CommandLine] = field(repr=False, compare=False)


def json_text(value: Mapping[str, Any]) -> str:
    """As one word of a command line, without blanks."""
    return json.dumps(value, separators=(",", ":"))


def without_items(items: Iterable[Item]) -> Edit:
    gone = list(items)
    words = " ".join(word for item in gone for word in item.words)
    return Edit(what=f"removed {words}", apply=lambda line: _kept(line, lambda item: all(item is not other for other in gone)))


def without_option(name: str) -> Edit:
    return Edit(what=f"removed {name}", apply=lambda line: _without(line, name))


def without_variable(name: str) -> Edit:
    def apply(line: CommandLine) -> CommandLine:
        return replace(line, environment=tuple(pair for pair in line.environment if pair[0] != name))

    return Edit(what=f"removed {name} from the environment", apply=apply)


def with_option(name: str, value: str) -> Edit:
    """In the place of the first one, or at the end."""
    return Edit(what=f"set {name} {value}", apply=lambda line: set_option(line, name, value))


def with_json(name: str, change: Callable[[Json], Json], *, what: str) -> Edit:
    """`change` takes what the option has in the end, and returns what it should have: nothing removes the option."""

    def apply(line: CommandLine) -> CommandLine:
        given = given_values(line).get(name)
        before = given.value if given is not None and isinstance(given.value, dict) else {}
        return set_json(line, name, change(json.loads(json.dumps(before))))

    return Edit(what=what, apply=apply)


def in_order(edits: Iterable[Edit], *, what: str) -> Edit:
    steps = tuple(edits)

    def apply(line: CommandLine) -> CommandLine:
        for step in steps:
            line = step.apply(line)
        return line

    return Edit(what=what, apply=apply)


def set_json(line: CommandLine, name: str, value: Json) -> CommandLine:
    return set_option(line, name, json_text(value)) if value else _without(line, name)


def set_option(line: CommandLine, name: str, value: str) -> CommandLine:
    items = line.given(name)
    if not items:
        return line.with_serve_words([*line.serve_words, name, value])
    first = items[0]
    typed = first.words[0].partition("=")[0].partition(".")[0]
    # a value that looks like an option has to be attached
    written = [f"{typed}={value}"] if value.startswith("-") else [typed, value]
    words: list[str] = []
    for item in line.items:
        if item is first:
            words += written
        elif all(item is not other for other in items):
            words += item.words
    return line.with_serve_words(words)


def _without(line: CommandLine, name: str) -> CommandLine:
    items = line.given(name)
    return _kept(line, lambda item: all(item is not other for other in items))


def _kept(line: CommandLine, is_kept: Callable[[Item], bool]) -> CommandLine:
    return line.with_serve_words([word for item in line.items if is_kept(item) for word in item.words])
