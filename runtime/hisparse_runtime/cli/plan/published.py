"""`--as-published`: the figures of the calculator that vLLM published, for its own options and in its own words."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hisparse_runtime.capacity import GIB
from hisparse_runtime.capacity.published_calculator import PublishedInput, PublishedResult, calculate_as_published
from hisparse_runtime.cli.plan.output import OutputFormat, machine_text

# The page names no dtype but two; what vLLM calls auto is bfloat16 for this model, and the page starts with fp8.
_KV = {"fp8": "fp8", "bfloat16": "bf16", "auto": "bf16"}
_MODELS = ("glm-5.3", "glm-5.3-fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedAnswer:
    """`inputs` with what the page fills in left out, `result` as the page shows it."""

    inputs: PublishedInput
    result: PublishedResult


def published_inputs(
    *,
    model: str | None,
    kv_cache_dtype: str | None,
    host_pool_gib: float | None,
    offload_bytes: int | None,
    ram_bytes: int | None,
    **others: Any,
) -> PublishedInput:
    """What is None stays at the page's default; `others` are called as on the page. Raises ValueError for what it cannot take."""
    if model is not None and model.rpartition("/")[2].lower() not in _MODELS:
        raise ValueError(f"--model {model!r}: the published calculator is about GLM-5.3 only")
    if kv_cache_dtype is not None and kv_cache_dtype not in _KV:
        raise ValueError(f"--kv-cache-dtype {kv_cache_dtype!r}: the published calculator knows {', '.join(_KV)}")
    given = {
        **others,
        "kv": None if kv_cache_dtype is None else _KV[kv_cache_dtype],
        "host_pool_gib": None if host_pool_gib is None else _whole(host_pool_gib, "--host-pool-gib"),
        "offload_gib": None if offload_bytes is None else _whole(offload_bytes / GIB, "--cpu-bytes-to-use"),
        "ram_gib": None if ram_bytes is None else _whole(ram_bytes / GIB, "--node-memory"),
    }
    return PublishedInput(**{field: value for field, value in given.items() if value is not None})


def show_published(inputs: PublishedInput, compared: Sequence[int] | Sequence[str] | None, *, output: OutputFormat) -> None:
    """Raises ValueError for an entry that the page cannot take."""
    answers = [_answer(inputs)] if compared is None else [_answer(_changed(inputs, entry)) for entry in compared]
    if output is not OutputFormat.TABLE:
        sys.stdout.write(machine_text(answers[0] if compared is None else answers, output=output))
        return
    from hisparse_runtime.cli.plan.published_table import print_published  # noqa: PLC0415 (rich: tables only)

    print_published(sys.stdout, answers)


def _answer(inputs: PublishedInput) -> PublishedAnswer:
    return PublishedAnswer(inputs=inputs, result=calculate_as_published(inputs))


def _changed(inputs: PublishedInput, entry: int | str) -> PublishedInput:
    return replace(inputs, gpu=entry) if isinstance(entry, str) else replace(inputs, sequence_tokens=entry)


def _whole(size_gib: float, option: str) -> int:
    if not float(size_gib).is_integer():
        raise ValueError(f"{option} is {size_gib:g} GiB: the published calculator takes whole GiB")
    return int(size_gib)
