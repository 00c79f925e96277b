"""The checkpoint's config.json against the one that the plan was made from."""

import json
from pathlib import Path
from typing import Any

import pytest

from hisparse_runtime.geometry import complete_config
from hisparse_runtime.vllm.preflight.checks.model import check_model
from hisparse_runtime.vllm.preflight.container.model_files import FoundModel, find_model
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, Severity
from tests.unit.vllm.preflight.plans import CONFIG, facts, write

_NAME = "zai-org/GLM-5.3"
_CACHED = "models--zai-org--GLM-5.3"


def _compared(**changes: Any) -> Finding | None:
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    model = FoundModel(path=Path("/models/glm/config.json"), config=config)
    return check_model(facts(model=model), model="/models/glm", planned_config=CONFIG)


def test_fields_that_no_size_depends_on_may_differ() -> None:
    assert _compared() is None
    assert _compared(hidden_size=1, rope_theta=5, architectures=["Another"]) is None


def test_each_field_that_differs_is_named_with_both_values() -> None:
    finding = _compared(kv_lora_rank=256, num_nextn_predict_layers=None)
    assert finding is not None
    assert (finding.reason, finding.severity) == (Reason.MODEL_DIFFERS_FROM_PLAN, Severity.REFUSED)
    assert finding.message.startswith(
        "/models/glm/config.json differs from the plan: num_mtp_layers is 0, planned 1; kv_lora_rank is 256, planned 512: "
    )


def test_other_index_sharing_is_told_by_its_leaders() -> None:
    finding = _compared(index_topk_freq=None, index_skip_topk_offset=None)
    assert finding is not None
    # layers 0, 1, 2, 6, 10, ..., 74 of the plan
    assert "78 of 78 layers have an indexer, planned 21 of 78 (layer 3 is the first that differs)" in finding.message
    assert finding.severity is Severity.REFUSED


def test_a_longer_model_is_told_by_its_length() -> None:
    finding = _compared(num_hidden_layers=80)
    assert finding is not None
    assert "num_hidden_layers is 80, planned 78:" in finding.message


def test_a_longer_context_only_warns() -> None:
    finding = _compared(max_position_embeddings=202752)
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert "max_position_embeddings is 202,752, planned 1,048,576" in finding.message


def test_a_checkpoint_that_hisparse_cannot_serve_is_refused() -> None:
    finding = _compared(index_topk=None)
    assert finding is not None
    assert (finding.reason, finding.severity) == (Reason.MODEL_DIFFERS_FROM_PLAN, Severity.REFUSED)
    assert "no 'index_topk'" in finding.message


@pytest.mark.parametrize(
    ("planned", "model"), [(None, facts().model), (CONFIG, None), (complete_config("glm-5.3-flash", {})[0], facts().model)]
)
def test_what_cannot_be_compared_is_noted(planned: dict[str, Any] | None, model: FoundModel | None) -> None:
    finding = check_model(facts(model=model), model=_NAME, planned_config=planned)
    assert finding is not None
    assert (finding.reason, finding.severity) == (Reason.MODEL_NOT_COMPARED, Severity.NOTE)


def test_a_folder_has_its_config(tmp_path: Path) -> None:
    write(tmp_path, "models/glm/config.json", '{"index_topk": 1}')
    found = find_model(tmp_path, "/models/glm", revision=None, environment={})
    assert found is not None
    assert found.config == {"index_topk": 1}


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HF_HOME": "/data"}, "data/hub"),
        ({"HF_HUB_CACHE": "/cache", "HF_HOME": "/data"}, "cache"),
        ({"HOME": "/home/engine"}, "home/engine/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/home/engine"}, "xdg/huggingface/hub"),
    ],
)
def test_a_name_is_looked_up_in_the_cache_of_hugging_face(tmp_path: Path, environment: dict[str, str], folder: str) -> None:
    write(tmp_path, f"{folder}/{_CACHED}/refs/main", "0123abcd\n")
    write(tmp_path, f"{folder}/{_CACHED}/snapshots/0123abcd/config.json", '{"index_topk": 2}')
    found = find_model(tmp_path, _NAME, revision=None, environment=environment)
    assert found is not None
    assert found.config == {"index_topk": 2}


@pytest.mark.parametrize("revision", ["v2", "feedbeef"])
def test_a_revision_is_a_name_or_a_commit(tmp_path: Path, revision: str) -> None:
    write(tmp_path, f"data/hub/{_CACHED}/refs/main", "0123abcd")
    write(tmp_path, f"data/hub/{_CACHED}/refs/v2", "feedbeef")
    write(tmp_path, f"data/hub/{_CACHED}/snapshots/feedbeef/config.json", "{}")
    found = find_model(tmp_path, _NAME, revision=revision, environment={"HF_HOME": "/data"})
    assert found is not None
    assert found.config == {}


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps(None)])
def test_a_file_that_is_no_config_is_not_there_yet(tmp_path: Path, text: str) -> None:
    write(tmp_path, "models/glm/config.json", text)
    assert find_model(tmp_path, "/models/glm", revision=None, environment={}) is None
    assert find_model(tmp_path, _NAME, revision=None, environment={"HF_HOME": "/data"}) is None
    assert find_model(tmp_path, "", revision=None, environment={"HF_HOME": "/data"}) is None
