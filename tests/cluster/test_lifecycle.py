"""From kubectl apply to a serving pod, through changes and accidents, to nothing left."""

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.cluster.kit import HOST_PAGE_BYTES, INDEXER_PAGE_BYTES, OPERATOR_NAMESPACE, Cluster, deployment, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

CHILDREN = ("deployment", "service", "configmap")
OURS = "app.kubernetes.io/part-of=hisparse"


def test_an_object_becomes_ready_with_a_plan_and_children_of_its_own(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("one"))
    operator.wait_ready(namespace, "one")
    resource = operator.get(namespace, "hsd", "one")
    status = resource["status"]
    plan = status["plan"]
    assert status["observedGeneration"] == resource["metadata"]["generation"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (1, 1, 1)
    assert plan["memoryBytes"] <= 400 * 2**20
    assert plan["hostPoolBytes"] + plan["cpuBytesToUse"] <= plan["shmBytes"] < plan["memoryBytes"]
    assert len(plan["arithmetic"]) >= 4
    assert {condition["type"] for condition in status["conditions"]} == {"PoolSized", "Available", "Ready", "TelemetryAvailable"}
    # nothing of ours on the object but its status: deletion must never wait for the operator
    assert "finalizers" not in resource["metadata"]
    assert set(resource["metadata"].get("annotations", {})) <= {"kubectl.kubernetes.io/last-applied-configuration"}
    for kind in CHILDREN:
        owners = operator.get(namespace, kind, "one")["metadata"]["ownerReferences"]
        assert [(owner["uid"], owner["controller"]) for owner in owners] == [(resource["metadata"]["uid"], True)]
    container = operator.get(namespace, "deployment", "one")["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"] == str(plan["memoryBytes"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_engine_measures_pools_of_exactly_the_planned_size(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("exact"))
    operator.wait_ready(namespace, "exact")
    residency, plan = operator.residency(namespace, "exact"), operator.status(namespace, "exact")["plan"]
    # block 0 of the host pool is the null block, which never holds data
    assert residency["hostPool"]["capacityBytes"] == plan["hostPoolBytes"] - HOST_PAGE_BYTES
    assert plan["cpuBytesToUse"] % INDEXER_PAGE_BYTES == 0
    assert residency["offload"]["capacityBytes"] == plan["cpuBytesToUse"]
    assert operator.condition(namespace, "exact", "TelemetryAvailable")["status"] == "True"


def test_traffic_shows_on_the_object_within_thirty_seconds(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("busy"))
    operator.wait_ready(namespace, "busy")
    port = operator.box.forward(namespace=namespace, service="busy", port=8000)
    body = {"model": "tiny", "prompt": [65] * 900, "max_tokens": 100}
    stop = threading.Event()

    def client() -> int:
        num_answered = 0
        while not stop.is_set():
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=60, trust_env=False).json()
            assert answer["usage"]["completion_tokens"] == 100
            num_answered += 1
        return num_answered

    def used_bytes() -> int:
        used: int = operator.residency(namespace, "busy")["hostPool"]["usedBytes"]
        return used

    # the engine is fast and a scrape is a moment: several clients without a pause, so that it always meets a request at work
    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(client) for _ in range(3)]
        try:
            wait_until(lambda: used_bytes() > 0, seconds=30, what=lambda: operator.describe(namespace, "busy"))
        finally:
            stop.set()
    assert all(done.result() > 0 for done in clients)
    wait_until(lambda: used_bytes() == 0, seconds=30, what=lambda: operator.describe(namespace, "busy"))


def test_a_changed_spec_rolls_out(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("change", maxNumSeqs=4))
    operator.wait_ready(namespace, "change")
    before = _pod_uids(operator, namespace)
    operator.apply(namespace, deployment("change", maxNumSeqs=8))
    operator.wait_ready(namespace, "change")
    args = operator.get(namespace, "deployment", "change")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[args.index("--max-num-seqs") + 1] == "8"
    assert not before & _pod_uids(operator, namespace)


def test_a_changed_model_config_rolls_out_although_only_the_config_map_differs(operator: Cluster, namespace: str) -> None:
    resource = deployment("config")
    operator.apply(namespace, resource)
    operator.wait_ready(namespace, "config")
    before = _pod_uids(operator, namespace)
    resource["spec"]["model"]["config"]["rope_theta"] = 20000
    operator.apply(namespace, resource)
    operator.wait_ready(namespace, "config")
    assert not before & _pod_uids(operator, namespace)


def test_scaling_by_the_subresource_keeps_running_pods_and_their_plan(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("scaled"))
    operator.wait_ready(namespace, "scaled")
    before, plan = _pod_uids(operator, namespace), operator.status(namespace, "scaled")["plan"]
    operator.kubectl("-n", namespace, "scale", "hsd", "scaled", "--replicas=2")
    wait_until(
        lambda: operator.status(namespace, "scaled").get("readyReplicas") == 2,
        seconds=60,
        what=lambda: operator.describe(namespace, "scaled"),
    )
    assert before < _pod_uids(operator, namespace)
    assert operator.status(namespace, "scaled")["plan"] == plan
    operator.kubectl("-n", namespace, "scale", "hsd", "scaled", "--replicas=0")
    wait_until(
        lambda: operator.condition(namespace, "scaled", "Ready")["reason"] == "ScaledToZero",
        seconds=30,
        what=lambda: operator.describe(namespace, "scaled"),
    )


def test_a_killed_pod_is_replaced_and_the_object_says_so_meanwhile(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("killed"))
    operator.wait_ready(namespace, "killed")
    before = _pod_uids(operator, namespace)
    operator.kubectl("-n", namespace, "delete", "pod", "-l", OURS, "--force", "--grace-period=0")
    wait_until(
        lambda: operator.condition(namespace, "killed", "Ready")["status"] == "False",
        seconds=20,
        what=lambda: operator.describe(namespace, "killed"),
    )
    operator.wait_ready(namespace, "killed")
    assert not before & _pod_uids(operator, namespace)


def test_drift_of_a_child_is_put_right(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("drift"))
    operator.wait_ready(namespace, "drift")
    operator.kubectl("-n", namespace, "scale", "deployment", "drift", "--replicas=0")
    wait_until(
        lambda: operator.get(namespace, "deployment", "drift")["spec"]["replicas"] == 1,
        seconds=20,
        what=lambda: operator.describe(namespace, "drift"),
    )
    operator.kubectl("-n", namespace, "delete", "deployment", "drift")
    operator.wait_ready(namespace, "drift")
    assert operator.get(namespace, "deployment", "drift")["spec"]["replicas"] == 1


def test_a_deleted_object_takes_its_children_along(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("gone"))
    operator.wait_ready(namespace, "gone")
    started = time.monotonic()
    operator.kubectl("-n", namespace, "delete", "hsd", "gone", "--timeout=20s")
    assert time.monotonic() - started < 10
    wait_until(lambda: not _children(operator, namespace), seconds=60, what=lambda: str(_children(operator, namespace)))


def test_a_restarted_operator_changes_nothing(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("steady"))
    operator.wait_ready(namespace, "steady")
    operator.residency(namespace, "steady")  # from here on nothing is left to happen
    before = _versions(operator, namespace)
    pods = _pod_uids(operator, namespace)
    operator.kubectl("-n", OPERATOR_NAMESPACE, "rollout", "restart", "deployment/hisparse-hisparse-operator")
    operator.kubectl("-n", OPERATOR_NAMESPACE, "rollout", "status", "deployment/hisparse-hisparse-operator", "--timeout=80s")
    # the new process has looked at the object once its numbers carry a newer time
    stamp = operator.residency(namespace, "steady")["observedAt"]
    wait_until(
        lambda: operator.residency(namespace, "steady")["observedAt"] > stamp,
        seconds=60,
        what=lambda: operator.describe(namespace, "steady"),
    )
    assert _versions(operator, namespace) == before
    assert _pod_uids(operator, namespace) == pods


def test_two_replicas_on_one_node_share_its_memory(operator: Cluster, namespace: str) -> None:
    resource = deployment("pair")
    resource["spec"]["replicas"] = 2
    operator.apply(namespace, resource)
    operator.wait_ready(namespace, "pair")
    status = operator.status(namespace, "pair")
    assert status["readyReplicas"] == 2
    wait_until(
        lambda: operator.residency(namespace, "pair")["podsReporting"] == 2,
        seconds=30,
        what=lambda: operator.describe(namespace, "pair"),
    )
    usable_bytes = status["plan"]["hostPoolBytes"] - HOST_PAGE_BYTES
    assert operator.residency(namespace, "pair")["hostPool"]["capacityBytes"] == 2 * usable_bytes


def test_the_operator_may_do_what_it_needs_and_no_more(operator: Cluster) -> None:
    identity = f"--as=system:serviceaccount:{OPERATOR_NAMESPACE}:hisparse-hisparse-operator"
    for verb, resource, *subresource in (
        ("list", "pods"),
        ("watch", "nodes"),
        ("patch", "deployments.apps"),
        ("patch", "hisparsedeployments.hisparse.dev", "--subresource=status"),
    ):
        assert operator.kubectl("auth", "can-i", verb, resource, *subresource, identity, "-A").strip() == "yes"
    for verb, resource, *subresource in (
        ("get", "secrets"),
        ("list", "secrets"),
        ("create", "pods"),
        ("create", "pods", "--subresource=exec"),
        ("delete", "deployments.apps"),
        ("patch", "hisparsedeployments.hisparse.dev"),
        ("update", "nodes"),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ):
        with pytest.raises(subprocess.CalledProcessError) as refused:  # kubectl says no by its exit status
            operator.kubectl("auth", "can-i", verb, resource, *subresource, identity, "-A")
        assert refused.value.stdout.strip() == "no"


def _pod_uids(operator: Cluster, namespace: str) -> set[str]:
    pods = operator.list(namespace, "pods", selector=OURS)
    return {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def _children(operator: Cluster, namespace: str) -> list[str]:
    return [
        f"{item['kind']} {item['metadata']['name']}"
        for kind in (*CHILDREN, "pods")
        for item in operator.list(namespace, kind, selector=OURS)
    ]


def _versions(operator: Cluster, namespace: str) -> dict[str, str]:
    """resourceVersion of every child, and the conditions of the object: its residency is re-stamped on purpose."""
    versions = {kind: operator.get(namespace, kind, "steady")["metadata"]["resourceVersion"] for kind in CHILDREN}
    conditions = operator.status(namespace, "steady")["conditions"]
    return versions | {"conditions": json.dumps([c for c in conditions if c["type"] != "TelemetryAvailable"])}
