"""The configurations that vLLM's planner and ours must agree on. Pure and seeded: the same list in every process.

A case is one JSON object; `tests/contract/upstream_side/planner.py` turns it into an engine's command line.
"""

import random
from typing import Any

from tests.contract.model_configs import (
    DEEPSEEK_V3_2,
    GLM_5_1,
    GLM_5_3,
    GLM_5_3_FLASH,
    GLM_5_3_FLASH_TEXT,
    KNOWN,
    Config,
    varied,
)

Case = dict[str, Any]

GIB = 2**30
SEED = 20261129
NUM_RANDOM = 520
NUM_OF_OLD_VERSIONS = 240  # 0.30 and 0.31 answer this many of them
PAGE_TOKENS = 64
DEFAULTS: Case = {
    "gpu": "H200",
    "num_gpus": 8,
    "kv_cache_dtype": "fp8",
    "block_size": None,
    "tensor_parallel_size": 8,
    "data_parallel_size": 1,
    "num_speculative_tokens": 0,
    "max_model_len": 131072,
    "max_num_batched_tokens": 32768,
    "max_num_seqs": 256,
    "host_pool_gib": 384,
    "device_buffer_size": None,
    "async_scheduling": None,
    "gpu_kv_bytes": int(17.8 * GIB),
    "hisparse": True,
    "offload": False,
    "extra_args": [],
}
# How a row of so many bytes comes about.
ROWS = {576: ("B200", "fp8"), 656: ("H200", "fp8"), 1152: ("H200", "auto"), 352: ("B200", "nvfp4_ds_mla")}
DTYPES_OF_GPU = {
    "H200": {"fp8": 8, "auto": 3, "bfloat16": 2, "fp8_ds_mla": 3, "fp8_e4m3": 2, "nvfp4_ds_mla": 0.2, "fp8_e5m2": 0.2},
    "B200": {"fp8": 8, "auto": 3, "bfloat16": 2, "fp8_ds_mla": 3, "fp8_e4m3": 2, "nvfp4_ds_mla": 2, "fp8_e5m2": 0.2},
    "RTX_PRO_6000": {"fp8": 8, "auto": 3, "bfloat16": 0.5, "fp8_ds_mla": 3, "fp8_e4m3": 2, "nvfp4_ds_mla": 0.2},
}
REFUSED_ARGUMENTS = [
    ["--pipeline-parallel-size", "2"],
    ["--decode-context-parallel-size", "2"],
    ["-cc.cudagraph_mode=FULL"],
    ["--no-scheduler-reserve-full-isl"],
    ["--disable-hybrid-kv-cache-manager"],
]
WITHOUT_FLASHKDA = [
    "--additional-config",
    '{"kda_prefill_backend": "triton"}',
]  # a compiled kernel that is not there, and has no cache
OTHER_ARGUMENTS = [
    ["--prefill-context-parallel-size", "2"],
    ["--attention-backend", "FLASHMLA_SPARSE"],
    ["--num-gpu-blocks-override", "30000"],
    ["--enforce-eager"],
]


def cases(version: str) -> list[Case]:
    """Those that `version` ("0.30" to "0.33") answers, in the order of the data files. Ids are unique and stable."""
    every = [*_published_table(), *_edges(), *_random()]
    if version in ("0.32", "0.33"):
        return every
    num_table = len(_published_table())
    chosen = random.Random(SEED).sample(range(num_table, len(every)), NUM_OF_OLD_VERSIONS - num_table)  # noqa: S311
    return [*every[:num_table], *(every[number] for number in sorted(chosen))]


def flash_cases() -> list[Case]:
    """GLM-5.3-Flash with HiSparse, as published (with a vision tower) and as text alone. vLLM 0.32 and 0.33 refuse them."""
    return [
        _case(
            f"flash-{name}-{gpu}-{num}",
            config,
            gpu=gpu,
            kv_cache_dtype="auto",
            num_speculative_tokens=num,
            extra_args=WITHOUT_FLASHKDA,
        )
        for name, config in (("published", GLM_5_3_FLASH), ("text", GLM_5_3_FLASH_TEXT))
        for gpu in ("H200", "B200")
        for num in (0, 1)
    ]


def _case(name: str, config: Config, **different: Any) -> Case:
    return {"id": name, "config": config, **DEFAULTS, **different}


