"""Which nodes can run a pod: the scheduler's own filters, as far as they decide on sizes."""

from collections import Counter
from collections.abc import Sequence

from hisparse_operator.api.spec import HiSparseDeploymentSpec, Toleration
from hisparse_operator.planning.facts import NodeFacts, Taint
from hisparse_operator.planning.plan import Infeasible, InfeasibleReason

# PreferNoSchedule only ranks nodes.
_EXCLUDING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


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
    # most frequent first, then by text, so that the message is the same each time
    counted = sorted(
        Counter(obstacle for obstacle in obstacles.values() if obstacle is not None).items(), key=lambda item: (-item[1], item[0])
    )
    out = ", ".join(f"{count} {what}" for (what, _), count in counted)
    steps = "; ".join(dict.fromkeys(step for (_, step), _ in counted))
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


def _obstacle(spec: HiSparseDeploymentSpec, node: NodeFacts) -> tuple[str, str] | None:
    """What keeps a pod off the node, and what would help; None when nothing does. The first obstacle counts."""
    if not node.ready:
        return "not ready", "see `kubectl describe node`"
    if node.unschedulable:
        return "cordoned", "`kubectl uncordon` a node"
    labels = dict(node.labels)
    missing = [f"{key}={value}" for key, value in sorted(spec.node_selector.items()) if labels.get(key) != value]
    if missing:
        return f"without label {', '.join(missing)}", "label a node or change spec.nodeSelector"
    for taint in node.taints:
        if taint.effect in _EXCLUDING_EFFECTS and not tolerates(spec.tolerations, taint):
            text = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            return f"with taint {text} that is not tolerated", "add it to spec.tolerations or remove the taint"
    if node.allocatable_gpus < spec.engine.gpus:
        found = f"has {node.allocatable_gpus} nvidia.com/gpu of {spec.engine.gpus} needed"
        return found, "lower spec.engine.gpus or add a node with enough GPUs"
    return None
