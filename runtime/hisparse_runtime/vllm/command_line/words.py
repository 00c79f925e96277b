"""A user's `vllm serve ...`, word by word, as vLLM's parser will take it: nothing is lost, so that it can be printed again.

vLLM parses in three steps, and so does this: underscores in option names become dashes, dotted options (`--x.y=1`) are collected,
and argparse takes the rest, with abbreviations.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from hisparse_runtime.vllm.command_line.options import OptionTable, ServeOption, Takes

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_IMAGE = re.compile(r"([\w.-]+(:\d+)?/)*vllm-openai([:@]|$)")
_MODEL_OPTION = re.compile(r"--model(=.+)?", re.DOTALL)
_OPTIMIZATION_LEVEL = "--optimization-level"


class CommandLineError(ValueError):
    """These words are no `vllm serve` command; the text has the next step."""


class ItemKind(StrEnum):
    MODEL = "model"
    OPTION = "option"
    UNKNOWN = "unknown"  # looks like an option, and there is none of this name
    AMBIGUOUS = "ambiguous"
    STRAY = "stray"  # a word that no option takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The model, or an option with its values. `words` are as typed, `name` has dashes and no keys.

    `keys`: of a dotted option. `candidates`: the options that an ambiguous name could be. `lack`: what argparse misses or has too
    much, in its words.
    """

    words: tuple[str, ...]
    kind: ItemKind
    name: str = ""
    option: ServeOption | None = None
    is_off: bool = False
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    lack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """`environment`: assignments in front. `program`: words up to `serve`, empty where the command line begins behind it."""

    environment: tuple[tuple[str, str], ...]
    program: tuple[str, ...]
    items: tuple[Item, ...]
    table: OptionTable

    @property
    def words(self) -> tuple[str, ...]:
        """All of it, to be printed or run."""
        variables = tuple(f"{name}={value}" for name, value in self.environment)
        return (*variables, *self.program, *self.serve_words)

    @property
    def serve_words(self) -> tuple[str, ...]:
        """Behind `serve`."""
        return tuple(word for item in self.items for word in item.words)

    @property
    def model(self) -> str | None:
        """`--model` goes before a word at the front."""
        options = self.given("--model")
        if options and options[0].values:
            return options[0].values[0]
        return next((item.words[0] for item in self.items if item.kind is ItemKind.MODEL), None)

    def given(self, name: str) -> tuple[Item, ...]:
        """Items of the option with this name, however it was spelled."""
        return tuple(item for item in self.items if item.option is not None and name in item.option.names)

    def variable(self, name: str) -> str | None:
        return next((value for known, value in reversed(self.environment) if known == name), None)

    def with_serve_words(self, words: Sequence[str]) -> "CommandLine":
        return replace(self, items=tuple(_read(list(words), self.table)))


def read_command_line(words: Sequence[str], table: OptionTable) -> CommandLine:
    """The words of a shell, or all of them in one text. Raises CommandLineError when there is no `vllm serve` in them."""
    if len(words) == 1 and len(words[0].split()) > 1:
        try:
            # lines that a shell would join
            words = shlex.split(words[0].replace("\\\n", " "))
        except ValueError as error:
            raise CommandLineError(f"these words cannot be told apart: {error}; give them as you would type them") from error
    words = list(words)
    program_length = _program_length(words)
    leading = words[:program_length]
    if leading[:1] == ["env"]:
        leading = leading[1:]
    num_variables = next((index for index, word in enumerate(leading) if not _VARIABLE.fullmatch(word)), len(leading))
    return CommandLine(
        environment=tuple(_assignment(word) for word in leading[:num_variables]),
        program=tuple(leading[num_variables:]),
        items=tuple(_read(list(words[program_length:]), table)),
        table=table,
    )


