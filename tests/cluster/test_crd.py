"""The CRD on a real API server: every rule once accepted and once refused, defaults, scale subresource, columns."""

import json
import subprocess
from typing import Any

import pytest
import yaml

from tests.cluster.kit import Cluster

pytestmark = pytest.mark.cluster

_QUANTITIES = ["engine.gpuKVCache", "engine.cpu", "offload.cpuBytesToUse", "hostMemory.max"]
_MUST_BE_POSITIVE = "must be a quantity above zero, such as 512Mi"


def test_the_smallest_object_gets_its_defaults(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, _object("least"))
    spec = cluster.get(namespace, "hsd", "least")["spec"]
    assert spec["replicas"] == 1
    assert (spec["engine"]["cpu"], spec["engine"]["gpus"]) == ("1", 0)
    assert (spec["hiSparse"], spec["offload"]) == ({"mode": "On"}, {"enabled": True})
    assert spec.keys() == {"replicas", "model", "engine", "hiSparse", "offload"}
    # config.json is kept as it is, fields that nobody declared included
    assert spec["model"]["config"] == {"num_hidden_layers": 4, "rope_scaling": {"factor": 2.5, "type": "yarn"}}


@pytest.mark.parametrize("name", ["a", "agents-2", "a" * 40])
def test_a_name_that_a_service_can_have_is_accepted(cluster: Cluster, name: str) -> None:
    _try(cluster, _object(name))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a" * 41, "metadata.name must have at most 40 characters"),
        ("2-agents", "metadata.name must be lower-case letters, digits and dashes, a letter first"),
        ("agents.v2", "metadata.name must be lower-case letters, digits and dashes, a letter first"),
    ],
)
def test_at37_a_name_that_no_service_can_have_is_refused(cluster: Cluster, name: str, message: str) -> None:
    assert message in _refusal(cluster, _object(name))


@pytest.mark.parametrize("value", ["1", "1.5Gi", "0.5", "500m", "1e3", 1, 1073741824])
def test_a_quantity_above_zero_is_accepted(cluster: Cluster, value: int | str) -> None:
    _try(cluster, _object("sized", dict.fromkeys(_QUANTITIES, value)))


@pytest.mark.parametrize("value", [0, "0", "0Gi", "0e3", "0.0", -1])
def test_at37_a_quantity_of_zero_or_less_is_refused(cluster: Cluster, value: int | str) -> None:
    message = _refusal(cluster, _object("sized", dict.fromkeys(_QUANTITIES, value)))
    for path in _QUANTITIES:
        assert f"spec.{path}" in message
    assert message.count(_MUST_BE_POSITIVE) == len(_QUANTITIES)


@pytest.mark.parametrize("value", ["-1Gi", "8 Gi", "8gi", "1e999999999", "9" * 33, 1.5, True])
def test_what_is_not_a_quantity_is_refused(cluster: Cluster, value: object) -> None:
    assert "spec.hostMemory.max" in _refusal(cluster, _object("sized", {"hostMemory.max": value}))


@pytest.mark.parametrize(
    ("path", "accepted", "refused"),
    [
        ("replicas", 0, -1),
        ("replicas", 256, 257),
        ("engine.maxModelLen", 1, 0),
        ("engine.maxModelLen", 16777216, 16777217),
        ("engine.maxNumSeqs", 1, 0),
        ("engine.maxNumBatchedTokens", 1, 0),
        ("engine.deviceBufferSize", 32768, 32769),
        ("engine.deviceBufferSize", 1, 0),
        ("engine.gpus", 0, -1),
        ("engine.type", "Embedded", "embedded"),
        ("engine.image", "registry/engine:1", "registry/engine :1"),
        ("hiSparse.hostPoolGiB", 0.5, 0),
        ("hiSparse.hostPoolGiB", 384, "384Gi"),
        ("model.name", "glm", ""),
        ("nodeSelector", {"pool": "h200"}, {"pool": "not a label"}),
        ("tolerations", [{"operator": "Exists"}], [{"operator": "exists"}]),
    ],
)
def test_at37_bounds_of_a_field(cluster: Cluster, path: str, accepted: object, refused: object) -> None:
    _try(cluster, _object("bounded", {path: accepted}))
    assert f"spec.{path}" in _refusal(cluster, _object("bounded", {path: refused}))


