"""A pod of vLLM: what its golden file alone would not explain."""

import json
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from pydantic import ValidationError

from hisparse_operator import settled_plan
from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import plan
from hisparse_operator.resources import render
from hisparse_runtime.vllm.pod_plan import Mode, PodPlan, read_pod_plan
from tests.unit.operator.objects import GIB, IMAGES, body, node


def engine(**spec: Any) -> HiSparseDeployment:
    """GLM-5.3 on eight H200."""
    content = body(**{"model": {"name": "zai-org/GLM-5.3"}, "hostMemory": {}, **spec})
    content["spec"]["engine"] = {
        "type": "VLLM",
        "maxModelLen": 142_000,
        "vllm": {"gpu": "H200", "tensorParallelSize": 8, "kvCacheDtype": "fp8"},
        **spec.get("engine", {}),
    }
    return HiSparseDeployment.parse(content)


def children(owner: HiSparseDeployment) -> list[dict[str, Any]]:
    made = plan(owner.spec, deployment=owner.key, nodes=[node(memory_bytes=2000 * GIB)], pods=[])
    return [child.body for child in render(owner, plan=made, settled="{}", images=IMAGES).children]


def pod(owner: HiSparseDeployment) -> dict[str, Any]:
    spec: dict[str, Any] = children(owner)[-1]["spec"]["template"]["spec"]
    return spec


def container(owner: HiSparseDeployment) -> dict[str, Any]:
    (only,) = pod(owner)["containers"]
    assert isinstance(only, dict)
    return only


def option(owner: HiSparseDeployment, name: str) -> str | None:
    words = container(owner)["args"]
    return words[words.index(name) + 1] if name in words else None


def environment(owner: HiSparseDeployment) -> dict[str, Any]:
    variables = container(owner)["env"]
    names = [variable["name"] for variable in variables]
    assert len(set(names)) == len(names)
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in variables}


def told(owner: HiSparseDeployment) -> PodPlan:
    with NamedTemporaryFile("w", suffix=".json") as file:
        file.write(children(owner)[0]["data"]["plan.json"])
        file.flush()
        return read_pod_plan(Path(file.name))


def test_the_pod_is_told_what_it_was_given() -> None:
    owner = engine()
    given, told_plan = container(owner)["resources"]["limits"], told(owner)
    assert told_plan.mode is Mode.ON
    assert (str(told_plan.memory_bytes), str(told_plan.gpus)) == (given["memory"], given["nvidia.com/gpu"])
    connectors = json.loads(option(owner, "--kv-transfer-config") or "")["kv_connector_extra_config"]["connectors"]
    hisparse, offloading = (connector["kv_connector_extra_config"] for connector in connectors)
    assert hisparse["host_pool_gib"] * GIB == told_plan.host_pool_bytes
    assert offloading["cpu_bytes_to_use"] == told_plan.cpu_bytes_to_use
    assert told_plan.shared_pools_bytes < told_plan.shm_bytes < told_plan.memory_bytes


def test_the_config_that_the_plan_was_made_from_lies_beside_it_presets_included() -> None:
    config = json.loads(children(engine())[0]["data"]["config.json"])
    assert (config["num_hidden_layers"], config["index_topk"]) == (78, 2048)


def test_at08_sizes_on_the_command_line_are_numbers() -> None:
    owner = engine(engine={"gpuKVCache": "20Gi"}, hiSparse={"hostPoolGiB": 384}, offload={"cpuBytesToUse": "128Gi"})
    assert option(owner, "--kv-cache-memory-bytes") == str(20 * GIB)
    text = option(owner, "--kv-transfer-config") or ""
    assert '"host_pool_gib":384.0' in text
    assert f'"cpu_bytes_to_use":{128 * GIB}' in text


def test_kv_memory_that_is_only_estimated_is_left_to_vllms_profiling() -> None:
    assert option(engine(), "--kv-cache-memory-bytes") is None
    assert option(engine(), "--gpu-memory-utilization") == "0.92"


def test_mode_off_is_the_same_engine_with_an_offload_tier_as_large_as_the_memory_allows() -> None:
    on, off = engine(), engine(hiSparse={"mode": "Off"})
    config = json.loads(option(off, "--kv-transfer-config") or "")
    assert config["kv_connector"] == "OffloadingConnector"
    assert told(off).mode is Mode.OFF
    assert told(off).cpu_bytes_to_use == config["kv_connector_extra_config"]["cpu_bytes_to_use"]
    # the same memory for both, to the MiB that sizes are rounded to, and to what page tables of both take
    both = told(on).host_pool_bytes + told(on).cpu_bytes_to_use
    assert told(off).cpu_bytes_to_use == pytest.approx(both, rel=0.001)
    changing = {"--kv-transfer-config", "--shutdown-timeout"}
    words = [
        [word for word, before in zip(args, ["", *args], strict=False) if before not in changing]
        for args in (container(on)["args"], container(off)["args"])
    ]
    assert words[0] == words[1]