def _assignment(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _program_length(words: Sequence[str]) -> int:
    """Words before the arguments: up to `serve`, or a module or an image that serves."""
    for index, word in enumerate(words):
        if word == "serve" and (index == 0 or words[index - 1].rpartition("/")[2] == "vllm"):
            return index + 1
        if index and words[index - 1] == "-m" and word.startswith("vllm.entrypoints"):
            return index + 1
        if _IMAGE.match(word):  # runs `vllm serve` with what follows
            return index + 1
    raise CommandLineError("there is no `vllm serve` in it: give the command as you would run it, from `vllm serve MODEL` on")


def _read(words: list[str], table: OptionTable) -> list[Item]:
    """Items in the order of the words. The first word that no option takes is the model, unless `--model` is there."""
    items: list[Item] = []
    has_model = any(_MODEL_OPTION.fullmatch(word) for word in words)
    index = 0
    while index < len(words):
        word = words[index]
        if not _is_option(word, table):
            items.append(Item(words=(word,), kind=ItemKind.STRAY if has_model else ItemKind.MODEL))
            has_model = True
            index += 1
            continue
        item = _option_item(words, index, table)
        items.append(item)
        index += len(item.words)
    return items


def _option_item(words: list[str], index: int, table: OptionTable) -> Item:
    word = words[index]
    name, equals, value = word.partition("=")
    name = _dashed(name)
    following = words[index + 1 :]
    if "." in name:
        return _dotted_item(word, name, value if equals else None, following, table)
    if word.startswith("-O"):
        return _level_item(word, following, table)
    option, candidates = _resolve(name, table)
    if option is None:
        kind = ItemKind.AMBIGUOUS if candidates else ItemKind.UNKNOWN
        return Item(words=(word,), kind=kind, name=name, candidates=candidates)
    item = Item(words=(word,), kind=ItemKind.OPTION, name=name, option=option, is_off=_full_name(name, table) in option.off)
    if option.takes is Takes.NOTHING:
        return replace(item, lack="ignored explicit argument") if equals else item
    if equals:
        return replace(item, values=(value,))
    most = len(following) if option.takes is Takes.MANY else 1
    taken: list[str] = []
    for candidate in following[:most]:
        if _is_option(candidate, table):
            break
        taken.append(candidate)
    lack = ""
    if not taken and option.takes is not Takes.OPTIONAL:
        lack = "expected at least one argument" if option.takes is Takes.MANY else "expected one argument"
    return replace(item, words=(word, *taken), values=tuple(taken), lack=lack)


def _level_item(word: str, following: list[str], table: OptionTable) -> Item:
    """`-O3`, `-O=3` and `-O 3`."""
    attached = word[2:].removeprefix("=")
    words = (word,) if attached else (word, *following[:1])
    return Item(
        words=words,
        kind=ItemKind.OPTION,
        name=_OPTIMIZATION_LEVEL,
        option=table.find(_OPTIMIZATION_LEVEL),
        values=(attached,) if attached else words[1:],
        lack="" if attached or following else "expected one argument",
    )


def _dotted_item(word: str, name: str, value: str | None, following: list[str], table: OptionTable) -> Item:
    """The next word is its value, whatever it looks like."""
    base, *keys = name.split(".")
    option, candidates = _resolve(base, table)
    kind = ItemKind.OPTION if option is not None else ItemKind.AMBIGUOUS if candidates else ItemKind.UNKNOWN
    words = (word,) if value is not None else (word, *following[:1])
    values = words[1:] if value is None else (value,)
    return Item(
        words=words,
        kind=kind,
        name=base,
        option=option,
        keys=tuple(keys),
        values=values,
        candidates=candidates,
        lack="" if values else "expected one argument",
    )


def _is_option(word: str, table: OptionTable) -> bool:
    """Whether argparse takes the word for an option and not for a value."""
    if not word.startswith("-") or word == "-":
        return False
    name = _dashed(word.partition("=")[0])
    if table.find(name) or _resolve(name, table) != (None, ()):
        return True
    return not _NEGATIVE_NUMBER.fullmatch(word) and " " not in word


def _resolve(name: str, table: OptionTable) -> tuple[ServeOption | None, tuple[str, ...]]:
    """The option; or None, with the names that an abbreviation could mean."""
    found = table.find(name)
    if found is not None:
        return found, ()
    candidates = table.abbreviated(name)
    return (table.find(candidates[0]), ()) if len(candidates) == 1 else (None, candidates)


def _full_name(name: str, table: OptionTable) -> str:
    return name if table.find(name) else next(iter(table.abbreviated(name)), name)


def _dashed(name: str) -> str:
    """Underscores become dashes between `--` and the first dot."""
    if not name.startswith("--"):
        return name
    base, dot, keys = name.partition(".")
    return base.replace("_", "-") + dot + keys
