"""Pods reduced to facts: what they request as the scheduler counts it, and why they do not run."""

from typing import Any

import pytest

from hisparse_operator.cluster.slim import Trouble, slim_pod
from hisparse_operator.planning import PodRequest

MI, GI = 1 << 20, 1 << 30


def pod(*, labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """An engine pod on node `big`, as the API server lists it."""
    return {
        "metadata": {
            "name": "agents-7c9f-x2x",
            "namespace": "shop",
            "labels": {"hisparse.dev/deployment": "agents"} if labels is None else labels,
            "resourceVersion": "4711",
        },
        "spec": {"nodeName": "big", "containers": [container("776Mi", gpus="1")], **(spec or {})},
        "status": {"phase": "Running", **status},
    }


def container(memory: str | None, *, gpus: str | None = None, **fields: Any) -> dict[str, Any]:
    requests = {"memory": memory, "nvidia.com/gpu": gpus, "cpu": "500m"}
    return {"name": "c", "resources": {"requests": {name: amount for name, amount in requests.items() if amount}}, **fields}


def status_of(
    *, ready: bool = False, restarts: int = 0, state: dict[str, Any], last: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """`containerStatuses` of the one engine container."""
    return [{"name": "engine", "ready": ready, "restartCount": restarts, "state": state, "lastState": last or {}}]


def test_a_running_pod_of_an_object() -> None:
    facts = slim_pod(
        pod(
            conditions=[{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
            podIP="10.0.0.7",
            containerStatuses=status_of(ready=True, restarts=2, state={"running": {}}),
        )
    )
    assert facts.request == PodRequest("big", 776 * MI, 1, "shop/agents")
    assert (facts.owner, facts.name, facts.ip) == ("shop/agents", "agents-7c9f-x2x", "10.0.0.7")
    assert (facts.ready, facts.deleting, facts.restarts, facts.unschedulable, facts.trouble) == (True, False, 2, "", None)


def test_of_a_stranger_only_the_request_is_kept() -> None:
    facts = slim_pod(pod(labels={"app": "database"}, conditions=[{"type": "Ready", "status": "True"}], podIP="10.0.0.9"))
    assert facts.request == PodRequest("big", 776 * MI, 1, None)
    assert (facts.owner, facts.name, facts.ip, facts.ready) == (None, "", "", False)


def test_a_pod_without_labels_or_status_is_a_stranger_that_takes_nothing() -> None:
    facts = slim_pod({"metadata": {"name": "bare", "namespace": "shop"}, "spec": {"containers": [container("1Gi")]}})
    assert (facts.owner, facts.request) == (None, None)


@pytest.mark.parametrize(
    ("spec", "memory_bytes"),
    [
        pytest.param({"containers": [container("1Gi"), container("512Mi")]}, 1536 * MI, id="containers add up"),
        pytest.param({"containers": [container("1Gi"), container(None)]}, GI, id="no request is none"),
        pytest.param({"containers": []}, 0, id="nothing"),
        pytest.param(
            {"containers": [container("1Gi")], "initContainers": [container("3Gi")]}, 3 * GI, id="a greedy init container"
        ),
        pytest.param(
            {"containers": [container("4Gi")], "initContainers": [container("3Gi"), container("2Gi")]},
            4 * GI,
            id="inits run in turn",
        ),
        pytest.param(
            {"containers": [container("1Gi")], "initContainers": [container("256Mi", restartPolicy="Always")]},
            1280 * MI,
            id="a sidecar stays",
        ),
        pytest.param(
            {
                "containers": [container("1Gi")],
                "initContainers": [
                    container("512Mi", restartPolicy="Always"),
                    container("3Gi"),
                    container("1Gi", restartPolicy="Always"),
                ],
            },
            3584 * MI,  # max(1 + .5 + 1, .5 + 3): sidecars that start later do not run beside an earlier init container
            id="an init container beside the sidecars before it",
        ),
        pytest.param(
            {"containers": [container("1Gi")], "overhead": {"memory": "120Mi", "cpu": "250m"}}, 1144 * MI, id="overhead"
        ),
        pytest.param(
            {"containers": [container("1Gi")], "initContainers": [container("3Gi")], "overhead": {"memory": "1Gi"}},
            4 * GI,
            id="overhead on top of an init container",
        ),
        pytest.param(
            {"containers": [container("1Gi")], "resources": {"requests": {"memory": "6Gi"}}, "overhead": {"memory": "1Gi"}},
            7 * GI,
            id="a request of the whole pod",
        ),
        pytest.param(
            {"containers": [container("1Gi")], "resources": {"requests": {"cpu": "2"}}}, GI, id="a whole pod's CPU only"
        ),
        pytest.param({"containers": [container("24684096Ki")]}, 25276514304, id="Ki"),
        pytest.param({"containers": [container("2G")]}, 2_000_000_000, id="decimal"),
        pytest.param({"containers": [container("1073741824")]}, GI, id="plain bytes"),
        pytest.param({"containers": [container("1500m")]}, 2, id="milli, rounded up as Kubernetes does"),
        pytest.param({"containers": [container("1e3")]}, 1000, id="exponent"),
    ],
)
def test_memory_request_is_what_the_scheduler_counts(spec: dict[str, Any], memory_bytes: int) -> None:
    request = slim_pod(pod(spec=spec)).request
    assert request is not None
    assert request.memory_bytes == memory_bytes


def test_gpus_are_counted_with_init_containers_and_without_a_whole_pods_request() -> None:
    spec = {
        "containers": [container("1Gi", gpus="2"), container("1Gi", gpus="1")],
        "initContainers": [container("1Gi", gpus="8")],
        "resources": {"requests": {"memory": "6Gi"}},
    }
    assert slim_pod(pod(spec=spec)).request == PodRequest("big", 6 * GI, 8, "shop/agents")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_requests_nothing(phase: str) -> None:
    assert slim_pod(pod(phase=phase)).request is None


def test_a_pod_that_is_being_deleted_still_takes_its_memory() -> None:
    body = pod()
    body["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    facts = slim_pod(body)
    assert facts.deleting
    assert facts.request == PodRequest("big", 776 * MI, 1, "shop/agents")


def test_the_schedulers_words_are_kept_for_a_pod_without_a_node() -> None:
    message = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu."
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    facts = slim_pod(pod(spec={"nodeName": None}, phase="Pending", conditions=[scheduled]))
    assert facts.unschedulable == message
    assert facts.request is None
    assert slim_pod(pod(conditions=[{**scheduled, "message": "x" * 1001}])).unschedulable == "x" * 1000


@pytest.mark.parametrize(
    ("containers", "trouble"),
    [
        pytest.param(status_of(state={"waiting": {"reason": "ContainerCreating"}}), None, id="creating"),
        pytest.param(status_of(state={"waiting": {"reason": "PodInitializing"}}), None, id="initializing"),
        pytest.param(status_of(state={"waiting": {}}), None, id="waiting, no reason given"),
        pytest.param(status_of(state={"running": {}}), None, id="started, not ready yet"),
        pytest.param(
            status_of(state={"waiting": {"reason": "ErrImageNeverPull", "message": "Container image is not present"}}),
            Trouble("ErrImageNeverPull", "Container image is not present"),
            id="no image",
        ),
        pytest.param(
            status_of(state={"terminated": {"reason": "Error", "exitCode": 2, "message": " no such model\n"}}),
            Trouble("Error", "exit code 2: no such model"),
            id="ended once",
        ),
        pytest.param(
            status_of(
                restarts=3,
                state={"waiting": {"reason": "CrashLoopBackOff"}},
                last={"terminated": {"reason": "Error", "exitCode": 1}},
            ),
            Trouble("CrashLoopBackOff", "exit code 1"),
            id="ends again and again",
        ),
        pytest.param(
            status_of(restarts=3, state={"running": {}}, last={"terminated": {"reason": "Error", "exitCode": 1}}),
            Trouble("CrashLoopBackOff", "exit code 1"),
            id="the same reason while the next attempt runs",
        ),
        pytest.param(
            status_of(restarts=1, state={"running": {}}, last={"terminated": {"reason": "OOMKilled", "exitCode": 137}}),
            Trouble("OOMKilled", "exit code 137"),
            id="AT-21: second attempt runs, the reason stands in lastState only",
        ),
        pytest.param(
            status_of(
                restarts=1,
                state={"waiting": {"reason": "CrashLoopBackOff"}},
                last={"terminated": {"reason": "OOMKilled", "exitCode": 137}},
            ),
            Trouble("OOMKilled", "exit code 137"),
            id="AT-21: out of memory says more than back-off",
        ),
        pytest.param(
            status_of(
                restarts=1,
                state={"waiting": {"reason": "ImagePullBackOff", "message": "gone"}},
                last={"terminated": {"reason": "OOMKilled"}},
            ),
            Trouble("ImagePullBackOff", "gone"),
            id="what keeps it from starting now",
        ),
        pytest.param(
            status_of(
                ready=True, restarts=1, state={"running": {}}, last={"terminated": {"reason": "OOMKilled", "exitCode": 137}}
            ),
            None,
            id="ready again",
        ),
    ],
)
def test_trouble_of_a_container(containers: list[dict[str, Any]], trouble: Trouble | None) -> None:
    facts = slim_pod(pod(containerStatuses=containers))
    assert facts.trouble == trouble
    assert facts.restarts == containers[0]["restartCount"]


STATUS_PORTS = {"containers": [{**container("1Gi"), "ports": [{"name": "status", "containerPort": 8001}]}]}


@pytest.mark.parametrize("place", ["state", "last"])
def test_what_a_vllm_pod_says_of_its_end_is_the_reason_during_the_next_attempt_too(place: str) -> None:
    said = "SharedMemoryTooSmall: 64.0 MiB\nWrongVllmVersion: 0.32.0 is installed"
    ended = {"terminated": {"reason": "Error", "exitCode": 3, "message": said}}
    parts = {"state": ended} if place == "state" else {"state": {"running": {}}, "last": ended, "restarts": 1}
    trouble = slim_pod(pod(spec=STATUS_PORTS, containerStatuses=status_of(**parts))).trouble
    assert trouble == Trouble("SharedMemoryTooSmall", "64.0 MiB\nWrongVllmVersion: 0.32.0 is installed")
    # of another engine, words of that form are words
    trouble = slim_pod(pod(containerStatuses=status_of(**parts))).trouble
    assert trouble is not None
    assert trouble.reason == ("Error" if place == "state" else "CrashLoopBackOff")


def test_what_kubernetes_knows_of_an_end_is_said_first() -> None:
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": "EngineEnded: by itself"}}
    trouble = slim_pod(pod(spec=STATUS_PORTS, containerStatuses=status_of(state=killed))).trouble
    assert trouble == Trouble("OOMKilled", "exit code 137: EngineEnded: by itself")


def test_residency_is_asked_where_the_pod_has_a_port_for_it() -> None:
    ports = [{"name": "http", "containerPort": 8000}, {"name": "status", "containerPort": 8001}]
    assert slim_pod(pod(spec={"containers": [{**container("1Gi"), "ports": ports}]})).report_port == 8001
    assert slim_pod(pod(spec={"containers": [{**container("1Gi"), "ports": ports[:1]}]})).report_port == 8000


def test_long_messages_are_cut() -> None:
    (cut,) = status_of(state={"terminated": {"reason": "Error", "exitCode": 1, "message": "y" * 5000}})
    trouble = slim_pod(pod(containerStatuses=[cut])).trouble
    assert trouble == Trouble("Error", "exit code 1: " + "y" * 1000)
