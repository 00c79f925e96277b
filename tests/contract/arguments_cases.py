"""`vllm serve` command lines as people write them, right and wrong: one for every rule, spelling and trap. Pure."""

import json
from typing import Any

from tests.contract.arguments_cases_sizes import offloading_cases, size_cases
from tests.contract.arguments_lines import (
    BASE,
    GIB,
    MODEL,
    MTP,
    NIXL,
    NO_POOL,
    ON,
    PIPELINE,
    PUBLISHED,
    SMALL,
    Case,
    attention,
    case,
    connector,
    hisparse,
    multi,
    offloading,
    transfer,
    without,
)


def written_cases(version: str) -> list[Case]:
    """Ids are unique and stable. Some models and methods cannot be tried with every release on a CPU."""
    return [
        *(_of_newer_releases() if version in ("0.32", "0.33") else _of_older_releases()),
        case("published", base=PUBLISHED),
        *_accepted(),
        *_pools(),
        *_connectors(),
        *_attention(),
        *_shapes(),
        *_features(),
        *_models(),
        *size_cases(),
        *_spelling(),
        *offloading_cases(),
    ]


def _of_newer_releases() -> list[Case]:
    linear = ("--additional-config", '{"kda_prefill_backend": "triton"}')  # whose compiled kernel is not there
    tower = ("-tp", "8", *linear)
    return [
        case("linear-attention", *ON, base=tower, model="glm-5.3-flash-text"),
        case("linear-attention-vision", *transfer(multi(hisparse(), offloading())), base=tower, model="glm-5.3-flash"),
    ]


def _of_older_releases() -> list[Case]:
    ngram = '{"method":"ngram","num_speculative_tokens":2,"prompt_lookup_max":2}'
    return [case("speculation-ngram", *ON, "--speculative-config", ngram)]


def _accepted() -> list[Case]:
    pool = ("--kv-transfer-config.kv_connector_extra_config.host_pool_gib", "384")
    dotted = ("--kv-transfer-config.kv_connector=HiSparseConnector", "--kv-transfer-config.kv_role=kv_both")
    return [
        case("hisparse", *ON),
        case("with-offloading", *transfer(multi(hisparse(), offloading()))),
        case("with-nixl", *transfer(multi(hisparse(300), NIXL))),
        case("three-connectors", *transfer(multi(hisparse(300), NIXL, offloading()))),
        case("nixl-consumer", *transfer(multi(hisparse(), NIXL | {"kv_role": "kv_consumer"}))),
        case("nixl-pull", *transfer(multi(hisparse(), connector("NixlPullConnector")))),
        case("store", *transfer(multi(hisparse(), connector("MooncakeStoreConnector")))),
        case("prefill", *transfer(NIXL)),
        case("prefill-producer", *transfer(NIXL | {"kv_role": "kv_producer"})),
        case("baseline", *transfer(offloading(512 * GIB))),
        case("plain"),
        case("mtp", *transfer(multi(hisparse(), offloading())), *MTP),
        case("fitted", *ON, base=("-tp", "8", "--max-model-len", "auto")),
        case("kv-bytes", *ON, "--kv-cache-memory-bytes", "17G", gpu_kv_bytes=GIB),
        case("dotted", *dotted, *pool),
        case("dotted-equals", *dotted, "=".join(pool)),
        case("dotted-underscores", *(word.replace("--kv-transfer", "--kv_transfer") for word in dotted), *pool),
        case("underscores", ON[0].replace("-", "_").replace("__", "--"), ON[1]),
        case("equals", "=".join(ON)),
        case("abbreviated", "--kv-transfer", ON[1]),
        case("alias-dotted", *ON, "-ac.hisparse_config.device_buffer_size=4096"),
        case("alias-dotted-suffix", *ON, "-ac.hisparse_config.device_buffer_size=4K"),
        case("abbreviated-dotted", *ON, "--attention-c.hisparse_config.device_buffer_size=4096"),
        case("eager", *ON, "--enforce-eager"),
        case("one-step", *ON, "--no-async-scheduling"),
        case("first-offloading", *transfer(multi(offloading(), hisparse()))),
        case("load-policy", *transfer(hisparse() | {"kv_load_failure_policy": "recompute"})),
        case("optimization-level", *ON, "-O3"),
        case("private-pools", *ON, "--distributed-executor-backend", "uni"),
        case("more-options", *ON, "--enable-lora", "--no-enable-prefix-caching", "--max-num-seq", "64"),
    ]


