"""The node's memory: vLLM looks at it once the weights are loaded, and no request or limit keeps neighbours from using it."""

import math

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight.checks.needs import memory_needed
from hisparse_runtime.vllm.preflight.facts import Facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, refused, warning

# vLLM's check_hisparse_host_memory: a pool may be 0.95 of what is available.
_USABLE_PERCENT = 95
_NOTEWORTHY_HUGE_PAGES_PERCENT = 1


def check_node_memory(plan: PodPlan, facts: Facts) -> Finding | None:
    """Pools are filled one after the other, so the last one is checked against what the others left."""
    if facts.node is None:
        return None
    available_bytes = facts.node.available_bytes
    needed = memory_needed(plan)
    next_step = "keep other pods off the node, or lower the pools"
    if facts.node.huge_pages_bytes:
        next_step += f"; {human_bytes(facts.node.huge_pages_bytes)} of it are huge pages, which pools cannot use"
    num_pools = plan.host_pool_copies * plan.data_parallel_size if plan.host_pool_bytes else 0
    if num_pools:
        left_bytes = available_bytes - (num_pools - 1) * plan.host_pool_bytes
        if plan.host_pool_bytes * 100 > left_bytes * _USABLE_PERCENT:
            at_least_bytes = math.ceil(plan.host_pool_bytes * 100 / _USABLE_PERCENT) + (num_pools - 1) * plan.host_pool_bytes
            return refused(
                Reason.NODE_MEMORY_TOO_SMALL,
                f"vLLM would refuse its host pool after the weights are loaded: {num_pools} x"
                f" {human_bytes(plan.host_pool_bytes)} needs {human_bytes(at_least_bytes)} of available memory (the last pool"
                f" may take {_USABLE_PERCENT} % of what is left), and the node has {human_bytes(available_bytes)}: {next_step}",
            )
    if needed.total_bytes > available_bytes:
        return refused(
            Reason.NODE_MEMORY_TOO_SMALL,
            f"the engine needs {needed.arithmetic}, and the node has {human_bytes(available_bytes)} available: {next_step}",
        )
    return None


def check_huge_pages(plan: PodPlan, facts: Facts) -> Finding | None:
    node = facts.node
    if node is None or not memory_needed(plan).pools_bytes:
        return None
    if node.huge_pages_bytes * 100 < node.total_bytes * _NOTEWORTHY_HUGE_PAGES_PERCENT:
        return None
    return warning(
        Reason.HUGE_PAGES_RESERVED,
        f"{human_bytes(node.huge_pages_bytes)} of the node's {human_bytes(node.total_bytes)} are reserved as huge pages, which"
        " vLLM's pools cannot use: set vm.nr_hugepages of the node to 0 to have larger pools",
    )
