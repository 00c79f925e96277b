"""Which nodes can run a pod: the scheduler's own filters, as far as they decide on sizes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hisparse_operator.api.pod import Toleration
from hisparse_operator.api.spec import HiSparseDeploymentSpec
from hisparse_operator.planning.facts import NodeFacts, Taint
from hisparse_operator.planning.plan import Infeasible, InfeasibleReason

# PreferNoSchedule only ranks nodes.
_EXCLUDING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Obstacle:
    """What keeps a pod off a node ("1 has 8 of 16", "2 have 8 of 16"), and what would help."""

    one: str
    several: str
    step: str


def eligible_nodes(spec: HiSparseDeploymentSpec, nodes: Sequence[NodeFacts]) -> tuple[NodeFacts, ...]:
    """Nodes that can run a pod, by name. Raises Infeasible(NoEligibleNode), counting the nodes by what keeps them out."""
    obstacles = {node.name: _obstacle(spec, node) for node in nodes}
    eligible = tuple(sorted((node for node in nodes if obstacles[node.name] is None), key=lambda node: node.name))
    if eligible:
        return eligible
    if not nodes:
        raise Infeasible(
            InfeasibleReason.NO_ELIGIBLE_NODE, "0 nodes: the cluster has none; add a node, or let the operator list nodes"
        )
    counts = Counter(obstacle for obstacle in obstacles.values() if obstacle is not None)
    # most frequent first, then by text, so that the message is the same each time
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].one))
    out = ", ".join(f"{count} {obstacle.one if count == 1 else obstacle.several}" for obstacle, count in ranked)
    steps = "; ".join(dict.fromkeys(obstacle.step for obstacle, _ in ranked))
    noun = "node" if len(nodes) == 1 else "nodes"
    raise Infeasible(InfeasibleReason.NO_ELIGIBLE_NODE, f"{len(nodes)} {noun}: {out}. Next: {steps}")


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations matches, by the rules of Kubernetes: an empty key or effect matches every one."""
    return any(_matches(toleration, taint) for toleration in tolerations)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == taint.value


def _obstacle(spec: HiSparseDeploymentSpec, node: NodeFacts) -> _Obstacle | None:
    """The first thing that keeps a pod off the node; None when nothing does."""
    if not node.ready:
        return _Obstacle(one="is not ready", several="are not ready", step="see `kubectl describe node`")
    if node.unschedulable:
        return _Obstacle(one="is cordoned", several="are cordoned", step="`kubectl uncordon` a node")
    labels = dict(node.labels)
    missing = ", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()) if labels.get(key) != value)
    if missing:
        step = "label a node or change spec.nodeSelector"
        return _Obstacle(one=f"lacks label {missing}", several=f"lack label {missing}", step=step)
    for taint in node.taints:
        if taint.effect in _EXCLUDING_EFFECTS and not tolerates(spec.tolerations, taint):
            text = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            what = f"taint {text} that is not tolerated"
            return _Obstacle(one=f"has {what}", several=f"have {what}", step="add it to spec.tolerations or remove the taint")
    if node.allocatable_gpus < spec.engine.pod_gpus:
        what = f"{node.allocatable_gpus} nvidia.com/gpu of {spec.engine.pod_gpus} needed"
        return _Obstacle(one=f"has {what}", several=f"have {what}", step="lower spec.engine.gpus or add a node with enough GPUs")
    return None