def _pools() -> list[Case]:
    bare = json.dumps(hisparse("BARE")).replace('"BARE"', "{}")
    return [
        case("pool-missing", *transfer(NO_POOL)),
        case("pool-null", *transfer(hisparse(None))),
        case("pool-zero", *transfer(hisparse(0))),
        case("pool-negative", *transfer(hisparse(-5.5))),
        case("pool-beyond-bytes", *transfer(hisparse(1e308))),
        case("pool-beyond-numbers", *transfer(hisparse(10**400))),
        case("pool-word", *transfer(hisparse("lots"))),
        case("pool-digits", *transfer(hisparse("384"))),
        case("pool-quantity", *transfer(hisparse("384GiB"))),
        case("pool-kubernetes-quantity", *transfer(hisparse("384Gi"))),
        case("pool-list", *transfer(hisparse([384]))),
        case("pool-not-a-number", "--kv-transfer-config", bare.replace("{}", "NaN")),
        case("pool-bare-suffix", "--kv-transfer-config", bare.replace("{}", "4G")),
        case("pool-bare-quantity", "--kv-transfer-config", bare.replace("{}", "4Gi")),
        case("pool-at-the-top", *transfer(NO_POOL | {"host_pool_gib": 384})),
        case("pool-of-two", *transfer(multi(hisparse(), hisparse()))),
        case("pool-no-connector", *attention()),
        case("pool-only-offloading", *transfer(offloading()), *attention()),
        case("pool-only-nixl", *transfer(NIXL), *attention()),
        case("pool-dotted-quantity", *_dotted("384GiB")),
        case("old-dialect", *attention(host_pool_gib=384)),
        case("old-dialect-buffer", *transfer(offloading()), *attention(host_pool_gib=384, device_buffer_size=4096)),
        case("old-dialect-and-new", *ON, *attention(host_pool_gib=384)),
        case("old-dialect-multi", *transfer(multi(NIXL, offloading())), *attention(host_pool_gib=300)),
        case("old-dialect-dotted", *transfer(offloading()), "-ac.hisparse_config.host_pool_gib=384"),
        case("offloading-size", *ON, "--kv-offloading-size", "128"),
        case("offloading-size-multi", *transfer(multi(hisparse(), offloading())), "--kv-offloading-size", "128"),
        case("offloading-size-alone", "--kv-offloading-size", "128"),
        case("offloading-size-config", *attention(), "--kv-offloading-size", "128"),
    ]


def _dotted(pool: str) -> tuple[str, ...]:
    return (
        "--kv-transfer-config.kv_connector=HiSparseConnector",
        "--kv-transfer-config.kv_role=kv_both",
        f"--kv-transfer-config.kv_connector_extra_config.host_pool_gib={pool}",
    )


