"""What vLLM's command line parser refuses: seconds after the start, with exit code 2 or a traceback."""

import ast
import difflib
import re
from collections.abc import Iterator
from typing import Any

from hisparse_runtime.vllm.command_line.edits import Edit, Json, with_json, with_option, without_items, without_option
from hisparse_runtime.vllm.command_line.meaning import ATTENTION, KV_TRANSFER, Meaning
from hisparse_runtime.vllm.command_line.options import ServeOption, ValueKind, known_versions
from hisparse_runtime.vllm.command_line.transfer_config import extra_of
from hisparse_runtime.vllm.command_line.values import Given, ValueProblem
from hisparse_runtime.vllm.command_line.words import CommandLine, Item, ItemKind
from hisparse_runtime.vllm.explain.findings import Rejection, Stage
from hisparse_runtime.vllm.explain.old_dialect import OLD_POOL_KEYS, old_dialect_rejection

_SIMILARITY = 0.9
_PARTNERS = {"--enable-auto-tool-choice": "--tool-call-parser", "--enable-log-outputs": "--enable-log-requests"}
_BINARY_QUANTITY = re.compile(r"(\d+)(Ki|Mi|Gi|Ti)")
_HUMAN_KINDS = frozenset({ValueKind.HUMAN_INT, ValueKind.HUMAN_INT_OR_AUTO})


def argparse_rejections(meaning: Meaning) -> Iterator[Rejection]:
    """In the order in which vLLM stops: unclear names, the model, values, words left over, pairs of options."""
    line = meaning.line
    yield from _ambiguous(line)
    yield from _model(line)
    yield from _values(meaning)
    yield from _left_over(line)
    yield from _pairs(meaning)


def _ambiguous(line: CommandLine) -> Iterator[Rejection]:
    for item in line.items:
        if item.kind is ItemKind.AMBIGUOUS:
            yield _rejection(
                "AmbiguousOption",
                item.name,
                f"{item.name} may be short for {', '.join(item.candidates)}: write the whole name",
                says="ambiguous option",
            )


def _model(line: CommandLine) -> Iterator[Rejection]:
    if not line.items or line.given("--config") or line.given("--model"):
        return
    if line.items[0].kind is not ItemKind.MODEL and line.given("--served-model-name"):
        model = next((item for item in line.items if item.kind is ItemKind.MODEL), None)
        edit = None
        if model is not None:
            found = model

            def moved(before: CommandLine) -> CommandLine:
                rest = [word for item in before.items if item.words != found.words for word in item.words]
                return before.with_serve_words([*found.words, *rest])

            edit = Edit(what=f"put the model {found.words[0]} first", apply=moved)
        yield _rejection(
            "ModelNotFirst",
            "--served-model-name",
            "with --served-model-name, the model has to be the first word behind `vllm serve`",
            says="should be provided as the first positional argument",
            edit=edit,
        )


def _values(meaning: Meaning) -> Iterator[Rejection]:
    for item in meaning.line.items:
        if item.lack and item.kind is ItemKind.OPTION:
            wants = "takes no value" if item.lack.startswith("ignored") else "has no value"
            yield _rejection("WrongNumberOfValues", item.name, f"{item.words[0]} {wants}", says=item.lack)
    for name, given in meaning.values.items():
        if given.problem is not None:
            yield _value_rejection(name, given, given.problem)


def _value_rejection(name: str, given: Given, problem: ValueProblem) -> Rejection:
    item = given.wrong[0]
    typed = item.name
    if given.is_wrong_in_vain:
        message = f"{typed} {problem.text}; it has no effect, and vLLM reads it all the same"
        return _rejection("WrongInVain", typed, message, says=problem.says, edit=without_items(given.wrong))
    if (name, problem.keys) == (ATTENTION, OLD_POOL_KEYS):
        return old_dialect_rejection(typed, says=problem.says)
    if problem.keys:
        return _unknown_key(name, typed, problem)
    option = item.option
    assert option is not None
    return _rejection(
        "InvalidChoice" if problem.says == "invalid choice" else "InvalidJson" if option.is_json else "InvalidValue",
        typed,
        f"{typed} {problem.text}" if option.is_json else f"{typed}: {problem.text}",
        says=problem.says,
        edit=_repaired(option, given),
    )


