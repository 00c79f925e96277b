"""`hisparse plan` from flags: the numbers, worked out by hand from vLLM's own formulas, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.plan_runs import GLM, plan, plan_json

# Pages of 64 tokens; 20 groups without MTP, 21 with it; blocks of 5 pages of 64 x 656 B; 17.8 GiB / 209,920 B = 91,047 blocks.
_TOKENS = ("--max-model-len", "131072")
_MTP3 = ("--num-speculative-tokens", "3")


def test_every_field_that_programs_rely_on_is_there() -> None:
    answer = plan_json(*GLM)
    expected = {
        "geometry": {"row_bytes", "num_layers", "num_indexer_layers", "num_groups", "layers_per_group"},
        "gpu": {"bytes_per_block", "num_blocks", "kv_bytes"},
        "host": {"stride_bytes", "num_blocks", "pool_gib", "mode", "min_blocks"},
        "hot": {"rows", "blocks_per_request"},
        "offload": {"cpu_bytes_to_use", "bytes_per_token"},
        "concurrency": {"ordinary", "generic", "steady", "host", "limited_by"},
        "pod": {"shm_bytes", "memory_bytes", "startup_seconds", "termination_seconds"},
    }
    for section, fields in expected.items():
        assert fields <= answer[section].keys(), section
    assert answer["errors"] == []
    assert {type(answer[name]) for name in ("warnings", "errors", "arithmetic")} == {list}


def test_geometry_and_blocks_of_glm_on_hopper() -> None:
    answer = plan_json(*GLM, *_TOKENS)
    assert answer["geometry"] == {
        "row_bytes": 656,
        "row_format": "fp8_ds_mla",
        "page_tokens": 64,
        "num_layers": 78,
        "num_indexer_layers": 21,
        "num_groups": 20,
        "layers_per_group": [2] + [4] * 19,
    }
    assert answer["gpu"]["bytes_per_block"] == 5 * 64 * 656
    assert answer["gpu"]["num_blocks"] == 91_047
    assert answer["hot"] == {"rows": 4096, "blocks_per_request": 20 * 64, "bytes_per_request": 20 * 64 * 209_920}
    assert answer["host"]["stride_bytes"] == 3_276_800  # 78 x 64 x 656 in whole pages of 4 KiB
    assert answer["host"]["min_blocks"] == 2048 + 2
    assert answer["offload"]["bytes_per_token"] == 22_208  # 21 x 64 x 132 on each of 8 ranks, in whole pages, / 64


@pytest.mark.parametrize(
    ("more", "admitted", "steady"),
    [
        ((), 2048 + 20 * 256 + 1280, 2048 + 20 * 2 + 1280),
        (("--max-num-batched-tokens", "32768"), 2048 + 20 * 1024 + 1280, 2048 + 20 * 2 + 1280),
        (("--no-async-scheduling",), 2048 + 20 * 128 + 1280, 2048 + 20 * 2 + 1280),
        (("--device-buffer-size", "8192"), 2048 + 20 * 256 + 2560, 2048 + 20 * 2 + 2560),
        (_MTP3, 2048 + 21 * 256 + 3360, 2048 + 21 * 2 + 3360),
        ((*_MTP3, "--max-num-batched-tokens", "32768"), 2048 + 21 * 1024 + 3360, 2048 + 21 * 2 + 3360),
    ],
)
def test_steady_concurrency_is_that_of_the_start_up_log(more: tuple[str, ...], admitted: int, steady: int) -> None:
    now = plan_json(*GLM, *_TOKENS, *more)["concurrency"]
    assert now["steady"] == pytest.approx(1 + (91_047 - admitted) / steady)
    assert now["generic"] == pytest.approx(91_047 / admitted)
    assert (now["max_model_len"], now["limited_by"]) == (131_072, "gpu")


def test_ordinary_concurrency_counts_whole_blocks_of_all_layers() -> None:
    # 17.8 GiB / (64 x (78 x 656 + 21 x 132)) = 5,536 blocks
    assert plan_json(*GLM, *_TOKENS)["concurrency"]["ordinary"] == pytest.approx(5536 / 2048)


def test_a_given_host_pool_and_offload_tier_are_taken_as_they_are() -> None:
    answer = plan_json(*GLM, *_TOKENS, "--host-pool-gib", "384", "--cpu-bytes-to-use", "128Gi")
    assert answer["host"]["pool_gib"] == 384
    assert answer["host"]["num_blocks"] == 125_829
    assert answer["concurrency"]["host"] == pytest.approx(125_829 / 2048)
    assert answer["offload"]["cpu_bytes_to_use"] == 137_438_953_472
    assert answer["pod"]["shm_bytes"] >= (384 + 128) << 30


def test_node_memory_bounds_the_pod() -> None:
    answer = plan_json(*GLM, *_TOKENS, "--node-memory", "256Gi")
    assert answer["pod"]["shm_bytes"] < answer["pod"]["memory_bytes"] <= 256 << 30
    # not a block more would fit
    assert (256 << 30) - answer["pod"]["memory_bytes"] < 2 * (answer["host"]["stride_bytes"] + 64 * 22_208)


def test_without_a_bound_the_host_pool_is_what_the_gpu_side_can_use() -> None:
    answer = plan_json(*GLM, *_TOKENS)
    assert answer["host"]["pool_bytes"] == answer["host"]["usable_bytes"]
    assert answer["concurrency"]["host"] >= answer["concurrency"]["steady"]


def test_each_rank_without_tensor_parallelism_has_a_pool_of_its_own() -> None:
    answer = plan_json(*GLM, *_TOKENS, "--tensor-parallel-size", "1", "--data-parallel-size", "8", "--host-pool-gib", "40")
    assert answer["host"]["mode"] == "private"
    assert answer["host"]["stride_bytes"] == 78 * 64 * 656  # nobody else maps it
    assert answer["pod"]["num_replicas"] == 8
    assert answer["pod"]["memory_bytes"] > 8 * 40 << 30


def test_the_replicas_share_the_gpus_of_a_node_by_default() -> None:
    sizes = {
        replicas: plan_json(*GLM, "--data-parallel-size", str(replicas))["asked"]["tensor_parallel_size"]
        for replicas in (1, 2, 4, 8)
    }
    assert sizes == {1: 8, 2: 4, 4: 2, 8: 1}
    assert plan_json(*GLM, "--gpus-per-node", "4")["asked"]["tensor_parallel_size"] == 4


def test_replicas_on_several_nodes_are_planned_by_the_node_and_said_so() -> None:
    answer = plan_json(*GLM, "--tensor-parallel-size", "1", "--data-parallel-size", "16", *_TOKENS)
    assert (answer["asked"]["num_gpus"], answer["pod"]["num_replicas"]) == (16, 8)
    assert any("16 data-parallel replicas of 1 GPU take 2 nodes of 8 GPUs" in warning for warning in answer["warnings"])


def test_the_longest_context_that_fits_is_found() -> None:
    asked = plan_json(*GLM, "--max-model-len", "auto", "--host-pool-gib", "100")["asked"]
    # 32,768 blocks hold one request of 32,766 pages
    assert asked["max_model_len"] == 1_048_576
    less = plan_json(*GLM, "--max-model-len", "-1", "--host-pool-gib", "10")["asked"]
    assert less["max_model_len"] == (10 * (1 << 30) // 3_276_800 - 2) * 64


def test_without_a_context_length_the_model_says_it() -> None:
    assert plan_json(*GLM)["asked"]["max_model_len"] == 1_048_576


def test_kv_memory_is_estimated_from_gpu_and_weights() -> None:
    answer = plan_json("--model", "zai-org/GLM-5.3", "--kv-cache-dtype", "fp8", *_TOKENS)
    assert answer["gpu"]["is_estimated"]
    reserve = 15 << 30
    usable = answer["gpu"]["kv_bytes"] + answer["weights"]["gpu_bytes"] + reserve
    assert usable / (1 << 30) == pytest.approx(139.80 * 0.92, abs=0.01)
    assert answer["arithmetic"][1].startswith("GPU KV memory, estimated: 139.80 GiB of H200 x 0.92 - ")
    assert not any("estimated" in step for step in plan_json(*GLM, *_TOKENS)["arithmetic"])
    less = plan_json("--model", "zai-org/GLM-5.3", "--kv-cache-dtype", "fp8", *_TOKENS, "--gpu-memory-utilization", "0.87")
    assert answer["gpu"]["kv_bytes"] - less["gpu"]["kv_bytes"] == pytest.approx(139.80 * 0.05 * (1 << 30), abs=1e7)


@pytest.mark.parametrize(("gpu", "row_bytes"), [("H200", 656), ("B200", 576), ("B300", 576), ("NVIDIA-H200", 656)])
def test_the_gpu_decides_the_row_format(gpu: str, row_bytes: int) -> None:
    arguments = ("--model", "GLM-5.3", "--gpu", gpu, "--gpu-kv-gib", "40", "--kv-cache-dtype", "fp8", *_TOKENS)
    assert plan_json(*arguments)["geometry"]["row_bytes"] == row_bytes


def test_known_bugs_of_a_version_are_warned_of() -> None:
    warnings = plan_json(*GLM, *_TOKENS, "--vllm-version", "0.30")["warnings"]
    assert any("57457" in warning for warning in warnings)
    assert not any("vLLM 0.33:" in warning for warning in plan_json(*GLM, *_TOKENS)["warnings"])


def test_yaml_says_what_json_says() -> None:
    assert yaml.safe_load(plan(*GLM, "-o", "yaml").stdout) == plan_json(*GLM)


# ---- the model


def _config(**fields: Any) -> dict[str, Any]:
    """A small model with DeepSeek's field names: every layer has an indexer."""
    return {
        "num_hidden_layers": 4,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "index_topk": 512,
        "index_head_dim": 128,
        "max_position_embeddings": 16_384,
        **fields,
    }


