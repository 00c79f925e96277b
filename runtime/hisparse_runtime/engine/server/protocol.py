"""The body of POST /v1/completions."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from hisparse_runtime.engine.server.errors import ApiError
from hisparse_runtime.engine.tokenizer import encode

_DEFAULT_MAX_TOKENS = 16  # OpenAI's


class StreamOptions(BaseModel):
    include_usage: StrictBool = False


class CompletionBody(BaseModel):
    """Decoding is greedy. Sampling parameters (temperature, top_p, seed, ...) are taken and have no effect; what would change the
    shape of the answer is refused."""

    model_config = ConfigDict(extra="ignore")

    model: StrictStr | None = None
    prompt: StrictStr | list[StrictInt]
    max_tokens: StrictInt | None = Field(default=_DEFAULT_MAX_TOKENS, ge=1)
    stream: StrictBool = False
    stream_options: StreamOptions | None = None
    ignore_eos: StrictBool = False
    n: Literal[1] | None = 1
    best_of: Literal[1] | None = 1
    echo: Literal[False] | None = False
    logprobs: None = None
    stop: list[Any] | None = Field(default=None, max_length=0)
    suffix: Literal[""] | None = None


def parse_completion(raw: bytes) -> CompletionBody:
    """Raises ApiError naming the field that is wrong."""
    try:
        return CompletionBody.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # Of a union, pydantic names the member as well; people know the field.
        field = str(first["loc"][0]) if first["loc"] else None
        if field == "prompt" and first["type"] != "missing":
            raise ApiError("prompt must be a string or a list of token ids (one prompt a request)", param=field) from error
        if field in ("n", "best_of", "echo", "logprobs", "stop", "suffix"):
            raise ApiError(f"{field}={_shown(first['input'])} is not supported: leave {field} out", param=field) from error
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise ApiError(f"{where}: {first['msg']}, got {_shown(first['input'])}", param=field) from error


def prompt_tokens(body: CompletionBody, *, vocab_size: int) -> list[int]:
    """Raises ApiError if there is none, or an id is not in the vocabulary."""
    tokens = encode(body.prompt) if isinstance(body.prompt, str) else body.prompt
    if not tokens:
        raise ApiError("prompt is empty: at least one token is needed", param="prompt")
    if not isinstance(body.prompt, str) and (min(tokens) < 0 or max(tokens) >= vocab_size):
        wrong = next(token for token in tokens if not 0 <= token < vocab_size)
        raise ApiError(f"prompt holds token id {wrong}; ids of this model are 0 to {vocab_size - 1}", param="prompt")
    return tokens


def max_output_tokens(body: CompletionBody, *, num_prompt_tokens: int, max_model_len: int) -> int:
    """Raises ApiError if prompt and output are longer than the model serves."""
    wanted = body.max_tokens if body.max_tokens is not None else max(max_model_len - num_prompt_tokens, 1)
    if num_prompt_tokens + wanted > max_model_len:
        raise ApiError(
            f"this model's maximum context length is {max_model_len} tokens; "
            f"the request has {num_prompt_tokens} prompt tokens and max_tokens {wanted}, "
            f"{num_prompt_tokens + wanted - max_model_len} too many: shorten the prompt or lower max_tokens",
            param="prompt" if num_prompt_tokens >= max_model_len else "max_tokens",
            code="context_length_exceeded",
        )
    return wanted


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
