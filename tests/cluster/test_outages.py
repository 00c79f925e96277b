"""The API server goes away, and comes back to a world that moved on."""

import subprocess
import time

import pytest

from tests.cluster.kit import OPERATOR_NAMESPACE, Cluster, deployment, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

OUTAGE_SECONDS = 60
# Controllers, scheduler and kubelet come back to the server with delays of their own.
RECOVERY_SECONDS = 150


def test_the_operator_survives_a_minute_of_refused_connections(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("outage", maxNumSeqs=4))
    operator.wait_ready(namespace, "outage")
    before = _operator_pod(operator)
    operator.box.stop_component("apiserver")
    time.sleep(OUTAGE_SECONDS)
    operator.box.start_component("apiserver")
    _wait_answering(operator)
    operator.apply(namespace, deployment("outage", maxNumSeqs=8))
    operator.wait_ready(namespace, "outage", seconds=RECOVERY_SECONDS)
    args = operator.get(namespace, "deployment", "outage")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[args.index("--max-num-seqs") + 1] == "8"
    assert _operator_pod(operator) == before  # the same pod, never restarted


def test_an_object_deleted_while_the_watch_was_down_leaves_no_ghost(operator: Cluster, namespace: str) -> None:
    operator.apply(namespace, deployment("ghost"))
    operator.apply(namespace, deployment("alive"))
    operator.wait_ready(namespace, "ghost")
    operator.wait_ready(namespace, "alive")
    _signal_operator(operator, "STOP")
    try:
        operator.kubectl("-n", namespace, "delete", "hsd", "ghost", "--timeout=20s")
        wait_until(
            lambda: not _children(operator, namespace, "ghost"),
            seconds=60,
            what=lambda: str(_children(operator, namespace, "ghost")),
        )
        # a server that starts anew has no memory of the events between, so the frozen operator can only find out by listing
        operator.box.stop_component("apiserver")
        operator.box.start_component("apiserver")
        _wait_answering(operator)
    finally:
        _signal_operator(operator, "CONT")
    # once a change of the other object is followed, the operator has listed; then nothing may come back
    operator.apply(namespace, deployment("alive", maxNumSeqs=8))
    wait_until(
        lambda: operator.condition(namespace, "alive", "PoolSized")["status"] == "True",
        seconds=90,
        what=lambda: operator.describe(namespace, "alive"),
    )
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        assert _children(operator, namespace, "ghost") == []
        time.sleep(0.5)
    operator.wait_ready(namespace, "alive", seconds=RECOVERY_SECONDS)


def _operator_pod(operator: Cluster) -> tuple[str, int]:
    """Uid and restarts of the operator's pod."""
    pod = operator.list(OPERATOR_NAMESPACE, "pods", selector="app.kubernetes.io/name=hisparse-operator")[0]
    return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]


def _signal_operator(operator: Cluster, signal: str) -> None:
    operator.box.exec(["pkill", f"-{signal}", "-f", "bin/hisparse-operator"])


def _children(operator: Cluster, namespace: str, name: str) -> list[str]:
    selector = f"hisparse.dev/deployment={name}"
    return [
        f"{item['kind']} {item['metadata']['name']}"
        for kind in ("deployment", "service", "configmap", "pods")
        for item in operator.list(namespace, kind, selector=selector)
    ]


def _wait_answering(operator: Cluster) -> None:
    def answers() -> bool:
        try:
            return operator.kubectl("get", "--raw", "/readyz") == "ok"
        except subprocess.CalledProcessError:
            return False

    wait_until(answers, seconds=60, what=lambda: "the API server does not answer")
