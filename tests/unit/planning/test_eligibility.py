"""Which nodes take part: a table, and the words for the case that none does."""

from typing import Any

import pytest

from hisparse_operator.api import Toleration
from hisparse_operator.planning import Infeasible, NodeFacts, Taint
from hisparse_operator.planning.eligibility import eligible_nodes, tolerates
from tests.unit.planning.samples import sample_node, sample_spec

GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Equal", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "value": "absent"}, False),
        ({"key": "nvidia.com/gpu"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_a_toleration_matches_by_the_rules_of_kubernetes(toleration: dict[str, Any], is_tolerated: bool) -> None:  # noqa: FBT001  (a column of the table)
    assert tolerates([Toleration.model_validate(toleration)], GPU_TAINT) is is_tolerated


def test_equal_without_a_value_tolerates_a_taint_without_one() -> None:
    assert tolerates([Toleration(key="dedicated")], Taint("dedicated", "", "NoSchedule"))


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (sample_node(ready=False, gpus=2), "1 is not ready"),
        (sample_node(unschedulable=True, gpus=2), "1 is cordoned"),
        (sample_node(labels={"zone": "b"}, gpus=2), "1 lacks label disk=ssd, zone=a"),
        (sample_node(labels={"zone": "a", "disk": "ssd"}, gpus=1), "1 has 1 nvidia.com/gpu of 2 needed"),
        (
            sample_node(labels={"zone": "a", "disk": "ssd"}, gpus=2, taints=[Taint("maintenance", "", "NoExecute")]),
            "1 has taint maintenance:NoExecute that is not tolerated",
        ),
    ],
)
def test_at04_a_node_that_cannot_run_a_pod_is_left_out_and_the_message_says_why(node: NodeFacts, text: str) -> None:
    spec = sample_spec(engine={"gpus": 2}, nodeSelector={"zone": "a", "disk": "ssd"})
    good = sample_node("node-good", gpus=2, labels={"zone": "a", "disk": "ssd", "more": "labels"})
    assert eligible_nodes(spec, [node, good]) == (good,)
    with pytest.raises(Infeasible) as caught:
        eligible_nodes(spec, [node])
    assert caught.value.reason == "NoEligibleNode"
    assert caught.value.message.startswith(f"1 node: {text}. Next: ")


def test_a_taint_that_only_ranks_nodes_keeps_no_pod_away() -> None:
    node = sample_node(taints=[Taint("old", "", "PreferNoSchedule")])
    assert eligible_nodes(sample_spec(), [node]) == (node,)


def test_every_taint_of_a_node_must_be_tolerated() -> None:
    node = sample_node(taints=[GPU_TAINT, Taint("maintenance", "", "NoExecute")])
    with pytest.raises(Infeasible, match="1 has taint maintenance:NoExecute"):
        eligible_nodes(sample_spec(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]), [node])
    assert eligible_nodes(sample_spec(tolerations=[{"operator": "Exists"}]), [node]) == (node,)


def test_nodes_are_counted_by_reason_the_most_frequent_first_whatever_their_order() -> None:
    nodes = [
        sample_node("a", gpus=8),
        sample_node("b", gpus=16, unschedulable=True),
        sample_node("c", gpus=8),
        sample_node("d", gpus=4),
    ]
    for order in (nodes, nodes[::-1]):
        with pytest.raises(Infeasible) as caught:
            eligible_nodes(sample_spec(engine={"gpus": 16}), order)
        assert caught.value.message == (
            "4 nodes: 2 have 8 nvidia.com/gpu of 16 needed, 1 has 4 nvidia.com/gpu of 16 needed, 1 is cordoned."
            " Next: lower spec.engine.gpus or add a node with enough GPUs; `kubectl uncordon` a node"
        )


def test_a_cluster_without_nodes_is_named_as_such() -> None:
    with pytest.raises(Infeasible, match="0 nodes: the cluster has none"):
        eligible_nodes(sample_spec(), [])
