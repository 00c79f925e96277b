"""Properties of the children that a golden file alone would not explain."""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import Plan
from hisparse_operator.resources import EngineImages, Rendered, render
from tests.unit.operator.objects import MIB, MODEL_CONFIG, PLAN, owner


def rendered(
    of: HiSparseDeployment | None = None, *, plan: Plan = PLAN, settled: str = "{}", image: str = "engine:1"
) -> Rendered:
    images = EngineImages(embedded=image, vllm="vllm:{version}")
    return render(of or owner(), plan=plan, settled=settled, images=images)


def deployment(of: HiSparseDeployment | None = None, **fields: Any) -> dict[str, Any]:
    return rendered(of, **fields).children[-1].body


def pod(of: HiSparseDeployment | None = None, **fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = deployment(of, **fields)["spec"]["template"]["spec"]
    return spec


def arguments(engine: Mapping[str, Any]) -> dict[str, str]:
    texts = engine["args"]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def test_config_map_service_and_deployment_in_this_order_each_at_its_own_path() -> None:
    children = rendered().children
    assert [child.body["kind"] for child in children] == ["ConfigMap", "Service", "Deployment"]
    assert [child.path for child in children] == [
        "/api/v1/namespaces/shop/configmaps/agents",
        "/api/v1/namespaces/shop/services/agents",
        "/apis/apps/v1/namespaces/shop/deployments/agents",
    ]


def test_every_child_belongs_to_the_object_and_ends_with_it() -> None:
    for child in rendered().children:
        assert child.body["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "hisparse.dev/v1alpha1",
                "kind": "HiSparseDeployment",
                "name": "agents",
                "uid": "uid-1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


def test_at08_every_size_is_a_number_of_bytes_or_of_gib_never_a_quantity() -> None:
    engine = pod()["containers"][0]
    sizes = arguments(engine)
    assert int(sizes["--gpu-kv-bytes"]) == PLAN.gpu_kv_bytes
    assert int(sizes["--cpu-bytes-to-use"]) == PLAN.cpu_bytes_to_use
    assert int(float(sizes["--host-pool-gib"]) * 2**30) == PLAN.host_pool_bytes
    texts = [*sizes.values(), *(variable["value"] for variable in engine["env"])]
    assert not [text for text in texts if re.fullmatch(r"[0-9.]+[kKMGT]i?", text)]


def test_at01_pools_fit_in_shared_memory_and_that_in_the_limit_and_request_equals_limit() -> None:
    spec = pod()
    (engine,) = spec["containers"]
    given = arguments(engine)
    pools_bytes = float(given["--host-pool-gib"]) * (1 << 30) + int(given["--cpu-bytes-to-use"])
    shm_bytes = int(next(volume for volume in spec["volumes"] if volume["name"] == "shm")["emptyDir"]["sizeLimit"])
    resources = engine["resources"]
    assert (pools_bytes, shm_bytes, int(resources["limits"]["memory"])) == (128 * MIB, 192 * MIB, 776 * MIB)
    assert resources["requests"] == {"cpu": "500m", "memory": str(776 * MIB), "nvidia.com/gpu": "1"}
    assert resources["limits"] == {"memory": str(776 * MIB), "nvidia.com/gpu": "1"}
    assert next(mount["mountPath"] for mount in engine["volumeMounts"] if mount["name"] == "shm").endswith("/shm")


def test_arguments_carry_the_plans_numbers_and_the_specs() -> None:
    (engine,) = pod()["containers"]
    assert engine["command"] == ["hisparse", "serve"]
    assert arguments(engine) == {
        "--model-config": "/etc/hisparse/config.json",
        "--served-model-name": "tiny-sparse-mla",
        "--host": "0.0.0.0",
        "--port": "8000",
        "--max-model-len": "4096",
        "--max-num-seqs": "16",
        "--max-num-batched-tokens": "256",
        "--gpu-kv-bytes": str(8 * MIB),
        "--host-pool-gib": "0.09375",
        "--cpu-bytes-to-use": str(32 * MIB),
        "--device-buffer-size": "128",
        "--shutdown-timeout": "30",
    }


def test_an_engine_without_gpus_asks_for_none() -> None:
    resources = pod(owner(engine={"gpus": 0}))["containers"][0]["resources"]
    assert "nvidia.com/gpu" not in {**resources["requests"], **resources["limits"]}


def test_the_image_of_the_spec_wins_over_the_operators() -> None:
    assert pod()["containers"][0]["image"] == "engine:1"
    assert pod(owner(engine={"image": "mine:2"}))["containers"][0]["image"] == "mine:2"


def test_at11_at12_pods_are_replaced_one_at_a_time_the_old_one_first() -> None:
    assert deployment()["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


@pytest.mark.parametrize("replicas", [0, 1, 7])
def test_replicas_are_those_of_the_spec(replicas: int) -> None:
    assert deployment(owner(replicas=replicas))["spec"]["replicas"] == replicas


def test_at17_grace_covers_leaving_the_endpoints_draining_and_going() -> None:
    spec = pod()
    (engine,) = spec["containers"]
    leave_seconds = engine["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain_seconds = int(arguments(engine)["--shutdown-timeout"])
    assert leave_seconds > 0
    assert spec["terminationGracePeriodSeconds"] > leave_seconds + drain_seconds


def test_probes_have_time_and_nothing_kills_an_engine_that_starts() -> None:
    (engine,) = pod()["containers"]
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert engine[name]["timeoutSeconds"] >= 5
        assert engine[name]["httpGet"] == {"path": "/health", "port": "http"}
    assert engine["startupProbe"]["failureThreshold"] * engine["startupProbe"]["periodSeconds"] >= 120


def test_node_selector_and_tolerations_reach_the_pods() -> None:
    tolerations = [
        {"key": "gpu", "operator": "Equal", "value": "only", "effect": "NoSchedule"},
        {"key": "old", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    ]
    spec = pod(owner(nodeSelector={"pool": "h200"}, tolerations=tolerations))
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "h200"}, tolerations)
    assert not {"nodeSelector", "tolerations"} & pod().keys()


def test_pods_run_without_rights_and_without_a_token() -> None:
    spec = pod()
    (engine,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert engine["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_at33_no_child_is_or_reads_a_secret() -> None:
    text = json.dumps([child.body for child in rendered().children]).lower()
    assert "secret" not in text


def test_the_service_and_the_deployment_select_the_same_pods() -> None:
    _, service, workload = (child.body for child in rendered().children)
    chosen = {"hisparse.dev/deployment": "agents", "app.kubernetes.io/component": "engine"}
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"] == chosen
    assert chosen.items() <= labels.items()
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] == workload["spec"]["template"]["spec"]["containers"][0]["ports"][0]["name"]


def test_the_config_map_holds_the_models_config_and_its_change_rolls_the_pods() -> None:
    config = rendered().children[0].body["data"]["config.json"]
    assert json.loads(config) == MODEL_CONFIG
    changed = owner(model={"name": "tiny-sparse-mla", "config": {**MODEL_CONFIG, "index_topk": 32}})
    same = owner(model={"name": "tiny-sparse-mla", "config": dict(reversed(MODEL_CONFIG.items()))})
    before, after, reordered = (deployment(of)["spec"]["template"]["metadata"]["annotations"] for of in (owner(), changed, same))
    assert before != after
    assert before == reordered


CHANGES: dict[str, dict[str, Any]] = {
    "replicas": {"of": owner(replicas=2)},
    "maxNumSeqs": {"of": owner(engine={"maxNumSeqs": 8})},
    "model name": {"of": owner(model={"name": "other", "config": MODEL_CONFIG})},
    "model config": {"of": owner(model={"name": "tiny-sparse-mla", "config": {**MODEL_CONFIG, "vocab_size": 1024}})},
    "node selector": {"of": owner(nodeSelector={"pool": "h200"})},
    "owner": {"of": owner(uid="uid-2")},
    "plan": {"plan": dataclasses.replace(PLAN, memory_bytes=777 * MIB)},
    "settled text": {"settled": '{"plan": 2}'},
    "image": {"image": "engine:2"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_hash_changes_with_all_that_is_applied(change: dict[str, Any]) -> None:
    assert rendered(**change).hash != rendered().hash


def test_the_hash_changes_with_nothing_else() -> None:
    same = [
        owner(generation=9),
        owner(metadata={"labels": {"team": "red"}}),
        owner(status={"replicas": 3}),
        owner(hostMemory={"max": "2Gi"}),
    ]
    assert {rendered(of).hash for of in same} == {rendered().hash}


def test_the_deployment_carries_the_hash_of_all_children_and_the_settled_plan() -> None:
    made = rendered(settled="the plan")
    assert made.children[-1].body["metadata"]["annotations"] == {
        "hisparse.dev/plan": "the plan",
        "hisparse.dev/rendered-hash": made.hash,
    }
    assert made.hash not in json.dumps(made.children[-1].body["spec"]), (
        "a hash in the template would restart pods for a new label"
    )


def test_a_new_number_of_replicas_leaves_the_pod_template_alone() -> None:
    one, two = (deployment(owner(replicas=replicas))["spec"]["template"] for replicas in (1, 2))
    assert one == two
