"""What vLLM's configuration refuses because of the model or of a number's bounds, with and without HiSparse."""

from collections.abc import Iterator

from hisparse_runtime.vllm.command_line.edits import Edit, Json, in_order, with_json, with_option, without_option
from hisparse_runtime.vllm.command_line.meaning import SPECULATION, Meaning, whole_number
from hisparse_runtime.vllm.explain.findings import Rejection, Stage
from hisparse_runtime.vllm.explain.knowledge import Knowledge

_CHUNKED, _BATCHED, _REQUESTS = "--enable-chunked-prefill", "--max-num-batched-tokens", "--max-num-seqs"
_CONTEXT, _DTYPE, _SHARE = "--max-model-len", "--kv-cache-dtype", "--gpu-memory-utilization"
_ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
_AT_LEAST_ONE = (
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--decode-context-parallel-size",
    "--max-num-seqs",
    "--max-num-batched-tokens",
)
_SPECULATION_OPTIONS = (SPECULATION, "--spec-method", "--spec-model", "--spec-tokens")


def model_rejections(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    yield from _bounds(meaning)
    yield from _step(meaning)
    yield from _dtype(meaning)
    yield from _context(meaning, knowledge)
    if meaning.speculation:
        yield from _speculation(meaning, knowledge)


def _bounds(meaning: Meaning) -> Iterator[Rejection]:
    for name in _AT_LEAST_ONE:
        value = meaning.value(name)
        if isinstance(value, int) and value < 1:
            typed = meaning.typed(name)
            yield _rejection(
                "OutOfBounds",
                typed,
                f"{typed} {value} is below 1",
                says="Input should be greater than or equal to 1",
                edit=without_option(name),
            )
    share = meaning.value(_SHARE)
    if isinstance(share, float) and not 0 < share <= 1:
        is_percent = 1 < share <= 100
        yield _rejection(
            "OutOfBounds",
            meaning.typed(_SHARE),
            f"{meaning.typed(_SHARE)} {share:g} is no share of a GPU, a number above 0 and at most 1",
            says="Input should be less than or equal to 1" if share > 1 else "Input should be greater than 0",
            edit=with_option(_SHARE, f"{share / 100:g}") if is_percent else without_option(_SHARE),
        )


def _step(meaning: Meaning) -> Iterator[Rejection]:
    tokens, requests = meaning.value(_BATCHED), meaning.value(_REQUESTS)
    if isinstance(tokens, int) and isinstance(requests, int) and 0 < tokens < requests:
        yield _rejection(
            "FewerTokensThanRequests",
            _BATCHED,
            f"{_BATCHED} {tokens:,}: each of {_REQUESTS} {requests:,} takes a token of a step",
            says="must be greater than or equal to max_num_seqs",
            edit=with_option(_BATCHED, str(requests)),
        )


def _dtype(meaning: Meaning) -> Iterator[Rejection]:
    """0.33; before, the parser has the list."""
    option, dtype = meaning.line.table.find(_DTYPE), meaning.value(_DTYPE)
    if option is not None and option.listed and dtype is not None and dtype not in option.listed:
        yield _rejection(
            "UnknownCacheDtype",
            _DTYPE,
            f"{_DTYPE} {dtype!r} is none of {', '.join(option.listed)}",
            says="Invalid kv_cache_dtype",
            edit=without_option(_DTYPE),
        )


def _context(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    context, model = meaning.value(_CONTEXT), knowledge.model
    if not isinstance(context, int) or model is None or meaning.line.variable(_ALLOW_LONG) == "1":
        return
    longest, batched = model.max_position_embeddings, meaning.value(_BATCHED)
    if meaning.value(_CHUNKED) is False and isinstance(batched, int) and batched < context:
        yield _rejection(
            "PromptsInOneStep",
            meaning.typed(_CHUNKED),
            f"{meaning.typed(_CHUNKED)}: a prompt of {context:,} tokens has to fit into one step, of --max-num-batched-tokens"
            f" {batched:,}",
            says="is smaller than max_model_len",
            edit=without_option(_CHUNKED),
        )
    if context > longest:
        yield _rejection(
            "ContextTooLong",
            _CONTEXT,
            f"{_CONTEXT} {context:,}: the model has {longest:,} positions (max_position_embeddings): lower it to at most that",
            says="is greater than the derived max_model_len",
            edit=with_option(_CONTEXT, str(longest)),
        )


def _speculation(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    config, typed = meaning.speculation, meaning.typed(SPECULATION)
    unknown = [key for key in config if key not in meaning.line.table.configs["SpeculativeConfig"]]
    if unknown:
        yield _rejection(
            "UnknownKey",
            typed,
            f"{typed} has no field {', '.join(map(repr, unknown))}",
            says="Unexpected keyword argument",
            edit=_speculation_without(unknown),
        )
    methods = getattr(meaning.line.table.find("--spec-method"), "choices", ())
    method = config.get("method")
    if isinstance(method, str) and method not in methods:
        yield _rejection(
            "UnknownSpeculation",
            typed,
            f"{typed}: vLLM {meaning.line.table.version} has no method {method!r}: mtp is the one of the model's own layers",
            says="Input should be",
            edit=_speculation_with("method", "mtp"),
        )
    number = config.get("num_speculative_tokens")
    if number is None:
        yield _rejection(
            "NoSpeculativeTokens",
            typed,
            f"{typed} has no num_speculative_tokens, the draft tokens of a step",
            says="num_speculative_tokens must be provided",
            edit=_speculation_with("num_speculative_tokens", 1),
        )
    elif (tokens := whole_number(number)) is None or tokens <= 0:
        yield _rejection(
            "OutOfBounds",
            typed,
            f"{typed}: num_speculative_tokens {number!r} is no whole number above zero",
            says="Input should be a valid integer" if tokens is None else "Input should be greater than 0",
            edit=_without_speculation(),
        )
    elif knowledge.model is not None and meaning.num_mtp_tokens:
        yield from _mtp_layers(meaning, knowledge, knowledge.model.num_mtp_layers)


def _mtp_layers(meaning: Meaning, knowledge: Knowledge, num_layers: int) -> Iterator[Rejection]:
    typed, number = meaning.typed(SPECULATION), meaning.num_mtp_tokens
    if not num_layers:
        is_said = "num_nextn_predict_layers" in (knowledge.config or {})
        yield Rejection(
            code="NoMtpLayers",
            stage=Stage.CONFIG if is_said else Stage.MODEL,
            option=typed,
            message=f"{typed}: config.json has no num_nextn_predict_layers, so no MTP layer could draft",
            says="modulo by zero" if is_said else "num_nextn_predict_layers",
            edit=_without_speculation(),
        )
    elif number > num_layers and number % num_layers:
        fewer = number // num_layers * num_layers
        yield _rejection(
            "UnevenSpeculation",
            typed,
            f"{typed}: num_speculative_tokens {number} must be divisible by the model's {num_layers} MTP layers: use {fewer}",
            says="must be divisible by n_predict",
            edit=_speculation_with("num_speculative_tokens", fewer),
        )


def speculation_with_tokens(number: int) -> Edit:
    """So many draft tokens, or no speculation."""
    return _speculation_with("num_speculative_tokens", number) if number else _without_speculation()


def _speculation_with(key: str, value: object) -> Edit:
    """Also where it was said by an option of its own."""
    option = {"method": "--spec-method", "num_speculative_tokens": "--spec-tokens"}[key]
    return in_order(
        [without_option(option), with_json(SPECULATION, lambda config: config | {key: value}, what="")], what=f"set {key} {value}"
    )


def _speculation_without(keys: list[str]) -> Edit:
    def change(config: Json) -> Json:
        return {key: value for key, value in config.items() if key.replace("-", "_") not in keys}

    return with_json(SPECULATION, change, what=f"removed {', '.join(keys)}")


def _without_speculation() -> Edit:
    return in_order([without_option(name) for name in _SPECULATION_OPTIONS], what="removed speculation")


def _rejection(code: str, option: str, message: str, *, says: str, edit: Edit | None) -> Rejection:
    return Rejection(code=code, stage=Stage.CONFIG, option=option, message=message, says=says, edit=edit)
