"""Reading an object of the API server, and the example that the docs point to."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from hisparse_operator.api import HiSparseDeployment, HiSparseDeploymentSpec, InvalidObjectError, quantity_bytes
from hisparse_operator.planning import NodeFacts, plan

ROOT = Path(__file__).resolve().parents[3]


def test_the_parts_of_an_object_are_read() -> None:
    read = HiSparseDeployment.parse(_body(status={"observedGeneration": 2, "replicas": 1}))
    assert (read.name, read.namespace, read.key, read.uid, read.generation) == ("agents", "team", "team/agents", "u-1", 3)
    assert read.deletion_timestamp is None
    assert read.spec.engine.gpu_kv_cache == "8Mi"
    assert read.spec.replicas == 1
    assert read.status is not None
    assert read.status.observed_generation == 2


def test_an_object_without_status_has_none() -> None:
    assert HiSparseDeployment.parse(_body()).status is None
    assert HiSparseDeployment.parse(_body(status={})).status is None


def test_the_deletion_timestamp_is_kept() -> None:
    body = _body()
    body["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    assert HiSparseDeployment.parse(body).deletion_timestamp == "2030-01-01T00:00:00Z"


def test_a_status_of_another_version_does_not_stop_the_object() -> None:
    read = HiSparseDeployment.parse(_body(status={"plan": {"node": "a"}, "conditions": "none"}))
    assert read.status is None
    assert read.spec.model.name == "tiny"


def test_fields_of_a_newer_status_are_ignored() -> None:
    read = HiSparseDeployment.parse(_body(status={"replicas": 2, "recommendation": {"hostPoolGiB": 4}}))
    assert read.status is not None
    assert read.status.replicas == 2


def test_every_fault_of_a_spec_is_named_in_one_line() -> None:
    body = _body()
    body["spec"]["engine"] |= {"maxModelLen": 0, "gpuKVCache": "-8Mi", "surprise": 1}
    with pytest.raises(InvalidObjectError) as caught:
        HiSparseDeployment.parse(body)
    message = str(caught.value)
    assert "spec.engine.maxModelLen: " in message
    assert "spec.engine.gpuKVCache: " in message
    assert "spec.engine.surprise: " in message
    assert "hisparse crd" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("toleration", "message"),
    [
        ({"key": "gpu", "operator": "Exists", "value": "yes"}, "value must be left out when operator is Exists"),
        ({"value": "yes"}, "operator must be Exists when key is left out"),
        (
            {"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5},
            "tolerationSeconds needs effect NoExecute",
        ),
    ],
)
def test_an_inconsistent_toleration_is_refused(toleration: dict[str, Any], message: str) -> None:
    body = _body()
    body["spec"]["tolerations"] = [toleration]
    with pytest.raises(InvalidObjectError, match=message):
        HiSparseDeployment.parse(body)


def test_a_bare_off_is_explained() -> None:
    spec = yaml.safe_load("{model: {name: a}, engine: {type: VLLM, maxModelLen: 1, vllm: {gpu: H200}}, hiSparse: {mode: Off}}")
    with pytest.raises(ValidationError, match='write "On" or "Off" in quotes: YAML takes the bare word for a boolean'):
        HiSparseDeploymentSpec.model_validate(spec)


def test_the_example_can_be_planned_on_a_small_node() -> None:
    example = yaml.safe_load((ROOT / "examples" / "embedded.yaml").read_text(encoding="utf-8"))
    node = NodeFacts(
        name="small",
        ready=True,
        unschedulable=False,
        labels=(),
        taints=(),
        allocatable_memory_bytes=2 << 30,
        allocatable_gpus=1,
    )
    spec = HiSparseDeploymentSpec.model_validate(example["spec"])
    settled = plan(spec, deployment="default/agents", nodes=[node], pods=[])
    assert spec.host_memory.max is not None
    assert settled.memory_bytes == quantity_bytes(spec.host_memory.max)
    # eight conversations of 2,000 tokens press on the device pool, and the host pool holds them
    assert settled.device_pool_tokens is not None
    assert settled.device_pool_tokens < 8 * 2000 < settled.host_pool_tokens


def _body(*, status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": "agents", "namespace": "team", "uid": "u-1", "generation": 3},
        "spec": {
            "model": {"name": "tiny", "config": {"num_hidden_layers": 4}},
            "engine": {"type": "Embedded", "maxModelLen": 4096, "gpuKVCache": "8Mi"},
        },
        **({} if status is None else {"status": status}),
    }
