"""The answer of planning: a memory plan, or the reason why there is none."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from hisparse_operator.api.status import PlanStatus


class InfeasibleReason(StrEnum):
    """Reasons of conditions: part of the API, never renamed."""

    INVALID_MODEL_CONFIG = "InvalidModelConfig"
    INVALID_SPEC = "InvalidSpec"
    NO_ELIGIBLE_NODE = "NoEligibleNode"
    INSUFFICIENT_HOST_MEMORY = "InsufficientHostMemory"
    INSUFFICIENT_DEVICE_MEMORY = "InsufficientDeviceMemory"


class Infeasible(Exception):  # noqa: N818  (an answer of planning, not a fault in it)
    """No pod can be run as the spec wants it. `message` has the numbers and the next step."""

    def __init__(self, reason: InfeasibleReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of one pod, and where they come from.

    `host_pool_gib` stands for exactly `host_pool_bytes`. `node` is the node whose share decided the sizes.
    """

    node: str
    eligible_nodes: int
    pods_per_node: int
    host_pool_bytes: int
    host_pool_gib: float
    cpu_bytes_to_use: int
    gpu_kv_bytes: int
    device_buffer_rows: int
    shm_bytes: int
    memory_bytes: int
    host_pool_tokens: int
    device_pool_tokens: int
    arithmetic: tuple[str, ...]

    def to_status(self) -> PlanStatus:
        return PlanStatus(
            node=self.node,
            eligible_nodes=self.eligible_nodes,
            host_pool_bytes=self.host_pool_bytes,
            cpu_bytes_to_use=self.cpu_bytes_to_use,
            shm_bytes=self.shm_bytes,
            memory_bytes=self.memory_bytes,
            host_pool_tokens=self.host_pool_tokens,
            device_pool_tokens=self.device_pool_tokens,
            arithmetic=list(self.arithmetic),
        )


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values; `plan_from_dict` gives the same plan back."""
    return asdict(plan) | {"arithmetic": list(plan.arithmetic)}


def plan_from_dict(values: Mapping[str, Any]) -> Plan:
    """Raises ValueError naming the field when these are not a plan's values: another version may have written them."""
    names = {field.name for field in fields(Plan)}
    if not isinstance(values, Mapping) or set(values) != names:
        raise ValueError(f"a plan has the fields {', '.join(sorted(names))}, got {sorted(values)}")
    for name, value in values.items():
        if not _is_plan_value(name, value):
            raise ValueError(f"field {name} of a plan cannot be {value!r}")
    return Plan(**{**values, "host_pool_gib": float(values["host_pool_gib"]), "arithmetic": tuple(values["arithmetic"])})


def _is_plan_value(name: str, value: object) -> bool:
    if name == "node":
        return isinstance(value, str)
    if name == "arithmetic":
        return isinstance(value, list) and all(isinstance(line, str) for line in value)
    # bool is an int in Python
    is_number = isinstance(value, int) or (name == "host_pool_gib" and isinstance(value, float))
    return is_number and not isinstance(value, bool)
