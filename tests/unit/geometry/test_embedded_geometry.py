"""config.json becomes the sizes of the embedded engine, by hand for a tiny model."""

import pytest

from hisparse_runtime.geometry import ModelConfigError, embedded_geometry

TINY = {
    "num_hidden_layers": 4,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "index_head_dim": 16,
    "index_topk": 64,
    "max_position_embeddings": 8192,
}


def test_sizes_of_the_tiny_model() -> None:
    geometry = embedded_geometry(TINY)
    # (32 + 16) floats of 4 bytes in each of 4 layers, 16 tokens to a page
    assert (geometry.row_bytes, geometry.host_page_bytes) == (192, 4 * 16 * 192)
    assert geometry.indexer_page_bytes == 4 * 16 * 64
    # One layer's page is 3 KiB and two are more than the indexer's 4 KiB, so each layer is a group of its own.
    assert geometry.layers_per_group == (1, 1, 1, 1)
    assert geometry.device_block_bytes == 6 * 1024


def test_the_larger_page_decides_the_device_block_in_whole_layer_pages() -> None:
    geometry = embedded_geometry({**TINY, "index_head_dim": 128})
    assert geometry.indexer_page_bytes == 4 * 16 * 512
    assert geometry.layers_per_group == (4,)
    assert geometry.device_block_bytes == 11 * 16 * 192  # 33,792: the next multiple above 32,768


def test_fields_that_memory_does_not_depend_on_are_ignored() -> None:
    assert embedded_geometry({**TINY, "hidden_size": "whatever", "architectures": []}) == embedded_geometry(TINY)


@pytest.mark.parametrize("field", sorted(TINY))
def test_a_missing_field_is_named(field: str) -> None:
    without = {key: value for key, value in TINY.items() if key != field}
    for config in (without, {**without, field: None}):
        with pytest.raises(ModelConfigError, match=f"config.json has no '{field}'"):
            embedded_geometry(config)


@pytest.mark.parametrize("value", [0, -4, 4.0, "4", True, [4]])
def test_a_value_that_is_no_positive_whole_number_is_shown(value: object) -> None:
    with pytest.raises(ModelConfigError, match="num_hidden_layers must be a whole number from 1 to 1,000, got "):
        embedded_geometry({**TINY, "num_hidden_layers": value})


def test_layers_that_share_an_indexer_are_refused() -> None:
    assert embedded_geometry({**TINY, "index_topk_freq": 1}) == embedded_geometry(TINY)
    with pytest.raises(ModelConfigError, match="index_topk_freq is 4"):
        embedded_geometry({**TINY, "index_topk_freq": 4})