@pytest.mark.parametrize(
    ("accepted", "refused", "message"),
    [
        (
            {"key": "gpu", "operator": "Exists"},
            {"key": "gpu", "operator": "Exists", "value": "yes"},
            "value must be left out when operator is Exists",
        ),
        ({"operator": "Exists"}, {"operator": "Equal", "value": "yes"}, "operator must be Exists when key is left out"),
        (
            {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            {"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 60},
            "tolerationSeconds needs effect NoExecute",
        ),
    ],
)
def test_at37_a_toleration_is_consistent(
    cluster: Cluster, accepted: dict[str, Any], refused: dict[str, Any], message: str
) -> None:
    _try(cluster, _object("tolerant", {"tolerations": [accepted]}))
    assert message in _refusal(cluster, _object("tolerant", {"tolerations": [refused]}))


@pytest.mark.parametrize(
    ("accepted", "refused", "message"),
    [
        (
            {"type": "Embedded", "maxModelLen": 4096, "gpuKVCache": "8Mi"},
            {"type": "Embedded", "maxModelLen": 4096},
            "gpuKVCache is required for type Embedded",
        ),
        (
            {"type": "VLLM", "maxModelLen": 4096, "vllm": {"gpu": "H200"}},
            {"type": "Embedded", "maxModelLen": 4096, "gpuKVCache": "8Mi", "vllm": {"gpu": "H200"}},
            "vllm must be left out for type Embedded",
        ),
        (
            {"type": "VLLM", "maxModelLen": 4096, "vllm": {"gpu": "H200"}, "gpuKVCache": "20Gi"},
            {"type": "VLLM", "maxModelLen": 4096, "gpuKVCache": "20Gi"},
            "vllm is required for type VLLM",
        ),
        (
            {"type": "VLLM", "maxModelLen": 4096, "vllm": {"gpu": "H200", "tensorParallelSize": 8}},
            {"type": "VLLM", "maxModelLen": 4096, "vllm": {"gpu": "H200"}, "gpus": 8},
            "gpus must be left out for type VLLM",
        ),
    ],
)
def test_at37_an_engine_is_consistent(cluster: Cluster, accepted: dict[str, Any], refused: dict[str, Any], message: str) -> None:
    _try(cluster, _object("engines", {"engine": accepted}))
    assert message in _refusal(cluster, _object("engines", {"engine": refused}))


_VLLM = {"type": "VLLM", "maxModelLen": 4096, "vllm": {"gpu": "H200"}}


@pytest.mark.parametrize(
    ("accepted", "refused", "message"),
    [
        (
            {"engine": _VLLM, "hiSparse": {"mode": "Off"}},
            {"engine": _VLLM, "hiSparse": {"mode": "Off", "hostPoolGiB": 4}},
            "hiSparse.hostPoolGiB must be left out when hiSparse.mode is Off",
        ),
        ({"engine": _VLLM, "hiSparse": {"mode": "Off"}}, {"hiSparse": {"mode": "Off"}}, "hiSparse.mode Off is for type VLLM"),
        (
            {"engine": _VLLM, "offload": {"enabled": False}},
            {"offload": {"enabled": False}},
            "offload.enabled false is for type VLLM",
        ),
        ({"engine": _VLLM, "model.source": "/models/a"}, {"model.source": "/models/a"}, "model.source must be left out"),
        ({"engine": _VLLM, "model.source": "org/name"}, {"engine": _VLLM, "model.source": "--api-key"}, "spec.model.source"),
        (
            {"pod.env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "hf"}}}]},
            {"pod.env": [{"name": "HF_TOKEN", "value": "canary"}]},
            "give a secret by valueFrom.secretKeyRef",
        ),
        ({"pod.env": [{"name": "A", "value": ""}]}, {"pod.env": [{"name": "A"}]}, "give value or valueFrom"),
        (
            {"pod.volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]},
            {"pod.labels": {"team": "not a label"}},
            "spec.pod.labels",
        ),
    ],
)
def test_at37_fields_fit_to_each_other(cluster: Cluster, accepted: dict[str, Any], refused: dict[str, Any], message: str) -> None:
    _try(cluster, _object("fitting", accepted))
    assert message in _refusal(cluster, _object("fitting", refused))


@pytest.mark.parametrize("path", ["model", "engine", "engine.type", "engine.maxModelLen"])
def test_a_missing_field_is_refused_naming_it(cluster: Cluster, path: str) -> None:
    resource = _object("partial")
    *parents, last = path.split(".")
    holder = resource["spec"]
    for parent in parents:
        holder = holder[parent]
    del holder[last]
    assert f"spec.{path}: Required value" in _refusal(cluster, resource)


@pytest.mark.parametrize("path", ["surprise", "engine.maxModelLength", "hiSparse.hostPoolGib"])
def test_an_unknown_field_is_refused(cluster: Cluster, path: str) -> None:
    assert f'unknown field "spec.{path}"' in _refusal(cluster, _object("typo", {path: 1}))


def test_the_scale_subresource_sets_replicas_and_reads_the_selector(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, _object("scaled"))
    cluster.kubectl("-n", namespace, "scale", "hsd/scaled", "--replicas=3")
    assert cluster.get(namespace, "hsd", "scaled")["spec"]["replicas"] == 3
    _write_status(cluster, namespace, "scaled", {"replicas": 2, "selector": "hisparse.dev/deployment=scaled"})
    path = f"/apis/hisparse.dev/v1alpha1/namespaces/{namespace}/hisparsedeployments/scaled/scale"
    scale = json.loads(cluster.kubectl("get", "--raw", path))
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": "hisparse.dev/deployment=scaled"}


def test_columns_show_the_status_in_their_order(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, _object("shown"))
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "LoadingModel",
        "message": "0 of 2 pods serve",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    summary = {"replicas": "0/2", "hostPool": "384.0 GiB", "used": "12 %", "hit": "97 %", "offload": "128.0 GiB"}
    _write_status(cluster, namespace, "shown", {"version": "0.1.0", "summary": summary, "conditions": [condition]})
    narrow = cluster.kubectl("-n", namespace, "get", "hsd", "shown").splitlines()
    assert narrow[0].split() == ["NAME", "READY", "REPLICAS", "HOST-POOL", "USED", "HIT", "REASON", "AGE"]
    assert _cells(narrow[1])[:-1] == ["shown", "False", "0/2", "384.0 GiB", "12 %", "97 %", "LoadingModel"]
    wide = cluster.kubectl("-n", namespace, "get", "hsd", "shown", "-o", "wide").splitlines()
    assert wide[0].split()[-4:] == ["MODEL", "ENGINE", "OFFLOAD", "VERSION"]
    assert _cells(wide[1])[-4:] == ["tiny", "Embedded", "128.0 GiB", "0.1.0"]


def test_the_object_is_found_by_its_short_name_and_category(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, _object("listed"))
    for word in ("hsd", "hisparse", "hisparsedeployment"):
        assert cluster.kubectl("-n", namespace, "get", word, "-o", "name") == "hisparsedeployment.hisparse.dev/listed\n"


def test_a_condition_with_a_wrong_status_is_refused(cluster: Cluster, namespace: str) -> None:
    cluster.apply(namespace, _object("conditioned"))
    condition = {
        "type": "Ready",
        "status": "Perhaps",
        "reason": "Unsure",
        "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    with pytest.raises(subprocess.CalledProcessError) as caught:
        _write_status(cluster, namespace, "conditioned", {"conditions": [condition]})
    assert "status.conditions[0].status" in caught.value.stderr


def _object(name: str, fields: dict[str, object] | None = None) -> dict[str, Any]:
    """The smallest object that is accepted, with fields of the spec set by path."""
    spec: dict[str, Any] = {
        "model": {"name": "tiny", "config": {"num_hidden_layers": 4, "rope_scaling": {"factor": 2.5, "type": "yarn"}}},
        "engine": {"type": "Embedded", "maxModelLen": 4096, "gpuKVCache": "8Mi"},
    }
    for path, value in (fields or {}).items():
        *parents, last = path.split(".")
        holder = spec
        for parent in parents:
            holder = holder.setdefault(parent, {})
        holder[last] = value
    return {"apiVersion": "hisparse.dev/v1alpha1", "kind": "HiSparseDeployment", "metadata": {"name": name}, "spec": spec}


def _try(cluster: Cluster, resource: dict[str, Any]) -> None:
    """Everything that the API server checks, without leaving an object behind."""
    cluster.kubectl("-n", "default", "create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(resource))


def _refusal(cluster: Cluster, resource: dict[str, Any]) -> str:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        _try(cluster, resource)
    message: str = caught.value.stderr
    return message


def _write_status(cluster: Cluster, namespace: str, name: str, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    cluster.kubectl("-n", namespace, "patch", "hsd", name, "--subresource=status", "--type=merge", "-p", patch)


def _cells(line: str) -> list[str]:
    """Columns of a printed table are two or more spaces apart."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]
