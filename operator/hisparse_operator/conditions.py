"""Conditions of a HiSparseDeployment: what holds, since when, and what a person can do about it.

Types are positive: True is good. Reasons are part of the API; messages are for people and carry numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hisparse_operator.api import Condition, HiSparseDeployment
from hisparse_operator.cluster.slim import DeploymentFacts, PodFacts
from hisparse_operator.planning import Infeasible, Plan
from hisparse_operator.resources.service import endpoint
from hisparse_operator.telemetry import ProgressReport, Sample
from hisparse_runtime.capacity import human_bytes

POOL_SIZED = "PoolSized"
AVAILABLE = "Available"
READY = "Ready"
TELEMETRY_AVAILABLE = "TelemetryAvailable"
TYPES = (POOL_SIZED, AVAILABLE, READY, TELEMETRY_AVAILABLE)

PASSING_REASONS = frozenset({"LoadingModel", "PinningHostPool", "PodsNotReady", "RolloutInProgress", "ScaledToZero", "WarmingUp"})
"""Reasons of a Ready that is False as it should be: work in progress, or nothing asked for."""


# How far a starting pod is, in the order of the stages of hisparse_runtime.vllm.launch.
_STARTING = {
    "preflight": ("PodsNotReady", "checks what it has been given"),
    "starting": ("PodsNotReady", "imports its engine"),
    "loading": ("LoadingModel", "loads the model"),
    "pinning": ("PinningHostPool", "fills and pins its host pools"),
    "warming": ("WarmingUp", "captures graphs"),
    "serving": ("PodsNotReady", "answers, and is about to be ready"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that status is made from, at one moment.

    Exactly one of `plan` and `problem` is given. `samples` has an entry for every ready pod, None before its first scrape;
    `starting` one for each pod that is not ready and tells how far it is.
    `apply_error` is the API server's refusal of a child, empty when there was none.
    """

    owner: HiSparseDeployment
    plan: Plan | None
    problem: Infeasible | None
    apply_error: str
    rendered_hash: str
    deployment: DeploymentFacts | None
    pods: Sequence[PodFacts]
    samples: Mapping[str, Sample | None]
    starting: Mapping[str, ProgressReport]
    stale_after_seconds: float
    now: datetime

    @property
    def num_ready(self) -> int:
        return self.deployment.ready if self.deployment else 0

    def is_fresh(self, sample: Sample | None) -> bool:
        """Whether there is a report that speaks of the present."""
        if sample is None or sample.report is None:
            return False
        return (self.now - sample.observed_at).total_seconds() <= self.stale_after_seconds


@dataclass(frozen=True, slots=True)
class _Finding:
    """A condition before its bookkeeping."""

    status: str
    reason: str
    message: str


def conditions(observation: Observation, *, before: Sequence[Condition]) -> list[Condition]:
    """All conditions in their fixed order. The transition time of a status that did not change is kept from `before`."""
    findings = {
        POOL_SIZED: _pool_sized(observation),
        AVAILABLE: _available(observation),
        READY: _ready(observation),
        TELEMETRY_AVAILABLE: _telemetry_available(observation),
    }
    since = {condition.type: condition for condition in before}
    now = timestamp(observation.now)
    return [
        Condition(
            type=condition_type,
            status=finding.status,
            reason=finding.reason,
            message=finding.message,
            last_transition_time=(
                since[condition_type].last_transition_time
                if condition_type in since and since[condition_type].status == finding.status
                else now
            ),
            observed_generation=observation.owner.generation,
        )
        for condition_type, finding in findings.items()
    ]


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes times."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _pool_sized(observation: Observation) -> _Finding:
    if observation.problem is not None:
        return _Finding("False", observation.problem.reason, observation.problem.message)
    plan = observation.plan
    assert plan is not None
    return _Finding(
        "True",
        "Planned",
        f"Each pod gets {_tiers(plan)}: {human_bytes(plan.memory_bytes)} of memory, sized by node {plan.node}, "
        f"{plan.eligible_nodes} eligible. status.plan.arithmetic has every step.",
    )


def _tiers(plan: Plan) -> str:
    """Pools of one engine replica, which is the pod where the pod has one."""
    offload = f"an offload tier of {human_bytes(plan.cpu_bytes_to_use)}" if plan.cpu_bytes_to_use else "no offload tier"
    host = f"a host pool of {human_bytes(plan.host_pool_bytes)} ({plan.host_pool_tokens:,} tokens) and "
    each = f" for each of {plan.pod.data_parallel_size} replicas" if plan.pod and plan.pod.data_parallel_size > 1 else ""
    return f"{host if plan.host_pool_bytes else 'no host pool (hiSparse.mode is Off) and '}{offload}{each}"


def _available(observation: Observation) -> _Finding:
    wanted = observation.owner.spec.replicas
    if wanted == 0:
        return _Finding("False", "ScaledToZero", "spec.replicas is 0: no pod is asked for.")
    # One pod at a time may be down during a roll-out; a single one must be up.
    needed = max(1, wanted - 1)
    answer = f"{observation.num_ready} of {wanted} pods answer requests"
    if observation.num_ready >= needed:
        return _Finding("True", "PodsReady", f"{answer}.")
    cause = _obstacle(observation)
    return _Finding("False", cause.reason, f"{answer}, {needed} needed: {cause.message}")


