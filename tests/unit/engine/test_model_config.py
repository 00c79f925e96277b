import json
from pathlib import Path
from typing import Any

import pytest

from hisparse_runtime.engine.model_config import load_model_config, read_model_config
from hisparse_runtime.geometry import ModelConfigError

REQUIRED = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "index_topk",
    "index_n_heads",
    "index_head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "rope_theta",
    "rms_norm_eps",
)


@pytest.mark.parametrize("field", REQUIRED)
def test_missing_field_is_named(raw_config: dict[str, Any], field: str) -> None:
    del raw_config[field]
    with pytest.raises(ModelConfigError, match=f"config.json has no '{field}'"):
        read_model_config(raw_config)


@pytest.mark.parametrize("field", REQUIRED)
@pytest.mark.parametrize("value", [-1, "8", True])
def test_wrong_value_is_named_with_its_field(raw_config: dict[str, Any], field: str, value: object) -> None:
    with pytest.raises(ModelConfigError, match=f"{field} must be a .*number.*, got"):
        read_model_config(raw_config | {field: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qk_rope_head_dim": 7}, "qk_rope_head_dim must be even"),
        ({"index_head_dim": 4}, "index_head_dim 4 must be at least qk_rope_head_dim 8"),
        ({"vocab_size": 255}, "vocab_size must be at least 256"),
        ({"eos_token_id": "x"}, "eos_token_id must be a token id or a list of them, got 'x'"),
    ],
)
def test_fields_that_do_not_fit_together(raw_config: dict[str, Any], change: dict[str, object], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        read_model_config(raw_config | change)


def test_end_of_text_may_be_one_token_several_or_none(raw_config: dict[str, Any]) -> None:
    given = [None, 5, [5, 6]]
    assert [read_model_config(raw_config | {"eos_token_id": value}).eos_token_ids for value in given] == [set(), {5}, {5, 6}]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "is not JSON"), (b"\xff\xfe\x01", "is not JSON"), (b"[1]", "holds a list"), (None, "No such file")],
)
def test_unusable_file_is_told_by_name(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelConfigError, match=message) as refusal:
        load_model_config(path)
    assert str(path) in str(refusal.value)


def test_file_is_read(tmp_path: Path, raw_config: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(raw_config))
    assert load_model_config(path).hidden_size == 32
