"""Command lines that nobody would write: several features, mistakes and spellings at once. Seeded: the same in every process."""

import json
import random
from collections.abc import Mapping
from typing import Any

from tests.contract.arguments_lines import GIB, NIXL, Case, Json, case, connector, hisparse, multi, offloading

SEED = 20261130
NUM_RANDOM = 240
_MODELS = {"glm-5.3": 6, "glm-5.1": 2, "deepseek-v3.2": 2, "two-mtp-layers": 1, "no-mtp-layer": 1}
_POOLS: dict[Any, float] = {384: 8, 96.5: 3, 3: 2, 0.01: 0.5, None: 0.5, 0: 0.5, -1: 0.3, "384": 0.5, "lots": 0.5, "96Gi": 0.5}
_DTYPES = {"fp8": 6, "auto": 2, "bfloat16": 1, "fp8_e5m2": 0.5, "fp8_e4m3": 0.5, "fp9": 0.3}
_FLAGS = {
    "--no-async-scheduling": 2,
    "--enable-expert-parallel": 2,
    "--enforce-eager": 2,
    "--no-scheduler-reserve-full-isl": 1,
    "--disable-hybrid-kv-cache-manager": 1,
    "--enable-dbo": 0.5,
    "--no-such-flag": 0.5,
    "--trust-remote-code": 2,
    "--kv-cache-metrics": 2,
}
_ALIASES = {
    "--tensor-parallel-size": "-tp",
    "--data-parallel-size": "-dp",
    "--pipeline-parallel-size": "-pp",
    "--decode-context-parallel-size": "-dcp",
    "--attention-config": "-ac",
    "--compilation-config": "-cc",
    "--speculative-config": "-sc",
}


def random_cases() -> list[Case]:
    """Ids are unique and stable."""
    chance = random.Random(SEED)  # noqa: S311  repeatable, not secret
    return [_case(number, chance) for number in range(NUM_RANDOM)]


def _case(number: int, chance: random.Random) -> Case:
    words = [*_sizes(chance), *_hisparse(chance)]
    if chance.random() < 0.3:
        words += _spelled("--speculative-config", _speculation(chance), chance)
    words += chance.choices(list(_FLAGS), weights=list(_FLAGS.values()), k=_weighted(chance, {0: 5, 1: 4, 2: 2}))
    if chance.random() < 0.08:
        words += ["--kv-offloading-size", "64"]
    if chance.random() < 0.1:
        words += _spelled(
            "--compilation-config", {"cudagraph_mode": chance.choice(["FULL", "PIECEWISE", "full_and_piecewise"])}, chance
        )
    environment = {"VLLM_USE_V2_MODEL_RUNNER": chance.choice("01")} if chance.random() < 0.08 else {}
    return case(
        f"random-{number:03}",
        *words,
        base=(),
        model=_weighted(chance, _MODELS),
        gpu=_weighted(chance, {"H200": 5, "B200": 3, "RTX_PRO_6000": 1}),
        gpu_kv_bytes=int(_weighted(chance, {18: 5, 40: 5, 2.5: 1, 0.4: 1}) * GIB),
        environment=environment,
    )


def _sizes(chance: random.Random) -> list[str]:
    given = {
        "--tensor-parallel-size": _weighted(chance, {8: 6, 4: 2, 2: 1}),
        "--max-model-len": _weighted(chance, {131072: 5, "128K": 2, 65536: 2, "auto": 1, 300_000: 2, "1M": 1}),
        "--max-num-batched-tokens": _weighted(chance, {8192: 5, 32768: 2, "8k": 1, None: 1}),
        "--max-num-seqs": _weighted(chance, {None: 2, 256: 3, 64: 2, "64K": 0.2}),
        "--kv-cache-dtype": _weighted(chance, _DTYPES),
        "--block-size": _weighted(chance, {None: 8, 64: 2, 128: 1, 32: 0.5}),
        "--pipeline-parallel-size": _weighted(chance, {None: 20, 2: 0.5, 1: 1}),
        "--decode-context-parallel-size": _weighted(chance, {None: 20, 2: 0.5, 1: 1}),
        "--gpu-memory-utilization": _weighted(chance, {None: 6, 0.9: 2, 1.5: 0.1}),
    }
    if given["--pipeline-parallel-size"] == 2:
        given["--tensor-parallel-size"] = 4
    words = [_option(name, str(value), chance) for name, value in given.items() if value is not None]
    chance.shuffle(words)
    return [word for option in words for word in option]


