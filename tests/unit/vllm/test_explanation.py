"""What is wrong with a line, when vLLM would find out, and the line that works with the least change."""

import json
from typing import Any

import pytest

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.geometry import complete_config, vllm_version
from hisparse_runtime.vllm.explain.explanation import explain, shell_text
from hisparse_runtime.vllm.explain.findings import Stage
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from tests.unit.vllm.lines import (
    GIB,
    HISPARSE,
    NIXL,
    OFFLOADING,
    SERVE,
    codes,
    explained,
    glm,
    multi,
    transfer,
    working_transfer,
)

UNSIZED = OFFLOADING | {"kv_connector_extra_config": {}}
OLD = ("--attention-config", '{"hisparse_config":{"host_pool_gib":384}}')


def pool(size: object) -> dict[str, Any]:
    return HISPARSE | {"kv_connector_extra_config": {"host_pool_gib": size}}


def test_the_announcements_command_is_refused_at_once_and_translated() -> None:
    """The issue's case: the branch's dialect with a bare OffloadingConnector."""
    words = (*SERVE, "--port", "8000", *OLD, *transfer(OFFLOADING), "--tool-call-parser", "glm47")
    found = explain(words, glm())
    assert codes(found) == ["OldDialect"]
    assert found.rejections[0].stage is Stage.ARGPARSE
    assert found.rejections[0].says == "Unexpected keyword argument"
    assert "every release refuses it" in found.rejections[0].message
    expected = multi(HISPARSE, OFFLOADING)
    assert found.working is not None
    assert found.working[:-4] == (*SERVE, "--port", "8000")
    assert found.working[-2:] == ("--tool-call-parser", "glm47")
    assert working_transfer(found) == expected
    assert found.changes == ("moved host_pool_gib into a HiSparseConnector of --kv-transfer-config",)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (OLD, HISPARSE),
        ((*OLD, *transfer(multi(NIXL, OFFLOADING))), multi(HISPARSE, NIXL, OFFLOADING)),
        ((*OLD, *transfer(pool(96))), pool(96)),
        ((*OLD, *transfer(multi(pool(96), NIXL))), multi(pool(96), NIXL)),
        (("-ac.hisparse_config.host_pool_gib=384",), HISPARSE),
    ],
)
def test_the_old_dialect_joins_whatever_connectors_are_there(options: tuple[str, ...], expected: object) -> None:
    found = explained(*options)
    assert codes(found) == ["OldDialect"]
    assert working_transfer(found) == expected


def test_the_old_dialects_other_fields_stay() -> None:
    found = explained("--attention-config", '{"backend":"X","hisparse_config":{"host_pool_gib":384,"device_buffer_size":4096}}')
    assert found.working is not None
    rest = found.working[found.working.index("--attention-config") + 1]
    assert json.loads(rest) == {"backend": "X", "hisparse_config": {"device_buffer_size": 4096}}


@pytest.mark.parametrize("version", ["0.30", "0.31", "0.32", "0.33"])
def test_a_right_line_is_left_alone(version: str) -> None:
    found = explained(*transfer(multi(HISPARSE, OFFLOADING)), version=version)
    assert found.is_accepted
    assert found.working == found.command == (*SERVE, *transfer(multi(HISPARSE, OFFLOADING)))
    assert found.changes == ()


