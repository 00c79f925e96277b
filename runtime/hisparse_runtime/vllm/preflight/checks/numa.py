"""How the node's memory is spread: no vLLM up to 0.33 says where the pages of a pool go, they follow who touches them first."""

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight.checks.needs import memory_needed
from hisparse_runtime.vllm.preflight.facts import Facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, refused, warning


def check_numa(plan: PodPlan, facts: Facts) -> Finding | None:
    allowed = [node for node in facts.numa_nodes if node.is_allowed]
    if not allowed:
        return None
    needed = memory_needed(plan)
    allowed_bytes = sum(node.total_bytes for node in allowed)
    names = ", ".join(str(node.number) for node in allowed)
    if len(allowed) < len(facts.numa_nodes) and needed.total_bytes > allowed_bytes:
        return refused(
            Reason.NUMA_MEMORY_TOO_SMALL,
            f"the container may take memory of NUMA node {names} only, {human_bytes(allowed_bytes)} of"
            f" {human_bytes(sum(node.total_bytes for node in facts.numa_nodes))}, and needs {needed.arithmetic}: turn off the"
            " kubelet's static memory manager or its single-numa-node policy for this node, or lower the pools",
        )
    largest_bytes = max(node.total_bytes for node in allowed)
    if len(allowed) > 1 and needed.pools_bytes > largest_bytes:
        return warning(
            Reason.NUMA_SPREAD,
            f"pools of {human_bytes(needed.pools_bytes)} are larger than any NUMA node ({human_bytes(largest_bytes)}), so some"
            " GPUs read rows from the other socket: slower misses; more replicas, each on one socket, avoid it",
        )
    return None