def _option(name: str, value: str, chance: random.Random) -> list[str]:
    typed = chance.choice([name, name, _ALIASES.get(name, name), name.replace("-", "_").replace("__", "--")])
    return [f"{typed}={value}"] if chance.random() < 0.3 else [typed, value]


def _hisparse(chance: random.Random) -> list[str]:
    words = []
    transfer = _connectors(chance)
    if transfer is not None:
        words += _spelled("--kv-transfer-config", transfer, chance)
    if transfer is None or chance.random() < 0.3:
        fields: Json = {}
        if chance.random() < 0.6:
            fields["device_buffer_size"] = _weighted(chance, {4096: 3, 8192: 2, 10240: 1, 2000: 1, 6100: 1, 40000: 0.5, 0: 0.3})
        if chance.random() < 0.2:
            fields["eager_host_mirror"] = chance.choice([True, False])
        if chance.random() < 0.2:
            fields["host_pool_gib"] = 384
        words += _spelled("--attention-config", {"hisparse_config": fields}, chance)
    return words


def _connectors(chance: random.Random) -> Json | None:
    first = hisparse(_weighted(chance, _POOLS))
    others = [
        offloading(_weighted(chance, {128 * GIB: 5, "128Gi": 0.3, 0: 0.3})),
        NIXL,
        connector("ExampleConnector", shared_storage_path="unused"),
        connector("NoSuchConnector"),
    ]
    children = [first, *chance.choices(others, weights=[8, 4, 0.5, 0.3], k=chance.choice([1, 1, 2]))]
    children = [_marred(child, chance) for child in children]
    shape = _weighted(chance, {"alone": 6, "multi": 8, "nested": 0.5, "other": 1, "none": 1})
    if shape == "none":
        return None
    if shape == "alone":
        return children[0]
    if shape == "other":
        return children[1]
    return multi(multi(*children)) if shape == "nested" else multi(*children)


def _marred(written: Json, chance: random.Random) -> Json:
    kind = chance.random()
    if kind < 0.04:
        return {key: value for key, value in written.items() if key != "kv_role"}
    if kind < 0.06:
        return written | {"kv_rank": 0}
    if kind < 0.08:
        return written | {"kv_role": "kv_producer"}
    return written


def _speculation(chance: random.Random) -> Json:
    fields: Json = {"method": _weighted(chance, {"mtp": 12, "mpt": 0.5})}
    if chance.random() < 0.95:
        fields["num_speculative_tokens"] = _weighted(chance, {1: 3, 2: 2, 3: 4, 5: 1, 16: 0.5, 0: 0.2})
    return fields


def _spelled(name: str, value: Json, chance: random.Random) -> list[str]:
    """As JSON or, where it has no lists, now and then by dotted options."""
    text = json.dumps(value)
    if "[" in text or chance.random() < 0.7:
        return _option(name, text, chance)
    typed = chance.choice([name, _ALIASES.get(name, name)])
    return [f"{typed}.{'.'.join(path)}={leaf}" for path, leaf in _leaves(value)]


def _leaves(value: Json) -> list[tuple[tuple[str, ...], str]]:
    found: list[tuple[tuple[str, ...], str]] = []
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            found += [((key, *path), leaf) for path, leaf in _leaves(inner)]
        else:
            found.append(((key,), inner if isinstance(inner, str) else json.dumps(inner)))
    return found


def _weighted(chance: random.Random, weights: Mapping[Any, float]) -> Any:
    return chance.choices(list(weights), weights=list(weights.values()))[0]
