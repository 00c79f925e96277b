"""The plan that the Deployment carries: how long it holds, and what a person may have made of it."""

import dataclasses
import json
import logging
from typing import Any

import pytest

from hisparse_operator import settled_plan
from hisparse_operator.api import HiSparseDeploymentSpec
from tests.unit.operator.objects import MODEL_CONFIG, PLAN, owner

WRITTEN = settled_plan.write(PLAN, owner=owner())


def test_a_plan_comes_back_as_it_was_written() -> None:
    assert settled_plan.read(WRITTEN, owner=owner()) == PLAN
    uneven = dataclasses.replace(PLAN, host_pool_bytes=100_663_297, host_pool_gib=100_663_297 / (1 << 30))
    assert settled_plan.read(settled_plan.write(uneven, owner=owner()), owner=owner()) == uneven


def test_writing_what_was_read_gives_the_same_text() -> None:
    read = settled_plan.read(WRITTEN, owner=owner())
    assert read is not None
    assert settled_plan.write(read, owner=owner()) == WRITTEN


@pytest.mark.parametrize("replicas", [0, 2, 200])
def test_a_plan_survives_scaling(replicas: int) -> None:
    assert settled_plan.read(WRITTEN, owner=owner(replicas=replicas, generation=2)) == PLAN


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"maxModelLen": 2048}},
        {"engine": {"gpuKVCache": "16Mi"}},
        {"engine": {"image": "other:1"}},
        {"hostMemory": {"max": "2Gi"}},
        {"hiSparse": {"hostPoolGiB": 0.5}},
        {"offload": {"cpuBytesToUse": "64Mi"}},
        {"nodeSelector": {"pool": "h200"}},
        {"model": {"name": "tiny-sparse-mla", "config": {**MODEL_CONFIG, "index_topk": 32}}},
    ],
    ids=str,
)
def test_any_other_change_of_the_spec_drops_it(change: dict[str, Any]) -> None:
    assert settled_plan.read(WRITTEN, owner=owner(**change)) is None


def test_a_field_at_its_default_is_as_good_as_left_out() -> None:
    spelled_out = owner(
        offload={}, hiSparse={"hostPoolGiB": None}, nodeSelector={}, tolerations=[], engine={"deviceBufferSize": None}
    )
    assert settled_plan.read(WRITTEN, owner=spelled_out) == PLAN


def test_a_field_that_a_newer_operator_adds_does_not_drop_the_plan() -> None:
    class NewerSpec(HiSparseDeploymentSpec):
        added: int = 3

    spec = owner().spec.model_dump(by_alias=True)
    assert settled_plan.read(WRITTEN, owner=dataclasses.replace(owner(), spec=NewerSpec.model_validate(spec))) == PLAN
    changed = NewerSpec.model_validate({**spec, "added": 4})
    assert settled_plan.read(WRITTEN, owner=dataclasses.replace(owner(), spec=changed)) is None


def test_there_is_none_before_the_first() -> None:
    assert settled_plan.read("", owner=owner()) is None


def edited(**fields: Any) -> str:
    """The annotation with some of the plan's fields replaced."""
    content = json.loads(WRITTEN)
    return json.dumps({**content, "plan": {**content["plan"], **fields}})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("not json", id="no JSON"),
        pytest.param(WRITTEN[:100], id="cut off"),
        pytest.param("[1, 2]", id="a list"),
        pytest.param("null", id="null"),
        pytest.param("{}", id="nothing in it"),
        pytest.param(json.dumps({"specHash": settled_plan.spec_hash(owner())}), id="no plan"),
        pytest.param(json.dumps({"specHash": settled_plan.spec_hash(owner()), "plan": 7}), id="a plan that is a number"),
        pytest.param(edited(memory_bytes="776Mi"), id="a text for a number"),
        pytest.param(edited(of_a_newer_operator=1), id="a field of another version"),
        pytest.param("[" * 100_000, id="deeply nested"),
    ],
)
def test_a_text_that_cannot_be_read_is_no_plan_and_is_told(text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert settled_plan.read(text, owner=owner()) is None
    assert "shop/agents: annotation hisparse.dev/plan cannot be read, planning anew" in caplog.text
