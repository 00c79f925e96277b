"""JSON of the wrong shape: a text where an object belongs, a number where a list does."""

from collections.abc import Iterator
from typing import Any

from hisparse_runtime.vllm.command_line.connectors import MULTI
from hisparse_runtime.vllm.command_line.edits import Json, with_json, without_option
from hisparse_runtime.vllm.command_line.meaning import ATTENTION, COMPILATION, KV_TRANSFER, SPECULATION, Meaning
from hisparse_runtime.vllm.command_line.transfer_config import extra_of
from hisparse_runtime.vllm.explain.findings import Rejection, Stage

_EXTRA = "kv_connector_extra_config"
_OBJECT, _TEXT = "Input should be an object", "Input should be a valid string"


def shape_rejections(meaning: Meaning) -> Iterator[Rejection]:
    yield from _fields(meaning, ATTENTION, {"hisparse_config": (dict, "Input should be")}, is_nullable=True)
    yield from _fields(meaning, COMPILATION, {"cudagraph_mode": ((str, int), "Input should be")}, is_nullable=True)
    transfer = meaning.config(KV_TRANSFER)
    yield from _fields(meaning, KV_TRANSFER, {"kv_connector": (str, _TEXT)}, is_nullable=True)
    yield from _fields(meaning, KV_TRANSFER, {_EXTRA: (dict, _OBJECT)}, is_nullable=False)
    if transfer.get("kv_connector") == MULTI:
        yield from _children(meaning, extra_of(transfer))
    speculation = meaning.value(SPECULATION)
    if speculation is not None and not isinstance(speculation, dict):
        yield Rejection(
            code="NoObject",
            stage=Stage.CONFIG,
            option=meaning.typed(SPECULATION),
            message=f"{meaning.typed(SPECULATION)} must be a JSON object, and is {speculation!r}",
            says="",
            edit=without_option(SPECULATION),
        )


def _fields(meaning: Meaning, name: str, fields: dict[str, tuple[Any, str]], *, is_nullable: bool) -> Iterator[Rejection]:
    config, typed = meaning.config(name), meaning.typed(name)
    for field, (kind, says) in fields.items():
        if field not in config or isinstance(config[field], kind) or (is_nullable and config[field] is None):
            continue
        yield Rejection(
            code="WrongShape",
            stage=Stage.ARGPARSE,
            option=typed,
            message=f"{typed}: {field} {config[field]!r} is of another kind than belongs there",
            says=says,
            edit=with_json(name, _without(field), what=f"removed {field} from {typed}"),
        )


def _children(meaning: Meaning, extra: Json) -> Iterator[Rejection]:
    """Looked at when the configuration is made; there, other classes complain."""
    children, typed = extra.get("connectors"), meaning.typed(KV_TRANSFER)
    if "connectors" in extra and not isinstance(children, list):
        yield Rejection(
            code="MalformedConnectors",
            stage=Stage.CONFIG,
            option=typed,
            message=f"{typed}: connectors {children!r} is no list",
            says="object",
        )
    for child in children if isinstance(children, list) else ():
        if not isinstance(child, dict):
            yield Rejection(
                code="MalformedConnectors",
                stage=Stage.CONFIG,
                option=typed,
                message=f"{typed}: connectors has {child!r}, which is no object; dotted options cannot say them, write JSON",
                says="object has no attribute 'get'",
            )
        elif not isinstance(child.get(_EXTRA, {}), dict) or not isinstance(child.get("kv_connector"), str | None):
            yield Rejection(
                code="MalformedConnectors",
                stage=Stage.CONFIG,
                option=typed,
                message=f"{typed}: connectors has {child!r}: kv_connector is a text, and {_EXTRA} an object",
                says="Input should be a valid",
            )


def _without(field: str) -> Any:
    return lambda config: {key: value for key, value in config.items() if key != field}