def _connectors() -> list[Case]:
    example = connector("ExampleConnector", shared_storage_path="unused")
    moved = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    return [
        case("role-missing", *transfer(without(hisparse(), "kv_role"))),
        case("role-missing-multi", *transfer(without(multi(hisparse()), "kv_role"))),
        case("role-missing-child", *transfer(multi(without(hisparse(), "kv_role")))),
        case("role-missing-second", *transfer(multi(hisparse(), without(offloading(), "kv_role")))),
        case("role-unknown", *transfer(hisparse() | {"kv_role": "both"})),
        case("role-unknown-child", *transfer(multi(hisparse() | {"kv_role": "both"}))),
        case("nested", *transfer(multi(multi(hisparse())))),
        case("nested-beside-nixl", *transfer(multi(NIXL, multi(hisparse())))),
        case("nested-other", *transfer(multi(hisparse(), multi(NIXL)))),
        case("nested-offloading", *transfer(multi(multi(hisparse(), offloading())))),
        case("connector-unknown", *transfer(connector("NoSuchConnector"))),
        case("connector-unknown-child", *transfer(multi(hisparse(), connector("NoSuchConnector")))),
        case("connector-misspelled", *transfer(hisparse() | {"kv_connector": "HisparseConnector"})),
        case("connector-misspelled-child", *transfer(multi(hisparse(), offloading() | {"kv_connector": "OffloadConnector"}))),
        case("connector-nameless", *transfer(without(hisparse(), "kv_connector"))),
        case("connector-nameless-child", *transfer(multi(hisparse(), {"kv_role": "kv_both"}))),
        case("connector-text-child", *transfer(multi(hisparse(), "NixlConnector"))),
        case("one-cache-group", *transfer(multi(hisparse(), example))),
        case("one-cache-group-top", *transfer(example), *attention()),
        case("one-cache-group-lmcache", *transfer(multi(hisparse(), connector("LMCacheConnectorV1")))),
        case("one-cache-group-flexkv", *transfer(multi(hisparse(), connector("FlexKVConnectorV1")))),
        case("one-cache-group-plain", *transfer(example)),
        case("multi-empty", *transfer(multi())),
        case("multi-empty-hisparse", *transfer(multi()), *attention()),
        case("multi-without-list", *transfer(without(multi(), "kv_connector_extra_config"))),
        case("multi-without-list-hisparse", *transfer(without(multi(), "kv_connector_extra_config")), *attention()),
        case("transfer-unknown-key", *transfer(hisparse() | {"foo": 1})),
        case("transfer-misspelled-key", *transfer({"kv_conector": "HiSparseConnector", "kv_role": "kv_both"})),
        case("transfer-unknown-key-child", *transfer(multi(hisparse() | {"foo": 1}))),
        case("transfer-no-json", "--kv-transfer-config", "{kv_connector:HiSparseConnector}"),
        case("transfer-python", "--kv-transfer-config", str(hisparse())),
        case("transfer-list", "--kv-transfer-config", "[1]"),
        case("transfer-nothing", "--kv-transfer-config", ""),
        case("transfer-none", "--kv-transfer-config", "None"),
        case("transfer-empty", "--kv-transfer-config", "{}"),
        case("transfer-twice", *ON, *transfer(offloading())),
        case("transfer-dotted-over-json", *ON, "--kv-transfer-config.kv_role=kv_both"),
        case("transfer-dotted-list", *_dotted("384"), "--kv-transfer-config.kv_connector_extra_config.connectors+", "a,b"),
        case("transfer-dotted-children", *_dotted_multi(), "--kv-transfer-config.kv_connector_extra_config.connectors+", "a,b"),
        case("load-policy-unknown", *transfer(hisparse() | {"kv_load_failure_policy": "retry"})),
        case("expandable-segments", *ON, environment=moved),
        case("expandable-segments-plain", environment=moved),
        case("expandable-segments-new-name", *ON, environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        case("nixl-context-parallel", *transfer(multi(hisparse(), NIXL)), "-pcp", "2", base=PIPELINE),
    ]


def _dotted_multi() -> tuple[str, ...]:
    return ("--kv-transfer-config.kv_connector=MultiConnector", "--kv-transfer-config.kv_role=kv_both")


def _attention() -> list[Case]:
    return [
        case("attention-null", "--attention-config", '{"hisparse_config":null}'),
        case("attention-unknown-key", *ON, *attention(nope=1)),
        case("attention-dashes", *ON, "-ac.hisparse-config.device_buffer_size=4096"),
        case("attention-python", "--attention-config", "{'hisparse_config':{}}", *ON),
        case(
            "attention-two-spellings", *ON, "-ac.hisparse_config.device_buffer_size=4096", "--attention-config.hisparse_config={}"
        ),
        *(
            case(f"buffer-{value}", *ON, *attention(device_buffer_size=value))
            for value in (0, -1, 1024, 2047, 2048, 4096.0, 4096.5, 4100, 32768, 32769, "4096", "many", None, True)
        ),
        case("buffer-bare-suffix", *ON, "--attention-config", '{"hisparse_config":{"device_buffer_size":4K}}'),
        case("buffer-below-mtp", *ON, *attention(device_buffer_size=4096), *MTP),
        *(case(f"mirror-{value}", *ON, *attention(eager_host_mirror=value)) for value in (False, 0, "no", "maybe", 2)),
    ]


def _shapes() -> list[Case]:
    """JSON of another shape than vLLM's."""
    child_extra = hisparse() | {"kv_connector_extra_config": "384"}
    return [
        case("shape-hisparse-config-text", *ON, "--attention-config", '{"hisparse_config":"on"}'),
        case("shape-hisparse-config-true", *ON, "-ac.hisparse_config=true"),
        case("shape-extra-text", *transfer(child_extra)),
        case("shape-extra-null", *transfer(NIXL | {"kv_connector_extra_config": None})),
        case("shape-extra-text-child", *transfer(multi(NIXL, child_extra))),
        case("shape-connector-number", *transfer(hisparse() | {"kv_connector": 7})),
        case("shape-connector-number-child", *transfer(multi(hisparse(), NIXL | {"kv_connector": 7}))),
        case("shape-connectors-text", *transfer(connector("MultiConnector", connectors="NixlConnector"))),
        case("shape-connectors-null", *transfer(connector("MultiConnector", connectors=None))),
        case("shape-speculation-list", *ON, "--speculative-config", "[1]"),
        case("shape-speculation-number", *ON, "--speculative-config", "3"),
        case("shape-graphs-list", *ON, "-cc", '{"cudagraph_mode":["FULL"]}'),
        case("shape-graphs-number", *ON, "-cc", '{"cudagraph_mode":7}'),
        case("shape-wrong-in-vain", "--kv-transfer-config", "{", *ON),
    ]


def _features() -> list[Case]:
    modes = ("FULL", "full", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE", "PIECEWISE", "NONE", "NOPE", "2")
    return [
        *(case(f"runner-{value}", *ON, environment={"VLLM_USE_V2_MODEL_RUNNER": value}) for value in ("0", "1", "false")),
        case("pipeline", *ON, "-pp", "2", base=PIPELINE),
        case("pipeline-long-name", *ON, "--pipeline-parallel-size=2", base=PIPELINE),
        case("decode-context", *ON, "-dcp", "2"),
        case("decode-context-uneven", *ON, "-dcp", "3"),
        case("prefill-context", *ON, "-pcp", "2", base=PIPELINE),
        *(case(f"graphs-{mode}", *ON, f"-cc.cudagraph_mode={mode}") for mode in modes),
        case("graphs-json", *ON, "--compilation-config", '{"cudagraph_mode":"FULL"}'),
        case("graphs-eager", *ON, "-cc.cudagraph_mode=FULL", "--enforce-eager"),
        case("graphs-plain", "-cc.cudagraph_mode=FULL"),
        case("partial-admission", *ON, "--no-scheduler-reserve-full-isl"),
        case("partial-admission-plain", "--no-scheduler-reserve-full-isl"),
        case("hybrid-off", *ON, "--disable-hybrid-kv-cache-manager"),
        case("hybrid-on", *ON, "--no-disable-hybrid-kv-cache-manager"),
        case("hybrid-enabled", *ON, "--enable-hybrid-kv-cache-manager"),
        case("dual-batch", *ON, "--enable-dbo"),
        case("prompts-in-one-step", *ON, "--no-enable-chunked-prefill"),
        *(case(f"layout-{name}", *ON, environment={"VLLM_KV_CACHE_LAYOUT": name}) for name in ("NHD", "LBNHC", "BLNHC", "odd")),
        case("layout-blackwell", *ON, gpu="B200", environment={"VLLM_KV_CACHE_LAYOUT": "HND"}),
        case("layout-plain", environment={"VLLM_KV_CACHE_LAYOUT": "HND"}),
        case("context-parallel-replicas", *ON, "-pcp", "2", "-dp", "2", base=("-tp", "2", *BASE[2:])),
        case("no-cuda", *ON, gpu="none"),
        case("no-cuda-config", *attention(), gpu="none"),
    ]


def _models() -> list[Case]:
    def speculation(**fields: Any) -> tuple[str, str]:
        return "--speculative-config", json.dumps(fields)

    return [
        case("not-sparse", *ON, base=SMALL, model="llama"),
        case("not-sparse-offloading", *transfer(multi(hisparse(), NIXL)), base=SMALL, model="llama"),
        case("context-too-long", *ON, base=("-tp", "8", "--max-model-len", "2M")),
        case("context-too-long-glm-5.1", *ON, base=("-tp", "8", "--max-model-len", "202753"), model="glm-5.1"),
        case("speculation-dotted", *ON, "-sc.method=mtp", "-sc.num_speculative_tokens=3"),
        case("speculation-options", *ON, "--spec-method", "mtp", "--spec-tokens", "2"),
        case("speculation-uneven", *ON, *MTP, model="two-mtp-layers"),
        case("speculation-no-layer", *ON, *MTP, model="no-mtp-layer"),
        case("speculation-layers-not-said", *ON, *MTP, model="mtp-not-said"),
        case("speculation-no-number", *ON, *speculation(method="mtp")),
        case("speculation-zero", *ON, *speculation(method="mtp", num_speculative_tokens=0)),
        case("speculation-unknown-key", *ON, *speculation(method="mtp", num_speculative_tokens=1, num_spec=3)),
        case("speculation-unknown-method", *ON, *speculation(method="mpt", num_speculative_tokens=3)),
        case("speculation-many", *ON, *speculation(method="mtp", num_speculative_tokens=20)),
        case("speculation-digits", *ON, *speculation(method="mtp", num_speculative_tokens="3")),
        case("speculation-float", *ON, *speculation(method="deepseek_mtp", num_speculative_tokens=3.0)),
        case("speculation-word", *ON, *speculation(method="mtp", num_speculative_tokens="many")),
        case("speculation-python", *ON, "--speculative-config", "{'method':'mtp','num_speculative_tokens':1}"),
        case("speculation-no-json", *ON, "--speculative-config", "mtp"),
    ]


def _spelling() -> list[Case]:
    named = ("--served-model-name", "name")
    return [
        case("option-unknown", *ON, "--nope", "1"),
        case("option-unknown-flag", *ON, "--nope"),
        case("option-unknown-dotted", *ON, "--nope.x=1"),
        case("option-misspelled", *ON, "--max-num-seqqs", "5"),
        case("option-of-a-release", *ON, "--enable-shm-tensor-arena"),
        case("option-of-an-old-release", *ON, "--enable-mamba-fine-grained-prefix-cache"),
        case("option-ambiguous", *ON, "--max-num", "5"),
        case("value-missing", *ON, "--max-num-seqs"),
        case("value-missing-many", *ON, "--served-model-name"),
        case("value-word-for-int", *ON, "--max-num-seqs", "many"),
        case("value-suffix", *ON, "--max-num-batched-tokens", "8K"),
        case("value-suffix-for-int", *ON, base=("-tp", "8K", *BASE[2:])),
        case("value-fraction", *ON, "--max-num-batched-tokens", "8.5K"),
        case("value-decimal-suffix", *ON, "--max-num-batched-tokens", "8.5k"),
        case("value-word-for-length", *ON, base=("-tp", "8", "--max-model-len", "long")),
        case("value-quantity-for-length", *ON, base=("-tp", "8", "--max-model-len", "128Ki")),
        case("value-quantity-for-bytes", *ON, "--kv-cache-memory-bytes", "18Gi"),
        case("value-percent", *ON, "--gpu-memory-utilization", "92%"),
        case("value-choice", *ON, "--kv-cache-dtype", "fp7"),
        case("value-choice-backend", *ON, "--all2all-backend", "slurm"),
        case("value-of-a-flag", *ON, "--enforce-eager=1"),
        case("value-of-a-flag-apart", *ON, "--enforce-eager", "true"),
        case("stray-word", *ON, "stray"),
        case("model-last", *named, *ON) | {"words": ["serve", *BASE, *ON, MODEL]},
        case("model-last-named") | {"words": ["serve", *named, *BASE, *ON, MODEL]},
        case("model-option") | {"words": ["serve", *BASE, *ON, "--model", MODEL]},
        case("model-option-equals") | {"words": ["serve", *BASE, *ON, f"--model={MODEL}"]},
        case("model-twice", "--model", MODEL),
        case("tools-without-parser", *ON, "--enable-auto-tool-choice"),
        case("tools", *ON, "--enable-auto-tool-choice", "--tool-call-parser", "glm47"),
        case("log-outputs", *ON, "--enable-log-outputs"),
        case("compilation-python", *ON, "-cc", "{'cudagraph_mode':'NONE'}"),
        case("compilation-unknown-key", *ON, "-cc.cudagraph_modes=NONE"),
    ]