@pytest.mark.parametrize(
    ("options", "code", "stage", "expected"),
    [
        (transfer(pool("384GiB")), "PoolNotANumber", Stage.PLANNING, pool(384.0)),
        (transfer(pool("96Gi")), "PoolNotANumber", Stage.PLANNING, pool(96.0)),
        (transfer(pool(1)), "PoolTooSmall", Stage.PLANNING, pool(6.2562)),
        (transfer(multi(HISPARSE, HISPARSE, NIXL)), "TwoHisparseConnectors", Stage.PLANNING, multi(HISPARSE, NIXL)),
        (transfer(multi(multi(HISPARSE), NIXL)), "HiddenHisparse", Stage.WORKERS, multi(HISPARSE, NIXL)),
        (
            transfer(multi(HISPARSE, NIXL | {"kv_connector": "NixlPushConnector"})),
            "NixlPush",
            Stage.WORKERS,
            multi(HISPARSE, NIXL),
        ),
        (transfer(multi(HISPARSE, {"kv_connector": "NixlConnector"})), "MissingRole", Stage.CONFIG, multi(HISPARSE, NIXL)),
        (transfer(HISPARSE | {"kv_role": "both"}), "UnknownRole", Stage.ARGPARSE, HISPARSE),
        (transfer(HISPARSE | {"kv_connector": "HisparseConnector"}), "UnknownConnector", Stage.CONFIG, HISPARSE),
        (transfer(multi(HISPARSE, NIXL | {"kv_connector": "LMCacheConnectorV1"})), "OneCacheGroupOnly", Stage.CONFIG, HISPARSE),
        (("--kv-transfer-config", str(HISPARSE)), "InvalidJson", Stage.ARGPARSE, HISPARSE),
    ],
)
def test_connectors_are_put_right(options: tuple[str, ...], code: str, stage: Stage, expected: object) -> None:
    found = explained(*options)
    assert codes(found) == [code]
    assert found.rejections[0].stage is stage
    assert working_transfer(found) == expected


@pytest.mark.parametrize(
    ("options", "environment", "code", "working"),
    [
        (("--no-scheduler-reserve-full-isl",), (), "PartialAdmission", SERVE),
        (("-cc.cudagraph_mode=FULL", "--port", "1"), (), "FullGraphs", (*SERVE, "--port", "1")),
        (("--disable-hybrid-kv-cache-manager",), (), "HybridCacheOff", SERVE),
        (("-dcp", "2"), (), "DecodeContextParallel", SERVE),
        (("--enable-dbo",), (), "DualBatchOverlap", SERVE),
        ((), ("VLLM_USE_V2_MODEL_RUNNER=0",), "ModelRunnerV1", SERVE),
        ((), ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",), "ExpandableSegments", SERVE),
        (("--block-size", "16"), (), "BlockSize", SERVE),
        ((), ("VLLM_KV_CACHE_LAYOUT=HND",), "CacheLayout", SERVE),
        (
            ("--max-num-batched-tokens=8", "--max-num-seqs=9"),
            (),
            "FewerTokensThanRequests",
            (*SERVE, "--max-num-batched-tokens", "9", "--max-num-seqs=9"),
        ),
        (("--speculative-config", '{"method":"mtp","num_speculative_tokens":"x"}'), (), "OutOfBounds", SERVE),
        (("--attention-config", '{"hisparse_config":{"device_buffer_size":100}}'), (), "DeviceBufferTooSmall", SERVE),
        (("--enable-auto-tool-choice",), (), "MissingPartner", SERVE),
        (("--max-num-seqqs", "5"), (), "UnknownOption", (*SERVE, "--max-num-seqs", "5")),
        (("--nope", "5", "--port", "1"), (), "UnknownOption", (*SERVE, "--port", "1")),
        (("--gpu-memory-utilization", "92"), (), "OutOfBounds", (*SERVE, "--gpu-memory-utilization", "0.92")),
        (("--max-num-batched-tokens", "8Ki"), (), "InvalidValue", (*SERVE, "--max-num-batched-tokens", "8K")),
    ],
)
def test_single_mistakes_are_taken_out_and_the_rest_stays(
    options: tuple[str, ...], environment: tuple[str, ...], code: str, working: tuple[str, ...]
) -> None:
    on = transfer(HISPARSE)
    found = explain((*environment, *SERVE, *on, *options), glm())
    assert codes(found) == [code]
    assert found.working == (*SERVE, *on, *working[len(SERVE) :])
    assert len(found.changes) == 1


def test_pipeline_ranks_become_tensor_ranks() -> None:
    found = explain(("vllm", "serve", "m", "--tensor-parallel-size=4", "-pp", "2", *transfer(HISPARSE)), glm())
    assert found.working is not None
    assert found.working[3:5] == ("--tensor-parallel-size", "8")


def test_several_mistakes_are_told_in_the_order_in_which_vllm_stops() -> None:
    found = explained(*transfer(pool(0)), "-pp", "2", "--nope", "--enable-dbo")
    assert codes(found) == ["UnknownOption", "DualBatchOverlap", "PipelineParallel", "PoolNotPositive"]
    assert found.working is not None
    assert explain(found.working, glm()).is_accepted


def test_a_missing_pool_is_sized_where_the_gpu_is_known() -> None:
    found = explained("--attention-config", '{"hisparse_config":{}}', "--max-num-batched-tokens", "8192")
    assert codes(found) == ["NoHisparseConnector"]
    # 26 requests of 2,048 pages of 3,276,800 B, and the null block
    assert "running requests can fill 163 GiB" in found.rejections[0].message
    assert working_transfer(found) == pool(163.0)
    unknown = explained("--attention-config", '{"hisparse_config":{}}', kind=None)
    assert unknown.working is None
    assert "give it the GiB that one data-parallel replica may have" in unknown.rejections[0].message


def test_with_a_fitted_context_vllm_blames_the_gpu_for_a_wrong_pool() -> None:
    found = explained(*transfer(pool(0)), "--max-model-len", "auto")
    assert codes(found) == ["PoolNotPositive"]
    assert found.rejections[0].says == "Cannot auto-fit max_model_len"
    assert "vLLM blames the GPU's memory for it" in found.rejections[0].message


def test_offloading_size_becomes_a_child() -> None:
    found = explained(*transfer(HISPARSE), "--kv-offloading-size", "128")
    assert codes(found) == ["OffloadingSizeReplaces"]
    child = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cpu_bytes_to_use": 128 * GIB},
    }
    assert working_transfer(found) == multi(HISPARSE, child)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (transfer(pool("lots")), "PoolNotANumber"),
        (transfer(pool(10**400)), "PoolBeyondNumbers"),
        ((*OLD[:1], json.dumps({"hisparse_config": {"host_pool_gib": 10**400}})), "OldDialect"),
        (transfer(NIXL | {"kv_connector": "NoSuch"}), "UnknownConnector"),
        (("--max-num", "5"), "AmbiguousOption"),
        (("--max-num-seqs", "many"), "InvalidValue"),
        (("--kv-transfer-config", "{kv_connector:x}"), "InvalidJson"),
        (transfer(UNSIZED), "NoOffloadSize"),
    ],
)
def test_what_only_the_user_knows_is_not_made_up(options: tuple[str, ...], code: str) -> None:
    found = explained(*options)
    assert code in codes(found)
    assert found.working is None


