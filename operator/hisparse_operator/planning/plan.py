"""The answer of planning: a memory plan, or the reason why there is none."""

from dataclasses import dataclass
from enum import StrEnum

from pydantic import ConfigDict, TypeAdapter

from hisparse_operator.api.status import ConcurrencyStatus, PlanStatus
from hisparse_runtime.capacity import Concurrency
from hisparse_runtime.vllm.pod_plan import PodPlan


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

    `host_pool_gib` stands for exactly `host_pool_bytes`. `node` is the node whose share decided the sizes. For vLLM, `pod` is
    what its pod is told, and pools are those of one data-parallel replica; without HiSparse the host pool is 0, and neither the
    device pool's tokens nor `concurrency` is known.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    node: str = ""
    eligible_nodes: int = 0
    pods_per_node: int = 0
    host_pool_bytes: int
    host_pool_gib: float
    cpu_bytes_to_use: int
    gpu_kv_bytes: int
    device_buffer_rows: int
    max_model_len: int
    shm_bytes: int
    memory_bytes: int
    host_pool_tokens: int
    device_pool_tokens: int | None
    startup_seconds: int
    termination_seconds: int
    concurrency: Concurrency | None = None
    pod: PodPlan | None = None
    arithmetic: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def to_status(self) -> PlanStatus:
        now = self.concurrency
        return PlanStatus(
            node=self.node,
            eligible_nodes=self.eligible_nodes,
            host_pool_bytes=self.host_pool_bytes,
            cpu_bytes_to_use=self.cpu_bytes_to_use,
            shm_bytes=self.shm_bytes,
            memory_bytes=self.memory_bytes,
            host_pool_tokens=self.host_pool_tokens,
            device_pool_tokens=self.device_pool_tokens,
            startup_seconds=self.startup_seconds,
            termination_seconds=self.termination_seconds,
            concurrency=None
            if now is None
            else ConcurrencyStatus(
                ordinary=f"{now.ordinary:.2f}", steady=f"{now.steady:.2f}", host=f"{now.host:.2f}", limited_by=now.limited_by
            ),
            warnings=list(self.warnings),
            arithmetic=list(self.arithmetic),
        )


_ADAPTER = TypeAdapter(Plan)


def plan_to_json(plan: Plan) -> str:
    """`plan_from_json` gives the same plan back."""
    return _ADAPTER.dump_json(plan).decode()


def plan_from_json(text: str) -> Plan:
    """Raises ValueError naming the field when this is not a plan: another version may have written it, or a person."""
    return _ADAPTER.validate_json(text)