def _ready(observation: Observation) -> _Finding:
    owner, deployment = observation.owner, observation.deployment
    wanted = owner.spec.replicas
    if observation.problem is not None:
        rest = f" The {observation.num_ready} pods of the former plan keep serving." if observation.num_ready else ""
        return _Finding("False", observation.problem.reason, observation.problem.message + rest)
    if observation.apply_error:
        return _apply_failed(observation)
    if wanted == 0:
        return _Finding("False", "ScaledToZero", "spec.replicas is 0: raise it to serve.")
    if _is_settled(observation) and deployment is not None and deployment.ready == wanted:
        return _Finding(
            "True", "Serving", f"{wanted} of {wanted} pods serve at {endpoint(namespace=owner.namespace, name=owner.name)}."
        )
    return _obstacle(observation)


def _is_settled(observation: Observation) -> bool:
    """Whether all pods are of the current template and none of a former one is left."""
    deployment = observation.deployment
    return (
        deployment is not None
        and deployment.rendered_hash == observation.rendered_hash
        and deployment.observed_generation == deployment.generation
        and deployment.updated == deployment.replicas == observation.owner.spec.replicas
    )


def _obstacle(observation: Observation) -> _Finding:
    """What stands between now and all pods being ready, the most telling cause first."""
    pods = [pod for pod in observation.pods if not pod.deleting]
    for pod in pods:
        if pod.unschedulable:
            return _unschedulable(pod)
    for pod in pods:
        if pod.trouble is not None:
            restarts = f", {pod.restarts} restarts" if pod.restarts else ""
            return _Finding(
                "False",
                pod.trouble.reason,
                f"Pod {pod.name}: {pod.trouble.reason}{restarts}: {pod.trouble.detail or 'no further detail.'}",
            )
    if observation.problem is not None:
        return _Finding("False", observation.problem.reason, observation.problem.message)
    if observation.apply_error:
        return _apply_failed(observation)
    return _progress(observation)


def _progress(observation: Observation) -> _Finding:
    """Nothing is wrong: what is being waited for."""
    wanted = observation.owner.spec.replicas
    if not _is_settled(observation):
        updated = observation.deployment.updated if observation.deployment else 0
        return _Finding(
            "False", "RolloutInProgress", f"{updated} of {wanted} pods run the current spec; they are replaced one at a time."
        )
    answer = f"{observation.num_ready} of {wanted} pods are ready"
    told = [(pod, progress) for pod, progress in observation.starting.items() if progress.stage in _STARTING]
    if not told:
        return _Finding("False", "PodsNotReady", f"{answer}; the others are starting.")
    # the one that has the longest way to go
    pod, progress = min(told, key=lambda each: list(_STARTING).index(each[1].stage))
    reason, words = _STARTING[progress.stage]
    pinned = (
        f", {progress.pinned_percent} % of {human_bytes(progress.planned_pinned_bytes)}" if progress.stage == "pinning" else ""
    )
    return _Finding("False", reason, f"{answer}; pod {pod} {words}{pinned}.")


def _apply_failed(observation: Observation) -> _Finding:
    return _Finding("False", "ApplyFailed", f"{observation.apply_error} It is tried again with growing delays.")


def _unschedulable(pod: PodFacts) -> _Finding:
    """The scheduler's own words, under a reason that says which resource is missing."""
    reason = "Unschedulable"
    if "Insufficient nvidia.com/gpu" in pod.unschedulable:
        reason = "InsufficientGPU"
    elif "Insufficient memory" in pod.unschedulable:
        reason = "InsufficientHostMemory"
    return _Finding("False", reason, f"Pod {pod.name} waits for a node: {pod.unschedulable}")


def _telemetry_available(observation: Observation) -> _Finding:
    if not observation.samples:
        return _Finding("Unknown", "NoPods", "No pod is ready, so there is nothing to ask.")
    # One answer that is missed is no news while the one before still speaks of the present.
    old = [name for name, sample in observation.samples.items() if not observation.is_fresh(sample)]
    errors = {name: sample.error for name, sample in observation.samples.items() if name in old and sample and sample.error}
    total = len(observation.samples)
    if not old:
        return _Finding("True", "Scraped", f"{total} of {total} pods report their residency.")
    if errors:
        name, text = next(iter(sorted(errors.items())))
        answering = total - len(errors)
        status = "Unknown" if not answering else "False"
        return _Finding(
            status,
            "ScrapeFailed",
            f"{answering} of {total} pods report their residency; pod {name}: {text}. "
            "The numbers of status.residency may be old.",
        )
    return _Finding(
        "Unknown",
        "ScrapePending",
        f"{len(old)} of {total} pods have not reported in the last {observation.stale_after_seconds:.0f} s.",
    )