def test_mode_off_serves_a_model_that_hisparse_cannot() -> None:
    owner = engine(
        model={"name": "llama", "source": "/models/llama", "config": {"num_hidden_layers": 2}},
        hiSparse={"mode": "Off"},
        offload={"enabled": False},
        engine={"vllm": {"gpu": "H200", "version": "0.32"}},
    )
    args = container(owner)["args"]
    assert args[args.index("serve") + 1] == "/models/llama"
    assert option(owner, "--served-model-name") == "llama"
    assert "--kv-transfer-config" not in args
    assert "--enable-expert-parallel" not in args
    assert container(owner)["image"] == "vllm:0.32"
    assert told(owner).cpu_bytes_to_use == 0


def test_without_an_offload_tier_hisparse_stands_alone() -> None:
    config = json.loads(option(engine(offload={"enabled": False}), "--kv-transfer-config") or "")
    assert config["kv_connector"] == "HiSparseConnector"


def test_at17_grace_covers_the_routers_running_requests_and_unpinning() -> None:
    owner = engine()
    leave_seconds = int(container(owner)["lifecycle"]["preStop"]["exec"]["command"][-1])
    shutdown_seconds = int(option(owner, "--shutdown-timeout") or "")
    assert (leave_seconds, told(owner).drain_seconds) == (15, 120)
    assert shutdown_seconds == 120 + told(owner).unpin_seconds
    # and launch tells what it had to kill
    assert pod(owner)["terminationGracePeriodSeconds"] >= leave_seconds + shutdown_seconds + 10
    assert environment(owner)["VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"] == str(told(owner).unpin_seconds)


def test_at28_probes_ask_launch_and_wait_as_long_as_the_bytes_take() -> None:
    owner = engine()
    probes = {name: container(owner)[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {name: probe["httpGet"]["path"] for name, probe in probes.items()} == {
        "startupProbe": "/startup",
        "readinessProbe": "/ready",
        "livenessProbe": "/live",
    }
    assert all(probe["httpGet"]["port"] == "status" and probe["timeoutSeconds"] >= 5 for probe in probes.values())
    start = probes["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] >= told(owner).startup_seconds


def test_what_a_person_adds_reaches_the_pod_and_wins_over_ours() -> None:
    owner = engine(
        pod={
            "env": [
                {"name": "HOME", "value": "/home/engine"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
            "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
            "imagePullSecrets": [{"name": "registry"}],
            "serviceAccountName": "engines",
            "runtimeClassName": "nvidia",
            "priorityClassName": "serving",
            "affinity": {"nodeAffinity": {}},
            "labels": {"team": "red", "hisparse.dev/deployment": "other"},
            "annotations": {"note": "mine"},
        }
    )
    spec = pod(owner)
    assert environment(owner)["HOME"] == "/home/engine"
    assert environment(owner)["NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert spec["volumes"][-1] == {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
    assert container(owner)["volumeMounts"][-1] == {"name": "models", "mountPath": "/models", "readOnly": True}
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    names = ("serviceAccountName", "runtimeClassName", "priorityClassName", "affinity")
    assert [spec[name] for name in names] == ["engines", "nvidia", "serving", {"nodeAffinity": {}}]
    metadata = children(owner)[-1]["spec"]["template"]["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("red", "mine")
    # the selector's labels are not anybody's to change
    assert metadata["labels"]["hisparse.dev/deployment"] == "agents"


@pytest.mark.parametrize("name", ["HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"])
def test_at33_a_secret_is_given_by_reference_or_not_at_all(name: str) -> None:
    reference = {"secretKeyRef": {"name": "keys", "key": "token"}}
    owner = engine(pod={"env": [{"name": name, "valueFrom": reference}]})
    assert environment(owner)[name] == reference
    with pytest.raises((ValidationError, ValueError), match=r"valueFrom\.secretKeyRef"):
        engine(pod={"env": [{"name": name, "value": "canary"}]})


def test_two_replicas_in_a_pod_have_pools_of_their_own() -> None:
    two = engine(
        engine={"vllm": {"gpu": "H200", "tensorParallelSize": 4, "dataParallelSize": 2, "kvCacheDtype": "fp8"}},
        hiSparse={"hostPoolGiB": 100},
        offload={"cpuBytesToUse": "50Gi"},
    )
    assert option(two, "--data-parallel-size") == "2"
    assert (told(two).all_host_pools_bytes, told(two).shared_pools_bytes) == (200 * GIB, 300 * GIB)


@pytest.mark.parametrize("mode", ["On", "Off"])
def test_a_settled_plan_of_vllm_comes_back_as_it_was_written(mode: str) -> None:
    owner = engine(hiSparse={"mode": mode})
    made = plan(owner.spec, deployment=owner.key, nodes=[node(memory_bytes=2000 * GIB)], pods=[])
    assert settled_plan.read(settled_plan.write(made, owner=owner), owner=owner) == made
