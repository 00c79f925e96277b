"""config.json becomes sizes: by hand for the tiny model and for one of DeepSeek-V3.2's shape."""

import pytest

from hisparse_runtime.geometry import ModelConfigError, read_geometry

TINY = {
    "num_hidden_layers": 4,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "index_head_dim": 16,
    "index_topk": 64,
    "max_position_embeddings": 8192,
}


def test_sizes_of_the_tiny_model() -> None:
    geometry = read_geometry(TINY)
    # (32 + 16) floats of 4 bytes in each of 4 layers, 16 tokens to a page
    assert (geometry.row_bytes, geometry.host_page_bytes) == (192, 4 * 16 * 192)
    assert (geometry.indexer_row_bytes, geometry.indexer_page_bytes) == (64, 4 * 16 * 64)
    assert geometry.device_block_bytes == 12 * 1024


def test_sizes_of_a_model_of_the_shape_of_deepseek_v3_2() -> None:
    config = {
        "num_hidden_layers": 61,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "index_head_dim": 128,
        "index_topk": 2048,
        "max_position_embeddings": 163840,
    }
    geometry = read_geometry(config, page_tokens=64)
    assert geometry.row_bytes == 2304
    assert geometry.host_page_bytes == 61 * 64 * 2304
    assert geometry.indexer_page_bytes == 61 * 64 * 512


def test_the_larger_page_decides_the_device_block() -> None:
    geometry = read_geometry({**TINY, "index_head_dim": 128})
    assert geometry.device_block_bytes == geometry.indexer_page_bytes == 4 * 16 * 512


def test_fields_that_memory_does_not_depend_on_are_ignored() -> None:
    assert read_geometry({**TINY, "hidden_size": "whatever", "architectures": []}) == read_geometry(TINY)


@pytest.mark.parametrize("field", sorted(TINY))
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(ModelConfigError, match=f"config.json has no '{field}'"):
        read_geometry({key: value for key, value in TINY.items() if key != field})


@pytest.mark.parametrize("value", [0, -4, 4.0, "4", None, True, [4]])
def test_a_value_that_is_no_positive_whole_number_is_shown(value: object) -> None:
    with pytest.raises(ModelConfigError, match="num_hidden_layers must be a positive whole number, got "):
        read_geometry({**TINY, "num_hidden_layers": value})


def test_layers_that_share_an_indexer_are_refused() -> None:
    assert read_geometry({**TINY, "index_topk_freq": 1}) == read_geometry(TINY)
    with pytest.raises(ModelConfigError, match="index_topk_freq is 4"):
        read_geometry({**TINY, "index_topk_freq": 4})