def _unknown_key(name: str, typed: str, problem: ValueProblem) -> Rejection:
    path = ".".join(problem.keys)
    if name == KV_TRANSFER and problem.keys == ("host_pool_gib",):
        message = f"{typed}: host_pool_gib belongs into kv_connector_extra_config of the HiSparseConnector"
        edit = with_json(name, _pool_into_extra, what="moved host_pool_gib into kv_connector_extra_config")
        return _rejection("MisplacedPool", typed, message, says=problem.says, edit=edit)

    def dropped(config: Json) -> Json:
        where: Any = config
        for key in problem.keys[:-1]:
            where = where[key]
        del where[problem.keys[-1]]
        return config

    edit = with_json(name, dropped, what=f"removed {path} from {typed}")
    return _rejection("UnknownKey", typed, f"{typed} {problem.text}", says=problem.says, edit=edit)


def _pool_into_extra(config: Json) -> Json:
    pool = {"host_pool_gib": config["host_pool_gib"]}
    rest = {key: value for key, value in config.items() if key != "host_pool_gib"}
    return rest | {"kv_connector_extra_config": pool | extra_of(config)}


def _repaired(option: ServeOption, given: Given) -> Edit | None:
    """A Python literal for JSON, a Kubernetes quantity for a number of tokens: what they mean is clear."""
    if len(given.items) != 1 or given.items[0].keys or not given.items[0].values:
        return None
    text = given.items[0].values[0]
    if option.is_json:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return None
        if isinstance(value, dict):
            return with_json(option.name, lambda _: value, what=f"wrote the value of {option.name} as JSON")
        return None
    match = _BINARY_QUANTITY.fullmatch(text)
    if match is not None and option.value in _HUMAN_KINDS:
        return with_option(given.items[0].name, match[1] + match[2][0])
    return None


def _left_over(line: CommandLine) -> Iterator[Rejection]:
    """Also what follows an unknown option: vLLM cannot know that it was its value."""
    index = 0
    while index < len(line.items):
        item = line.items[index]
        index += 1
        if item.kind is ItemKind.STRAY:
            yield _rejection(
                "StrayWord",
                item.words[0],
                f"{item.words[0]!r} belongs to no option: the model is {line.model!r}",
                says="unrecognized arguments",
                edit=without_items([item]),
            )
        if item.kind is not ItemKind.UNKNOWN:
            continue
        followers = []
        while index < len(line.items) and line.items[index].kind is ItemKind.STRAY:
            followers.append(line.items[index])
            index += 1
        yield _unknown_option(line, item, followers)


def _unknown_option(line: CommandLine, item: Item, followers: list[Item]) -> Rejection:
    versions = known_versions(item.name)
    close = difflib.get_close_matches(item.name, line.table.by_name, n=1, cutoff=_SIMILARITY)
    why = f"vLLM {line.table.version} has no option {item.name}"
    if versions:
        return _rejection(
            "UnknownOption",
            item.name,
            f"{why}; {', '.join(versions)} {'has' if len(versions) == 1 else 'have'} it: remove it, or use such a release",
            says="unrecognized arguments",
            edit=without_items([item, *followers]),
        )
    if not close:
        return _rejection(
            "UnknownOption",
            item.name,
            f"{why}: remove it",
            says="unrecognized arguments",
            edit=without_items([item, *followers]),
        )

    def corrected(before: CommandLine) -> CommandLine:
        words = [
            item.words[0].replace(item.words[0].partition("=")[0].partition(".")[0], close[0], 1)
            if word == item.words[0]
            else word
            for word in before.serve_words
        ]
        return before.with_serve_words(words)

    return _rejection(
        "UnknownOption",
        item.name,
        f"{why}: did you mean {close[0]}?",
        says="unrecognized arguments",
        edit=Edit(what=f"wrote {close[0]} for {item.name}", apply=corrected),
    )


def _pairs(meaning: Meaning) -> Iterator[Rejection]:
    for option, needed in (
        ("--enable-auto-tool-choice", "--tool-call-parser"),
        ("--enable-log-outputs", "--enable-log-requests"),
    ):
        if meaning.value(option) is True and not meaning.value(needed):
            yield _rejection(
                "MissingPartner",
                option,
                f"{option} needs {needed}",
                says=f"{option} requires {needed}",
                edit=without_option(option),
            )


def _rejection(code: str, option: str, message: str, *, says: str, edit: Edit | None = None) -> Rejection:
    return Rejection(code=code, stage=Stage.ARGPARSE, option=option, message=message, says=says, edit=edit)
