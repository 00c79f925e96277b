"""What one engine pod was planned with: the operator writes it, and what runs in the pod holds reality against it."""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

FOLDER = "/etc/hisparse"
"""Where a pod has both files of its plan."""
PLAN_FILE = "plan.json"
CONFIG_FILE = "config.json"
"""The model's config.json that the plan was made from."""

STATUS_PORT = 8001
"""Where `launch` answers: probes, the call before a pod is stopped, progress, residency."""
STATUS_PORT_NAME = "status"
"""Of that port in the pod. A pod that has it ends with a termination message of the form `Reason: text`."""


class Mode(StrEnum):
    """ON: with HiSparse. OFF: the ordinary offloading engine, which HiSparse is measured against."""

    ON = "On"
    OFF = "Off"


class PodPlanError(ValueError):
    """A file that is no plan; the text names it, the field, and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """Sizes of pools are those of one data-parallel replica, as in vLLM; `shm_bytes` and `memory_bytes` are of the pod.

    `device_block_bytes`: of one block of a GPU's pool, for telemetry without HiSparse, which does not tell it; else 0.
    `host_pool_copies`: private pools of one replica, 1 where its ranks share one in /dev/shm (`shares_host_pool`).
    `working_set_bytes`: of all processes, beside the pools. `weights_bytes`: that the pod reads, None where unknown.
    `drain_seconds`: for requests that run when the pod is stopped. `unpin_seconds`: for workers to give pinned memory back
    after that. `startup_seconds`: until the pod counts as stuck.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    vllm_version: str
    mode: Mode
    gpus: int
    tensor_parallel_size: int
    data_parallel_size: int
    host_pool_bytes: int
    host_pool_copies: int
    shares_host_pool: bool
    cpu_bytes_to_use: int
    device_block_bytes: int
    working_set_bytes: int
    weights_bytes: int | None
    shm_bytes: int
    memory_bytes: int
    drain_seconds: int
    unpin_seconds: int
    startup_seconds: int

    @property
    def all_host_pools_bytes(self) -> int:
        """Host pools of the whole pod."""
        return self.host_pool_bytes * self.host_pool_copies * self.data_parallel_size

    @property
    def shared_pools_bytes(self) -> int:
        """Pools of the whole pod that lie in /dev/shm: offload tiers always, host pools where they are shared."""
        host_bytes = self.all_host_pools_bytes if self.shares_host_pool else 0
        return host_bytes + self.cpu_bytes_to_use * self.data_parallel_size


_ADAPTER = TypeAdapter(PodPlan)


def pod_plan_to_json(plan: PodPlan) -> dict[str, Any]:
    """`read_pod_plan` gives the same plan back from its text."""
    content: dict[str, Any] = _ADAPTER.dump_python(plan, mode="json")
    return content


def read_pod_plan(file: Path) -> PodPlan:
    """Raises PodPlanError."""
    try:
        return _ADAPTER.validate_json(_read(file))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise PodPlanError(
            f"{file}: {place}: {first['msg']}: the engine image and the operator are of different versions, or the file was"
            " edited; next step: bring both to one version"
        ) from error


def read_planned_config(file: Path) -> dict[str, Any] | None:
    """The config.json that the plan was made from; None where there is none, or no object. Raises PodPlanError."""
    if not file.exists():
        return None
    try:
        content = json.loads(_read(file))
    except ValueError as error:
        raise PodPlanError(f"{file}: no JSON: {error}; next step: let the operator write it anew") from error
    return content if isinstance(content, dict) else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise PodPlanError(
            f"{file} cannot be read: {error.strerror}; next step: mount the plan's ConfigMap there, as the operator does"
        ) from error
    except UnicodeDecodeError as error:
        raise PodPlanError(f"{file} is no text ({error.reason}); next step: let the operator write it anew") from error
