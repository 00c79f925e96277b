"""Observation -> status. Pure: the same observation and the same former status give the same status."""

from datetime import datetime

from hisparse_operator.api import HiSparseDeploymentStatus, Residency, Summary
from hisparse_operator.conditions import Observation, conditions, timestamp
from hisparse_operator.resources.names import selector_text
from hisparse_operator.resources.service import endpoint
from hisparse_operator.telemetry import aggregate
from hisparse_runtime.capacity import human_bytes

# A number that did not change is confirmed with a new time stamp this often: readers see how old it may be.
REFRESH_SECONDS = 20.0


def summarise(observation: Observation) -> HiSparseDeploymentStatus:
    """The whole status. What an unchanged status would only re-stamp keeps its former time."""
    owner, deployment = observation.owner, observation.deployment
    before = owner.status or HiSparseDeploymentStatus()
    plan = observation.plan.to_status() if observation.plan else before.plan
    residency = _residency(observation, before=before.residency)
    return HiSparseDeploymentStatus(
        observed_generation=owner.generation if not observation.apply_error else before.observed_generation,
        replicas=deployment.replicas if deployment else 0,
        ready_replicas=observation.num_ready,
        updated_replicas=deployment.updated if deployment else 0,
        selector=selector_text(owner.name),
        endpoint=endpoint(namespace=owner.namespace, name=owner.name),
        version=_version(observation) or before.version,
        plan=plan,
        residency=residency,
        summary=Summary(
            replicas=f"{observation.num_ready}/{owner.spec.replicas}",
            host_pool=human_bytes(plan.host_pool_bytes) if plan and plan.host_pool_bytes else None,
            offload=human_bytes(plan.cpu_bytes_to_use) if plan and plan.cpu_bytes_to_use else None,
            used=f"{residency.host_pool.used_percent}%" if residency and residency.host_pool.capacity_bytes else None,
            hit=f"{residency.hot.hit_percent}%" if residency and residency.hot.hit_percent is not None else None,
        ),
        conditions=conditions(observation, before=before.conditions),
    )


def _residency(observation: Observation, *, before: Residency | None) -> Residency | None:
    """Sums over the pods that answered lately; the former numbers while none does; nothing once no pod is wanted."""
    if observation.owner.spec.replicas == 0:
        return None
    fresh = [
        sample
        for sample in observation.samples.values()
        if sample is not None and sample.report is not None and observation.is_fresh(sample)
    ]
    if not fresh:
        return before
    newest = max(sample.observed_at for sample in fresh)
    now = aggregate([sample.report for sample in fresh if sample.report is not None], observed_at=timestamp(newest))
    if before is not None and _shown(before) == _shown(now) and _seconds_between(before.observed_at, newest) < REFRESH_SECONDS:
        return before
    return now


def _shown(residency: Residency) -> tuple[object, ...]:
    """The numbers whose change is worth a write at once; all others ride along with it, or with the next refresh."""
    return (
        residency.pods_reporting,
        residency.requests,
        residency.host_pool.capacity_bytes,
        residency.host_pool.used_percent,
        residency.device_pool.used_percent,
        residency.offload.used_percent,
        residency.hot.hit_percent,
    )


def _seconds_between(earlier: str, later: datetime) -> float:
    return (later - datetime.fromisoformat(earlier)).total_seconds()


def _version(observation: Observation) -> str | None:
    """Version of the engine; of several during a roll-out, all."""
    versions = {
        sample.report.engine.version
        for sample in observation.samples.values()
        if sample is not None and sample.report is not None
    }
    return ", ".join(sorted(versions)) or None
