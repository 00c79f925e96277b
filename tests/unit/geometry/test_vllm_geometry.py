"""config.json of vLLM's models becomes layers, groups and blocks; what vLLM refuses is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.geometry import (
    VLLM_VERSIONS,
    CacheFormatError,
    ModelConfigError,
    ModelGeometry,
    UnknownVersionError,
    complete_config,
    lay_out,
    preset_names,
    read_model,
    vllm_cache_format,
    vllm_version,
)
from hisparse_runtime.geometry.index_sharing import index_units, indexer_owners

GLM_5_3, _ = complete_config("GLM-5.3", {})


def geometry(
    config: dict[str, Any], *, dtype: str = "fp8", sm: int = 9, with_mtp: bool = False, version: str = "0.33"
) -> ModelGeometry:
    model = read_model(config)
    cache_format = vllm_cache_format(model, kv_cache_dtype=dtype, capability=(sm, 0), version=VLLM_VERSIONS[version])
    return lay_out(model, cache_format, with_mtp=with_mtp)


def test_every_fourth_layer_of_glm_5_3_runs_an_indexer() -> None:
    owners = indexer_owners(GLM_5_3, num_layers=78)
    assert [layer for layer, owns in enumerate(owners) if owns] == [0, 1, 2, *range(6, 75, 4)]
    assert index_units(owners) == (1, 1, *(4,) * 19)


def test_a_pattern_wins_over_frequency_and_layers_past_its_end_lead() -> None:
    owners = indexer_owners({**GLM_5_3, "index_topk_pattern": "FSSF"}, num_layers=6)
    assert owners == (True, False, False, True, True, True)


def test_the_first_layer_opens_a_unit_even_when_it_follows() -> None:
    assert index_units((False, False, True, False)) == (2, 2)


def test_without_index_sharing_every_layer_leads() -> None:
    assert all(indexer_owners({}, num_layers=61))


@pytest.mark.parametrize(
    ("dtype", "sm", "row_bytes", "block_bytes"),
    [("fp8", 9, 656, 209_920), ("fp8", 10, 576, 184_320), ("bfloat16", 9, 1152, 294_912), ("auto", 12, 656, 209_920)],
)
def test_rows_and_blocks_follow_from_dtype_and_gpu(dtype: str, sm: int, row_bytes: int, block_bytes: int) -> None:
    found = geometry(GLM_5_3, dtype=dtype, sm=sm)
    assert (found.row_bytes, found.device_block_bytes) == (row_bytes, block_bytes)
    assert found.indexer_page_bytes == 21 * 64 * 132


def test_auto_is_fp8_for_glm_on_b200_and_bfloat16_for_deepseek() -> None:
    assert geometry(GLM_5_3, dtype="auto", sm=10).row_bytes == 576
    assert geometry(complete_config("DeepSeek-V3.2", {})[0], dtype="auto", sm=10).row_bytes == 1152
    assert geometry(GLM_5_3, dtype="auto", sm=10, version="0.31").row_bytes == 1152


def test_plain_fp8_came_to_hopper_with_0_32() -> None:
    assert geometry(GLM_5_3, dtype="fp8_e4m3").row_bytes == 576
    with pytest.raises(CacheFormatError, match=r"vLLM 0\.31 has no sparse attention backend for it at compute capability 9\.0"):
        geometry(GLM_5_3, dtype="fp8_e4m3", version="0.31")


def test_the_mtp_layer_costs_a_fifth_of_every_block_at_576_bytes_and_a_group_at_656() -> None:
    plain, drafting = geometry(GLM_5_3, sm=10), geometry(GLM_5_3, sm=10, with_mtp=True)
    assert (plain.device_block_bytes, drafting.device_block_bytes) == (184_320, 221_184)
    assert drafting.layers_per_group == (2, *(4,) * 18, 5)
    assert geometry(GLM_5_3, with_mtp=True).num_groups == 21


def test_k_pool_models_pick_wider_and_key_seldomer() -> None:
    config = {**GLM_5_3, "index_kpool": 4}
    assert read_model(config).topk_buffer_rows == 2176
    assert geometry(config).indexer_page_bytes == 21 * 16 * 132


@pytest.mark.parametrize("name", [name for name in preset_names() if name != "glm-5.3-flash"])
def test_a_preset_is_a_whole_config_and_gives_way_to_what_is_given(name: str) -> None:
    config, filled = complete_config(f"some-org/{name.upper()}", {})
    assert geometry(config).num_layers in {61, 78}
    assert set(filled) == set(config)
    config, filled = complete_config(name, {"num_hidden_layers": 5})
    assert config["num_hidden_layers"] == 5
    assert "num_hidden_layers" not in filled


def test_how_weights_are_stored_shows_in_a_models_name() -> None:
    stored = {
        suffix: complete_config(f"zai-org/GLM-5.3{suffix}", {})[0]["quantization_config"]
        for suffix in ("", "-FP8", "-BF16", "-NVFP4")
    }
    assert stored[""] == stored["-FP8"] == {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert stored["-BF16"] is None
    assert stored["-NVFP4"]["quant_algo"] == "NVFP4"


def test_a_config_without_a_preset_is_taken_as_it_is() -> None:
    assert complete_config("my/model", {"index_topk": 64}) == ({"index_topk": 64}, ())
    with pytest.raises(ModelConfigError, match=r"'my/model' has no preset \(glm-5, .*\): give its config\.json"):
        complete_config("my/model", {})


def test_models_that_vllm_refuses_are_refused() -> None:
    with pytest.raises(ModelConfigError, match="HiSparse is only supported for DSA models"):
        read_model({key: value for key, value in GLM_5_3.items() if key != "index_topk"})
    flash, _ = complete_config("zai-org/GLM-5.3-Flash", {})
    with pytest.raises(ModelConfigError, match="in text_config, where vLLM does not look: HiSparse is only supported for DSA"):
        read_model(flash)
    with pytest.raises(ModelConfigError, match=r"up to 0\.33, vLLM cannot lay out their caches with HiSparse"):
        read_model(flash["text_config"])
    with pytest.raises(ModelConfigError, match="vLLM does not support DeepSeek V4 with HiSparse"):
        read_model({**GLM_5_3, "model_type": "deepseek_v4"})
    with pytest.raises(ModelConfigError, match="leaves no layer with an indexer"):
        geometry({**GLM_5_3, "index_topk_pattern": "S" * 78})
    with pytest.raises(ModelConfigError, match="index_topk_pattern must be a letter per layer"):
        read_model({**GLM_5_3, "index_topk_pattern": 4})


def test_versions_are_read_as_people_write_them() -> None:
    assert vllm_version("v0.33.1") is vllm_version("0.33") is VLLM_VERSIONS["0.33"]
    for text in ("0.29", "1.0", "latest", ""):
        with pytest.raises(UnknownVersionError, match=r"sizes are known for 0\.30, 0\.31, 0\.32, 0\.33"):
            vllm_version(text)


@given(pattern=st.text("FS", min_size=1, max_size=96).map(lambda text: "F" + text), dtype=st.sampled_from(["fp8", "auto"]))
def test_groups_hold_whole_units_and_no_block_is_smaller_than_its_use(pattern: str, dtype: str) -> None:
    found = geometry({**GLM_5_3, "num_hidden_layers": len(pattern), "index_topk_pattern": pattern}, dtype=dtype)
    page_bytes = found.cache_format.page_bytes
    assert sum(found.layers_per_group) == len(pattern) == found.num_layers
    borders = {sum(found.layers_per_group[:number]) for number in range(found.num_groups)}
    assert all(pattern[layer] == "F" for layer in borders)
    assert found.device_block_bytes >= max(max(found.layers_per_group) * page_bytes, found.indexer_page_bytes)
    assert found.device_block_bytes % page_bytes == 0
