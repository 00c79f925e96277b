"""Nodes, Deployments and HiSparseDeployments reduced to facts."""

from typing import Any

from hisparse_operator.cluster.slim import DeploymentFacts, slim_deployment, slim_node, slim_object
from hisparse_operator.planning import NodeFacts, Taint


def node(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "big", "labels": {"zone": "b", "disk": "ssd"}},
        "spec": {"taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}, {"key": "old", "effect": "NoExecute"}]},
        "status": {
            "allocatable": {"memory": "24684096Ki", "nvidia.com/gpu": "8", "cpu": "2", "ephemeral-storage": "90Gi"},
            "capacity": {"memory": "25Gi", "nvidia.com/gpu": "9"},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            **status,
        },
    }


def test_a_node_counts_with_what_is_allocatable_not_with_its_capacity() -> None:
    assert slim_node(node()) == NodeFacts(
        name="big",
        ready=True,
        unschedulable=False,
        labels=(("disk", "ssd"), ("zone", "b")),
        taints=(Taint("gpu", "only", "NoSchedule"), Taint("old", "", "NoExecute")),
        allocatable_memory_bytes=24684096 * 1024,
        allocatable_gpus=8,
    )


def test_a_heartbeat_makes_no_difference() -> None:
    beats = [{"type": "Ready", "status": "True", "lastHeartbeatTime": f"2027-01-01T00:00:{second:02}Z"} for second in (1, 11)]
    first, second = (slim_node(node(conditions=[beat], images=[{"names": [str(beat)]}])) for beat in beats)
    assert first == second


def test_a_node_that_is_not_ready_or_cordoned() -> None:
    assert not slim_node(node(conditions=[{"type": "Ready", "status": "Unknown"}])).ready
    assert not slim_node(node(conditions=[])).ready
    cordoned = node()
    cordoned["spec"]["unschedulable"] = True
    assert slim_node(cordoned).unschedulable


def test_a_node_that_just_registered_has_nothing_yet() -> None:
    facts = slim_node({"metadata": {"name": "new"}})
    assert (facts.ready, facts.labels, facts.taints, facts.allocatable_memory_bytes, facts.allocatable_gpus) == (
        False,
        (),
        (),
        0,
        0,
    )


def test_a_deployment_with_its_counts_and_what_the_operator_left_on_it() -> None:
    facts = slim_deployment(
        {
            "metadata": {
                "name": "agents",
                "namespace": "shop",
                "generation": 4,
                "annotations": {
                    "hisparse.dev/rendered-hash": "abc",
                    "hisparse.dev/plan": "{}",
                    "deployment.kubernetes.io/revision": "3",
                },
                "ownerReferences": [{"uid": "not-the-controller"}, {"uid": "uid-1", "controller": True}],
            },
            "status": {"observedGeneration": 3, "replicas": 5, "updatedReplicas": 2, "readyReplicas": 4, "availableReplicas": 4},
        }
    )
    assert facts == DeploymentFacts(
        owner_uid="uid-1", generation=4, observed_generation=3, replicas=5, updated=2, ready=4, rendered_hash="abc", plan="{}"
    )


def test_a_deployment_that_was_just_created_has_no_counts() -> None:
    facts = slim_deployment({"metadata": {"name": "agents", "generation": 1}})
    assert facts == DeploymentFacts(
        owner_uid="", generation=1, observed_generation=0, replicas=0, updated=0, ready=0, rendered_hash="", plan=""
    )


def test_an_object_is_kept_whole_but_for_field_owners_and_version() -> None:
    body = {
        "apiVersion": "hisparse.dev/v1alpha1",
        "kind": "HiSparseDeployment",
        "metadata": {
            "name": "agents",
            "uid": "u",
            "generation": 2,
            "resourceVersion": "9",
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"replicas": 2},
        "status": {"replicas": 1},
    }
    assert slim_object(body) == {**body, "metadata": {"name": "agents", "uid": "u", "generation": 2}}
    assert "managedFields" in body["metadata"], "the object of the caller is left alone"