def _published_table() -> list[Case]:
    """Rows whose figures are known from elsewhere: 17.8 GiB of KV memory, 384 GiB of host pool, 131,072 tokens, TP 8."""
    rows = [(model, row, 32768, 0) for model in ("glm-5.3", "glm-5.1", "deepseek-v3.2") for row in (576, 656, 1152)]
    rows += [("glm-5.3", 576, 8192, 0), ("glm-5.3", 656, 8192, 0)]
    rows += [("glm-5.3", row, 32768, 3) for row in (576, 656, 1152)]
    rows += [("glm-5.3", 576, 8192, 3), ("glm-5.3", 656, 8192, 3), ("deepseek-v3.2", 656, 8192, 1)]
    return [
        _case(
            f"table-{model}-{row}-{num_tokens}-{num_speculative}",
            KNOWN[model],
            gpu=ROWS[row][0],
            kv_cache_dtype=ROWS[row][1],
            max_num_batched_tokens=num_tokens,
            num_speculative_tokens=num_speculative,
        )
        for model, row, num_tokens, num_speculative in rows
    ]


def _edges() -> list[Case]:
    """Both sides of each border: host pool, hot size, block size, GPU memory, fitted context."""
    found = []
    for name, config, tp, row, context in (
        ("shared", GLM_5_3, 8, 656, 131072),
        ("private", GLM_5_3, 1, 656, 131072),
        ("odd-context", GLM_5_1, 4, 576, 100_001),
        ("bf16", DEEPSEEK_V3_2, 8, 1152, 65_536),
        ("nvfp4", GLM_5_3, 2, 352, 1_000_000),
    ):
        blocks = _min_host_blocks(context)
        for what, num_blocks in (("one-less", blocks - 1), ("minimum", blocks), ("one", 1), ("zero", 0.5)):
            pool = num_blocks * _host_stride(config, row, tp=tp) / GIB
            placed = {"tensor_parallel_size": tp, "gpu": ROWS[row][0], "kv_cache_dtype": ROWS[row][1], "max_model_len": context}
            found.append(_case(f"pool-{name}-{what}", config, host_pool_gib=pool, gpu_kv_bytes=60 * GIB, **placed))
    for num_speculative in (0, 2, 3):
        rows_needed = (1 + num_speculative) * 2048
        for size in (rows_needed - 1, rows_needed, rows_needed + 1, 32_767, 32_768, 32_769):
            name = f"hot-{num_speculative}-{size}"
            found.append(_case(name, GLM_5_3, num_speculative_tokens=num_speculative, device_buffer_size=size))
    found += [_case(f"hot-invalid-{size}", GLM_5_3, device_buffer_size=size) for size in (0, -1)]
    found += [_case(f"pool-invalid-{pool}", GLM_5_3, host_pool_gib=pool) for pool in (0, -5)]
    for size in (1, 16, 32, 48, 64, 96, 128, 256, 1024):
        found += [_case(f"block-{gpu}-{size}", GLM_5_3, gpu=gpu, block_size=size) for gpu in ("H200", "B200", "RTX_PRO_6000")]
    for megabytes in (1, 300, 900, 1800, 2500, 4300):
        found.append(_case(f"memory-{megabytes}", GLM_5_3, gpu_kv_bytes=megabytes * 2**20, max_num_batched_tokens=8192))
        fitted = {"gpu_kv_bytes": megabytes * 2**20, "max_model_len": -1, "max_num_batched_tokens": 8192, "host_pool_gib": 60}
        found.append(_case(f"fitted-{megabytes}", GLM_5_3, **fitted))
        found.append(_case(f"fitted-plain-{megabytes}", GLM_5_3, hisparse=False, **fitted))
    found += [_case(f"argument-{words[0].lstrip('-')}", GLM_5_3, extra_args=words) for words in REFUSED_ARGUMENTS]
    return found


def _random() -> list[Case]:
    chance = random.Random(SEED)  # noqa: S311  repeatable, not secret
    return [_random_case(number, chance=chance) for number in range(NUM_RANDOM)]