@pytest.mark.parametrize(
    ("options", "pool_gib"),
    [
        (transfer(multi(HISPARSE, UNSIZED)), 384),
        ((*OLD, *transfer(UNSIZED)), 384),
        # without a pool, too, both are suggested
        (("--attention-config", '{"hisparse_config":{}}', *transfer(UNSIZED)), 163),
        # too small for one request: both become what the longest takes
        (transfer(multi(pool(0.0001), UNSIZED)), 6.2562),
    ],
)
def test_an_offload_tier_without_a_size_becomes_one_for_the_host_pools_tokens(options: tuple[str, ...], pool_gib: int) -> None:
    found = explained(*options)
    (message,) = [rejection.message for rejection in found.rejections if rejection.code == "NoOffloadSize"]
    hisparse, offloading = working_transfer(found)["kv_connector_extra_config"]["connectors"]
    assert hisparse["kv_connector_extra_config"] == {"host_pool_gib": pool_gib}
    # a page of the host pool: 656 B in 78 layers; of the tier: 132 B in the 21 with an indexer, for each of 8 ranks, in 4 KiB
    pages = pool_gib * GIB // (64 * 78 * 656)
    chunk_bytes = -(-64 * 21 * 132 * 8 // 4096) * 4096
    size_bytes = offloading["kv_connector_extra_config"]["cpu_bytes_to_use"]
    assert size_bytes == pytest.approx(pages * chunk_bytes, rel=1e-3)
    assert f"has no cpu_bytes_to_use: {human_bytes(size_bytes)} hold the indexer keys" in message


def test_without_the_gpus_kind_nothing_says_how_large_the_tier_is_to_be() -> None:
    found = explained(*transfer(multi(HISPARSE, UNSIZED)), kind=None)
    assert codes(found) == ["NoOffloadSize"]
    assert found.working is None


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.30", []), ("0.31", ["PartialAdmission"]), ("0.32", ["FullGraphs", "PartialAdmission"])],
)
def test_releases_refuse_more_and_more(version: str, expected: list[str]) -> None:
    options = (*transfer(HISPARSE), "-cc.cudagraph_mode=FULL", "--no-scheduler-reserve-full-isl")
    assert codes(explained(*options, version=version)) == expected