def test_a_config_json_says_what_the_model_is(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(_config()))
    answers = [plan_json("--model-config", where, "--gpu-kv-gib", "1", "--kv-cache-dtype", "fp8") for where in (path, tmp_path)]
    assert answers[0] == answers[1]
    assert answers[0]["geometry"]["layers_per_group"] == [1, 1, 1, 1]  # one page of latents is larger than four of keys
    assert answers[0]["asked"]["preset_fields"] == []
    assert answers[0]["weights"] is None
    assert any("weights are not counted" in warning for warning in answers[0]["warnings"])


def test_a_preset_fills_in_what_a_config_json_leaves_out_and_the_answer_tells(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"num_hidden_layers": 42, "max_position_embeddings": 32_768}))
    answer = plan_json("--model", "GLM-5.3", "--model-config", path, "--gpu-kv-gib", "10", "--kv-cache-dtype", "fp8")
    assert answer["geometry"]["num_layers"] == 42
    assert answer["asked"]["max_model_len"] == 32_768
    assert {"index_topk", "kv_lora_rank"} <= set(answer["asked"]["preset_fields"])
    assert "num_hidden_layers" not in answer["asked"]["preset_fields"]
    table = plan("--model", "GLM-5.3", "--model-config", path, "--gpu-kv-gib", "10", "--kv-cache-dtype", "fp8").stdout
    assert "from the model's preset, not from a config.json: model_type, architectures" in table