def _random_case(number: int, *, chance: random.Random) -> Case:
    name = chance.choice(list(KNOWN))
    config = KNOWN[name] if chance.random() < 0.4 else varied(KNOWN[name], chance=chance)
    gpu = _weighted(chance, {"H200": 5, "B200": 4, "RTX_PRO_6000": 1})
    tp = _weighted(chance, {1: 3, 2: 1, 4: 2, 8: 6})
    num_speculative = _weighted(chance, {0: 6, 1: 2, 2: 1, 3: 3, 4: 1, 5: 1})
    has_hisparse = chance.random() < 0.92
    context = _context(config, chance=chance)
    row = 656 if gpu != "B200" else 576
    return _case(
        f"random-{number:03}",
        config,
        gpu=gpu,
        kv_cache_dtype=_weighted(chance, DTYPES_OF_GPU[gpu]),
        block_size=_weighted(chance, {None: 12, 64: 3, 128: 1, 256: 1, 32: 0.5}),
        tensor_parallel_size=tp,
        data_parallel_size=chance.choice([1, 1, 1, 8 // tp, 8 // tp]),
        num_speculative_tokens=num_speculative,
        max_model_len=context,
        max_num_batched_tokens=_weighted(chance, {None: 1, 2048: 2, 4096: 2, 5000: 1, 8192: 4, 16384: 2, 32768: 3, 131072: 1}),
        max_num_seqs=_weighted(chance, {None: 2, 1: 1, 16: 1, 64: 2, 256: 4, 1024: 1}),
        host_pool_gib=_host_pool_gib(config, row, tp=tp, context=context, chance=chance),
        device_buffer_size=_device_buffer_size(config, num_speculative, chance=chance) if has_hisparse else None,
        async_scheduling=_weighted(chance, {None: 3, True: 1, False: 1}),
        gpu_kv_bytes=_gpu_kv_bytes(chance),
        hisparse=has_hisparse,
        offload=chance.random() < 0.12,
        extra_args=chance.choice(OTHER_ARGUMENTS) if chance.random() < 0.1 else [],
    )


def _context(config: Config, *, chance: random.Random) -> int:
    """Powers of two, odd lengths, sometimes -1 (fit to the memory), seldom more than the model has positions."""
    longest = int(config["max_position_embeddings"])
    kind = chance.random()
    if kind < 0.08:
        return -1
    if kind < 0.095:
        return longest + 1
    if kind < 0.55:
        return min(1 << chance.randint(10, 20), longest)
    return min(chance.randint(1000, 1_048_576), longest)


def _host_pool_gib(config: Config, row: int, *, tp: int, context: int, chance: random.Random) -> float:
    """Mostly plenty; else around the least that the context needs, were rows of `row` bytes."""
    kind = chance.random()
    if kind < 0.75:
        return float(chance.choice([96, 160, 384, 500.5, 1024, 2000]))
    if kind < 0.765:
        return 0.0005
    least = _min_host_blocks(abs(context)) * _host_stride(config, row, tp=tp) / GIB
    return least * chance.choice([0.3, 0.97, 1.0, 1.01, 1.5, 2.0, 3.0])


def _device_buffer_size(config: Config, num_speculative: int, *, chance: random.Random) -> int | None:
    needed = (1 + num_speculative) * int(config["index_topk"])
    kind = chance.random()
    if kind < 0.65:
        return None
    if kind < 0.8:
        return needed + PAGE_TOKENS * chance.randint(0, 60)
    if kind < 0.95:
        return needed + chance.randint(1, 5000)
    return chance.choice([needed - 1, needed // 2, 32768, 40000])


def _gpu_kv_bytes(chance: random.Random) -> int:
    """From what holds nothing to more than a GPU has; mostly what is left beside the weights."""
    if chance.random() < 0.78:
        return int(chance.uniform(8, 90) * GIB)
    return int(2 ** chance.uniform(-2, 4) * GIB)


def _min_host_blocks(context: int) -> int:
    """One request of `context` tokens, the null block, and the tail that copy on write needs."""
    return -(-context // PAGE_TOKENS) + 2


def _host_stride(config: Config, row: int, *, tp: int) -> int:
    stride = int(config["num_hidden_layers"]) * PAGE_TOKENS * row
    return stride if tp == 1 else -(-stride // 4096) * 4096


def _weighted(chance: random.Random, weights: dict[Any, float]) -> Any:
    return chance.choices(list(weights), weights=list(weights.values()))[0]