def test_a_model_without_an_indexer_is_served_without_hisparse() -> None:
    config = {"model_type": "llama", "max_position_embeddings": 4096}
    line = ("vllm", "serve", "m", *transfer(multi(HISPARSE, NIXL)), "--port", "1")
    found = explain(line, Knowledge(version=glm().version, config=config))
    assert codes(found) == ["NotSparse"]
    assert found.working == ("vllm", "serve", "m", "--kv-transfer-config", json.dumps(NIXL, separators=(",", ":")), "--port", "1")


def test_methods_of_the_old_model_runner_have_no_place_beside_hisparse() -> None:
    options = (*transfer(HISPARSE), "--speculative-config", '{"method":"ngram","num_speculative_tokens":2}')
    assert codes(explained(*options, version="0.31")) == ["SpeculationWithoutRunner"]
    assert codes(explained(*options, version="0.33")) == []


@pytest.mark.parametrize(
    ("version", "nested", "code"),
    [("0.31", True, "LinearAttention"), ("0.33", True, "NotSparse"), ("0.33", False, "LinearAttention")],
)
def test_models_with_linear_attention_are_served_without_hisparse(version: str, nested: bool, code: str) -> None:  # noqa: FBT001
    text = dict(complete_config("glm-5.3", {})[0], linear_attn_config={})
    config = {"text_config": text} if nested else text
    found = explain((*SERVE, *transfer(HISPARSE)), Knowledge(version=vllm_version(version), config=config))
    assert codes(found) == [code]
    assert found.working == SERVE


def test_other_gpus_than_nvidias_are_refused() -> None:
    found = explained(*transfer(HISPARSE), kind="MI300X")
    assert codes(found) == ["NotCuda"]
    assert found.rejections[0].says == "HiSparse currently requires NVIDIA CUDA"


def test_sizes_are_judged_only_where_they_are_known() -> None:
    small = (*transfer(pool(1)), "--max-model-len", "1000000")
    assert codes(explained(*small)) == ["PoolTooSmall"]
    assert codes(explained(*small, kind=None)) == []
    assert codes(explain((*SERVE, *small), Knowledge(version=glm().version))) == []


def test_kv_memory_is_taken_from_the_line_before_anything_else() -> None:
    on = transfer(HISPARSE)
    assert codes(explained(*on, kv_gib=0.5)) == ["GpuTooSmall"]
    assert codes(explained(*on, "--kv-cache-memory-bytes", "20G", kv_gib=0.5)) == []


def test_kv_memory_is_estimated_from_the_weights() -> None:
    found = explained(*transfer(HISPARSE), kv_gib=None)
    assert dict(found.summary)["KV memory of a GPU"].endswith("GiB (estimated)")


def test_a_context_that_does_not_fit_is_shortened_to_what_does() -> None:
    found = explained(*transfer(HISPARSE), "--max-num-batched-tokens", "8192", kv_gib=1.5)
    assert codes(found) == ["GpuTooSmall"]
    assert found.working is not None
    length = int(found.working[found.working.index("--max-model-len") + 1])
    assert 64 <= length < 131072
    assert f"lower --max-model-len to {length:,}" in found.rejections[0].message


def test_the_summary_is_of_the_line_that_works() -> None:
    summary = dict(explained(*OLD, *transfer(OFFLOADING), "--max-num-batched-tokens", "8192").summary)
    assert summary["HiSparse"] == "host pool 384 GiB for each replica"
    assert summary["connectors"] == "HiSparseConnector (kv_both), OffloadingConnector (kv_both)"
    assert summary["GPUs"] == "8 (tensor parallel 8)"
    assert summary["offload tier"] == "128.00 GiB"
    assert summary["host pool"] == "125,829 blocks, 8,052,992 tokens"
    assert summary["requests at once"].startswith("25.52 of 131,072 tokens a replica, limited by gpu")


def test_the_command_is_printed_for_a_shell_an_option_a_line() -> None:
    words = ("A=1", "vllm", "serve", "m", "--port", "1", "-ac", '{"a b": 1}')
    assert shell_text(words) == "A=1 vllm serve m \\\n  --port 1 \\\n  -ac '{\"a b\": 1}'"
