"""Bad input: a condition with numbers and the next step, and no pod from a plan that cannot work."""

import pytest

from tests.cluster.kit import Cluster, deployment, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def test_a_pool_larger_than_any_node_is_refused_with_the_arithmetic(operator: Cluster, namespace: str) -> None:
    resource = deployment("huge")
    resource["spec"]["hiSparse"] = {"hostPoolGiB": 4096}
    del resource["spec"]["hostMemory"]
    operator.apply(namespace, resource)
    message = _refused(operator, namespace, "huge", reason="InsufficientHostMemory")
    assert "4,096.00 GiB" in message
    assert "hostPoolGiB" in message


def test_no_eligible_node_says_what_the_nodes_lack(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("greedy", gpus=16))
    message = _refused(operator, namespace, "greedy", reason="NoEligibleNode")
    assert "16" in message
    assert "8" in message
    resource = deployment("elsewhere")
    resource["spec"]["nodeSelector"] = {"pool": "h200"}
    operator.apply(namespace, resource)
    assert "pool" in _refused(operator, namespace, "elsewhere", reason="NoEligibleNode")


def test_an_unreadable_model_config_names_the_field(operator: Cluster, namespace: str) -> None:
    resource = deployment("dense")
    del resource["spec"]["model"]["config"]["index_topk"]
    operator.apply(namespace, resource)
    assert "index_topk" in _refused(operator, namespace, "dense", reason="InvalidModelConfig")


def test_a_device_pool_too_small_for_one_request_is_refused(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("cramped", gpuKVCache="64Ki"))
    assert "gpuKVCache" in _refused(operator, namespace, "cramped", reason="InsufficientDeviceMemory")


def test_a_conflicting_argument_of_a_vllm_engine_changes_nothing(operator: Cluster, namespace: str) -> None:
    resource = deployment("planned")
    resource["spec"]["model"] = {"name": "zai-org/GLM-5.3"}
    resource["spec"]["engine"] = {
        "type": "VLLM",
        "maxModelLen": 8192,
        "gpuKVCache": "20Gi",
        "image": "localhost/nowhere:none",
        "vllm": {"gpu": "H200", "kvCacheDtype": "fp8"},
    }
    del resource["spec"]["hostMemory"]
    operator.apply(namespace, resource)
    wait_until(
        lambda: bool(operator.list(namespace, "deployments", selector="hisparse.dev/deployment=planned")),
        seconds=20,
        what=lambda: operator.describe(namespace, "planned"),
    )
    assert operator.condition(namespace, "planned", "PoolSized")["status"] == "True"
    plan = operator.status(namespace, "planned")["plan"]
    assert float(plan["concurrency"]["steady"]) > 1
    assert any("row: 656 B per token and layer" in line for line in plan["arithmetic"])
    before = operator.get(namespace, "deployment", "planned")["metadata"]["generation"]
    resource["spec"]["engine"]["vllm"]["extraArgs"] = ["--num-gpu-blocks-override=5"]
    operator.apply(namespace, resource)
    wait_until(
        lambda: operator.condition(namespace, "planned", "PoolSized")["reason"] == "InvalidSpec",
        seconds=20,
        what=lambda: operator.describe(namespace, "planned"),
    )
    assert "engine.gpuKVCache" in operator.condition(namespace, "planned", "PoolSized")["message"]
    assert operator.get(namespace, "deployment", "planned")["metadata"]["generation"] == before


def test_a_mended_spec_is_served(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("mended", gpus=16))
    _refused(operator, namespace, "mended", reason="NoEligibleNode")
    operator.apply(namespace, deployment("mended"))
    operator.wait_ready(namespace, "mended")


def test_a_node_that_gets_what_was_missing_wakes_the_object(operator: Cluster, namespace: str) -> None:
    resource = deployment("waiting")
    resource["spec"]["nodeSelector"] = {"hisparse.dev/test": namespace}
    operator.apply(namespace, resource)
    _refused(operator, namespace, "waiting", reason="NoEligibleNode")
    node = operator.kubectl("get", "nodes", "-o", "name").strip()
    operator.kubectl("label", node, f"hisparse.dev/test={namespace}")
    try:
        operator.wait_ready(namespace, "waiting")
    finally:
        operator.kubectl("label", node, "hisparse.dev/test-")


def test_an_infeasible_change_keeps_the_pods_that_serve(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("keeps"))
    operator.wait_ready(namespace, "keeps")
    before = operator.get(namespace, "deployment", "keeps")["metadata"]["generation"]
    operator.apply(namespace, deployment("keeps", gpus=16))
    wait_until(
        lambda: operator.condition(namespace, "keeps", "PoolSized")["reason"] == "NoEligibleNode",
        seconds=20,
        what=lambda: operator.describe(namespace, "keeps"),
    )
    assert operator.condition(namespace, "keeps", "Available")["status"] == "True"
    assert operator.condition(namespace, "keeps", "Ready")["status"] == "False"
    assert operator.get(namespace, "deployment", "keeps")["metadata"]["generation"] == before


def test_an_image_that_is_not_there_shows_in_the_condition(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("imageless", image="localhost/nowhere:none"))
    wait_until(
        lambda: operator.condition(namespace, "imageless", "Ready")["reason"] in {"ErrImagePull", "ImagePullBackOff"},
        seconds=60,
        what=lambda: operator.describe(namespace, "imageless"),
    )
    assert "localhost/nowhere:none" in operator.condition(namespace, "imageless", "Ready")["message"]


def test_a_service_of_somebody_else_is_not_taken_over(operator: Cluster, namespace: str) -> None:
    operator.kubectl("-n", namespace, "create", "service", "clusterip", "taken", "--tcp=80")
    before = operator.get(namespace, "service", "taken")
    operator.apply(namespace, deployment("taken"))
    wait_until(
        lambda: operator.condition(namespace, "taken", "Ready")["reason"] == "ApplyFailed",
        seconds=20,
        what=lambda: operator.describe(namespace, "taken"),
    )
    assert "Service taken exists" in operator.condition(namespace, "taken", "Ready")["message"]
    assert operator.get(namespace, "service", "taken") == before
    operator.kubectl("-n", namespace, "delete", "service", "taken")
    operator.wait_ready(namespace, "taken")


def _refused(operator: Cluster, namespace: str, name: str, *, reason: str) -> str:
    """The message of the refusal, once it stands on the object; no child was made."""
    wait_until(
        lambda: operator.condition(namespace, name, "PoolSized")["reason"] == reason,
        seconds=20,
        what=lambda: operator.describe(namespace, name),
    )
    condition = operator.condition(namespace, name, "PoolSized")
    assert condition["status"] == "False"
    assert operator.condition(namespace, name, "Ready")["reason"] == reason
    assert not operator.list(namespace, "deployments", selector=f"hisparse.dev/deployment={name}")
    message: str = condition["message"]
    return message
