"""spec + nodes -> Plan with its arithmetic. Pure: no client, no clock, no environment."""

from hisparse_operator.planning.facts import NodeFacts, PodRequest, Taint
from hisparse_operator.planning.plan import Infeasible, InfeasibleReason, Plan, plan_from_json, plan_to_json
from hisparse_operator.planning.planner import plan

__all__ = [
    "Infeasible",
    "InfeasibleReason",
    "NodeFacts",
    "Plan",
    "PodRequest",
    "Taint",
    "plan",
    "plan_from_json",
    "plan_to_json",
]
