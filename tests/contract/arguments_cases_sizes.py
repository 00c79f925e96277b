"""Command lines about sizes: of pools, pages, rows and steps, and of the offload tier."""

import json
from typing import Any

from tests.contract.arguments_lines import (
    BASE,
    GIB,
    NO_POOL,
    ON,
    Case,
    Json,
    attention,
    case,
    connector,
    hisparse,
    multi,
    offloading,
    transfer,
)


def size_cases() -> list[Case]:
    dtypes = ("auto", "fp8", "bfloat16", "fp8_e4m3", "fp8_ds_mla", "fp8_e5m2", "nvfp4_ds_mla", "fp16")
    gpus = ("H200", "B200", "RTX_PRO_6000")
    return [
        case("size-pool-no-block", *transfer(hisparse(0.001))),
        case("size-pool-small", *transfer(hisparse(1))),
        case("size-pool-one-less", *transfer(hisparse(2049 * 3276800 / GIB))),
        case("size-pool-least", *transfer(hisparse(2050 * 3276800 / GIB))),
        case("size-gpu-small", *ON, gpu_kv_bytes=GIB // 2),
        case("size-gpu-tiny", *ON, gpu_kv_bytes=2**20),
        case("size-gpu-fitted", *ON, base=("-tp", "8", "--max-model-len", "-1", "--kv-cache-dtype", "fp8"), gpu_kv_bytes=2 * GIB),
        case("size-gpu-unfitted", *ON, base=("-tp", "8", "--max-model-len", "-1", "--kv-cache-dtype", "fp8"), gpu_kv_bytes=2**20),
        *(
            case(f"size-block-{gpu}-{size}", *ON, "--block-size", str(size), gpu=gpu)
            for gpu in gpus
            for size in (0, 1, 16, 32, 48, 64, 96, 128, 256)
        ),
        *(
            case(f"size-dtype-{gpu}-{dtype}", *ON, "--kv-cache-dtype", dtype, base=BASE[:-2], gpu=gpu, gpu_kv_bytes=60 * GIB)
            for gpu in gpus
            for dtype in dtypes
        ),
        *(
            case(f"size-fitted-{name}", *words, base=("-tp", "8", "--max-model-len", "auto", "--kv-cache-dtype", "fp8"))
            for name, words in (
                ("no-pool", transfer(NO_POOL)),
                ("zero-pool", transfer(hisparse(0))),
                ("word-pool", transfer(hisparse("lots"))),
                ("two-pools", transfer(multi(hisparse(), hisparse()))),
                ("no-connector", attention()),
                ("small-pool", transfer(hisparse(1))),
                ("buffer", (*ON, *attention(device_buffer_size=100))),
                ("large-buffer", (*ON, *attention(device_buffer_size=40000))),
            )
        ),
        case("size-override", *ON, "--num-gpu-blocks-override", "30000"),
        case("size-share-percent", *ON, "--gpu-memory-utilization", "92"),
        case("size-share-zero", *ON, "--gpu-memory-utilization", "0"),
        case("size-ranks-zero", *ON, base=("-tp", "0", *BASE[2:])),
        case("size-requests-zero", *ON, "--max-num-seqs", "0"),
        case("size-step-small", *ON, base=("-tp", "8", "--max-num-batched-tokens", "100", "--max-num-seqs", "256")),
        case("size-step-small-alone", *ON, base=("-tp", "8", "--max-model-len", "131072", "--max-num-batched-tokens", "100")),
        case("size-step-zero", *ON, base=("-tp", "8", "--max-num-batched-tokens", "0")),
    ]


def offloading_cases() -> list[Case]:
    def beside(extra: Json) -> tuple[str, str]:
        return transfer(multi(hisparse(), connector("OffloadingConnector", **extra)))

    def tiering(**extra: Any) -> tuple[str, str]:
        return transfer(multi(hisparse(), offloading(**extra)))

    size = {"cpu_bytes_to_use": 128 * GIB}
    return [
        case("offloading-default-spec", *beside(size)),
        case("offloading-no-size", *beside({"spec_name": "TieringOffloadingSpec"})),
        case("offloading-no-size-default-spec", *beside({})),
        case("offloading-no-size-alone", *transfer(connector("OffloadingConnector"))),
        case("offloading-zero", *transfer(multi(hisparse(), offloading(0)))),
        case("offloading-quantity", *transfer(multi(hisparse(), offloading("128Gi")))),
        case("offloading-digits", *transfer(multi(hisparse(), offloading("67108864")))),
        case("offloading-negative", *transfer(multi(hisparse(), offloading(-5)))),
        case("offloading-gib-for-bytes", *transfer(multi(hisparse(), offloading(128)))),
        case("offloading-bare-suffix", "--kv-transfer-config", _bare(multi(hisparse(), offloading("BARE")), "128G")),
        case("offloading-unknown-spec", *beside({"spec_name": "NoSuchSpec"} | size)),
        case("offloading-misspelled-spec", *beside({"spec_name": "TieringOffloadSpec"} | size)),
        case("offloading-threshold", *beside({"store_threshold": 2} | size)),
        case("offloading-threshold-tiering", *tiering(store_threshold=2)),
        case("offloading-two-chunk-sizes", *tiering(block_size=64, blocks_per_chunk=1)),
        case("offloading-chunk-uneven", *tiering(block_size=96)),
        case("offloading-chunk-even", *tiering(block_size=128)),
        case("offloading-chunk-zero", *tiering(blocks_per_chunk=0)),
        case("offloading-policy", *beside({"eviction_policy": "arc"} | size)),
        case("offloading-policy-unknown", *beside({"eviction_policy": "fifo"} | size)),
        case("offloading-policy-unknown-tiering", *tiering(eviction_policy="fifo")),
        case("offloading-tiers-text", *tiering(secondary_tiers="disk")),
        case("offloading-unknown-key", *tiering(cpu_byte_to_use=4)),
        case("ignored-key", *transfer(hisparse(384, device_buffer_size=4096))),
    ]


def _bare(config: Json, number: str) -> str:
    return json.dumps(config).replace('"BARE"', number)