def test_an_index_beside_the_config_gives_the_weight_bytes(tmp_path: Path) -> None:
    counted = plan_json("--model", "GLM-5.3", *_TOKENS, "--kv-cache-dtype", "fp8")["weights"]
    (tmp_path / "config.json").write_text("{}")
    index = {"metadata": {"total_size": 756_000_000_000}, "weight_map": {}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    given = plan_json("--model", "GLM-5.3", "--model-config", tmp_path, *_TOKENS, "--kv-cache-dtype", "fp8")["weights"]
    assert given["source"].startswith("safetensors index: ")
    assert given["total_bytes"] != counted["total_bytes"]


# ---- what is refused


@pytest.mark.parametrize(
    ("arguments", "reason", "message"),
    [
        (("--model", "Llama-9"), "InvalidModelConfig", "model 'Llama-9' has no preset"),
        (("--model", "GLM-5.3", "--gpu", "MI300X"), "InvalidSpec", "--gpu MI300X: released vLLM refuses HiSparse on it"),
        (("--model", "GLM-5.3", "--gpu", "A100"), "InvalidSpec", "GPU 'A100' is not known: use one of H100, H200"),
        (("--model", "GLM-5.3", "--vllm-version", "0.29"), "InvalidSpec", "sizes are known for 0.30, 0.31, 0.32, 0.33"),
        (("--model", "GLM-5.3", "--kv-cache-dtype", "fp4"), "InvalidSpec", "kv_cache_dtype 'fp4'"),
        ((*GLM, "--tensor-parallel-size", "16"), "InvalidSpec", "more GPUs than the 8 of one node"),
        ((*GLM, "--max-model-len", "2M"), "InvalidSpec", "lower --max-model-len to at most that"),
        ((*GLM, "--device-buffer-size", "1024"), "InvalidSpec", "--device-buffer-size 1,024"),
        ((*GLM, "--num-speculative-tokens", "15"), "InvalidSpec", "lower --num-speculative-tokens to 14"),
        (("--model", "GLM-5.3", "--gpu", "H100"), "InsufficientDeviceMemory", "use more or larger GPUs"),
        (
            ("--model", "GLM-5.3", "--gpu-kv-gib", "1"),
            "InsufficientDeviceMemory",
            "raise --gpu-kv-gib to at least 6.26 GiB, lower --max-model-len to",
        ),
        (
            (*GLM, "--host-pool-gib", "10"),
            "InsufficientHostMemory",
            "1,048,576 needs 16,386: raise --host-pool-gib to at least 50.0062 or lower --max-model-len to 209,536",
        ),
        ((*GLM, "--node-memory", "100Gi"), "InsufficientHostMemory", "has 100.00 GiB"),
    ],
)
def test_what_vllm_would_refuse_ends_with_2_and_the_reason(arguments: tuple[str, ...], reason: str, message: str) -> None:
    run = plan(*arguments, "-o", "json")
    assert run.exit_code == 2
    (error,) = run.json["errors"]
    assert error["reason"] == reason
    assert message in error["message"]
    table = plan(*arguments)
    assert table.exit_code == 2
    assert table.message == f"error: {reason}: {' '.join(error['message'].split())}"


def test_a_refused_plan_still_has_what_is_known() -> None:
    answer = plan(*GLM, "--host-pool-gib", "10", "-o", "json").json
    assert answer["geometry"]["row_bytes"] == 656
    assert answer["gpu"]["num_blocks"] == 91_047
    assert answer["hot"]["blocks_per_request"] == 1280
    assert answer["host"]["num_blocks"] == 3276
    assert answer["host"]["min_blocks"] == 16_386
    assert answer["host"]["tokens"] is None
    assert answer["offload"] is answer["concurrency"] is answer["pod"] is None
    too_many = plan(*GLM, "--num-speculative-tokens", "15", "-o", "json").json
    assert too_many["geometry"]["num_groups"] == 21
    assert too_many["hot"] is None


def test_on_a_gpu_that_is_not_supported_only_the_layers_are_known() -> None:
    geometry = plan("--model", "GLM-5.3", "--gpu", "MI355X", "-o", "json").json["geometry"]
    assert (geometry["num_layers"], geometry["num_indexer_layers"], geometry["row_bytes"]) == (78, 21, None)


def test_weights_that_cannot_be_counted_are_refused_unless_kv_memory_is_given(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(_config(model_type="somebody_elses")))
    run = plan("--model-config", path, "-o", "json")
    assert run.exit_code == 2
    assert run.json["geometry"]["num_layers"] == 4
    assert "with --gpu-kv-gib they are not needed" in run.json["errors"][0]["message"]
    assert plan_json("--model-config", path, "--gpu-kv-gib", "1")["errors"] == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "model '' has no preset"),
        ({"num_hidden_layers": 32, "hidden_size": 4096}, "HiSparse is only supported for DSA models"),
        ({"model_type": "deepseek_v4"}, "DeepSeek V4"),
        (_config(num_hidden_layers="four"), "num_hidden_layers must be a whole number"),
    ],
)
def test_a_model_that_vllm_refuses_is_refused_with_the_field(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    run = plan("--model-config", path, "-o", "json")
    assert run.exit_code == 2
    assert run.json["errors"][0]["reason"] == "InvalidModelConfig"
    assert message in run.json["errors"][0]["message"]
    assert run.json["geometry"] is None
