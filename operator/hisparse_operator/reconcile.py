"""One level-triggered function per object: read the cache, plan, render, apply what differs, say what is.

It acts on what the cache holds, never on what an event said, so it may run at any time, twice, or after a restart in the middle.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

from hisparse_operator import metrics, settled_plan
from hisparse_operator.api import API_VERSION, GROUP, KIND, PLURAL, VERSION, HiSparseDeployment, InvalidObjectError
from hisparse_operator.api.status import Condition, PoolUse
from hisparse_operator.cluster.api import Api, ApiError
from hisparse_operator.cluster.cache import Cache
from hisparse_operator.conditions import PASSING_REASONS, POOL_SIZED, READY, TYPES, Observation, timestamp
from hisparse_operator.planning import Infeasible, InfeasibleReason, Plan, plan
from hisparse_operator.resources import Child, EngineImages, Rendered, render
from hisparse_operator.summary import summarise
from hisparse_operator.telemetry import Sample
from hisparse_runtime.vllm.arguments import ArgumentsError

logger = logging.getLogger(__name__)


class PostEvent(Protocol):
    """Posts a Kubernetes event about an object."""

    def __call__(self, body: dict[str, Any], *, type: str, reason: str, message: str) -> None: ...  # noqa: A002 - the field's own name


class Reconciler:
    """Brings one object at a time in line with its spec."""

    def __init__(
        self,
        *,
        api: Api,
        cache: Cache,
        images: EngineImages,
        sample: Callable[[str], Sample | None],
        stale_after_seconds: float,
        post: PostEvent,
    ) -> None:
        self._api = api
        self._cache = cache
        self._images = images
        self._sample = sample
        self._stale_after_seconds = stale_after_seconds
        self._post = post
        # key -> (hash, generation of the Deployment) of what this process applied last: another generation means that
        # somebody changed the child, and after a restart everything is applied once, which changes nothing on the server.
        self._applied: dict[str, tuple[str, int]] = {}

    async def reconcile(self, key: str) -> None:
        """Raises ApiError and transport errors; the caller brings the key back later."""
        body = self._cache.object(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return
        try:
            owner = HiSparseDeployment.parse(body)
        except InvalidObjectError as error:
            await self._report_invalid(body, error)
            return
        made, problem = self._plan(owner)
        rendered: Rendered | None = None
        refusal: ApiError | None = None
        if made is not None:
            try:
                rendered = render(owner, plan=made, settled=settled_plan.write(made, owner=owner), images=self._images)
            except (ArgumentsError, Infeasible) as error:
                # A settled plan is not looked at anew: an operator that knows more may refuse what the one before it let start.
                made, problem = None, Infeasible(InfeasibleReason.INVALID_SPEC, f"engine.vllm: {error}")
        if made is not None and rendered is not None:
            try:
                if not await self._apply_children(owner, rendered):
                    return
            except ApiError as error:
                refusal = error
        await self._write_status(body, self._observe(owner, made=made, problem=problem, rendered=rendered, refusal=refusal))
        if refusal is not None:
            raise refusal

    def gone(self, key: str) -> None:
        """The object is no longer there; its children go with it by their owner references."""
        self._applied.pop(key, None)
        namespace, name = key.split("/")
        metrics.forget_deployment(namespace=namespace, name=name, condition_types=TYPES)

    def apply_all_again(self) -> None:
        """Let the next reconciliation of each object apply its children, whatever the cache says: not all kinds are watched."""
        self._applied.clear()

    def _plan(self, owner: HiSparseDeployment) -> tuple[Plan | None, Infeasible | None]:
        """The settled plan, or a new one. Keeps the cache's list of objects that wait for capacity."""
        pods = [pod for pod in self._cache.pods(owner.key).values() if not pod.deleting]
        placed = any(pod.request is not None for pod in pods)
        stuck = any(pod.unschedulable for pod in pods)
        deployment = self._cache.deployment(owner.key)
        settled = (
            settled_plan.read(deployment.plan, owner=owner)
            if deployment is not None and deployment.owner_uid == owner.uid
            else None
        )
        made, problem = settled, None
        # Numbers that the scheduler could place nowhere are nobody's: making them anew restarts no engine.
        if settled is None or (stuck and not placed):
            try:
                made = plan(owner.spec, deployment=owner.key, nodes=self._cache.node_facts(), pods=self._cache.pod_requests())
            except Infeasible as error:
                problem = None if settled else error
        if problem is not None or stuck:
            self._cache.unplaced.add(owner.key)
        else:
            self._cache.unplaced.discard(owner.key)
        return made, problem

    async def _apply_children(self, owner: HiSparseDeployment, rendered: Rendered) -> bool:
        """Applies all children unless they stand as they should. False when the owner turned out to be gone."""
        deployment = self._cache.deployment(owner.key)
        if (
            deployment is not None
            and deployment.owner_uid == owner.uid
            and self._applied.get(owner.key) == (rendered.hash, deployment.generation)
        ):
            return True
        if deployment is None:
            if not await self._still_exists(owner):
                return False
            for child in rendered.children:
                await self._refuse_stranger(owner, child)
        for child in rendered.children:
            answer = await self._api.apply(child.path, child.body)
        # The last child is the Deployment, whose hash proves the others.
        self._applied[owner.key] = (rendered.hash, answer["metadata"]["generation"])
        return True

    async def _still_exists(self, owner: HiSparseDeployment) -> bool:
        """Asks the server before something is created: a cache that has not heard of a deletion yet would make orphans."""
        live = await self._api.get(object_path(owner.namespace, owner.name))
        return live is not None and live["metadata"]["uid"] == owner.uid and "deletionTimestamp" not in live["metadata"]

    async def _refuse_stranger(self, owner: HiSparseDeployment, child: Child) -> None:
        """Raises ApiError when the child's name is taken: an apply would take over, and deletion remove, a stranger's."""
        live = await self._api.get(child.path)
        if live is None or any(each["uid"] == owner.uid for each in live["metadata"].get("ownerReferences", [])):
            return
        kind = child.body["kind"]
        raise ApiError(
            409,
            "NameTaken",
            f"{kind} {owner.name} exists and does not belong to this object: rename the object, or remove that {kind}",
        )

    def _observe(
        self,
        owner: HiSparseDeployment,
        *,
        made: Plan | None,
        problem: Infeasible | None,
        rendered: Rendered | None,
        refusal: ApiError | None,
    ) -> Observation:
        pods = self._cache.pods(owner.key)
        deployment = self._cache.deployment(owner.key)
        if deployment is not None and deployment.owner_uid != owner.uid:
            deployment = None  # of a former object of the same name, on its way out
        return Observation(
            owner=owner,
            plan=made,
            problem=problem,
            apply_error=f"The API server refused a child: {refusal}." if refusal else "",
            rendered_hash=rendered.hash if rendered else "",
            deployment=deployment,
            pods=[pods[key] for key in sorted(pods)],
            samples={pod.name: self._sample(key) for key, pod in sorted(pods.items()) if pod.ready and not pod.deleting},
            starting={
                pod.name: sample.progress
                for key, pod in sorted(pods.items())
                if not pod.ready and not pod.deleting and (sample := self._sample(key)) and sample.progress
            },
            stale_after_seconds=self._stale_after_seconds,
            now=datetime.now(UTC),
        )

    async def _write_status(self, body: dict[str, Any], observation: Observation) -> None:
        owner = observation.owner
        status = summarise(observation)
        _export(owner, status.conditions, pool=status.residency.host_pool if status.residency else None)
        if owner.status is not None and status == owner.status:
            return
        content = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        if await self._apply_status(owner.namespace, owner.name, content):
            self._announce(body, status.conditions, before=owner.status.conditions if owner.status else [])

    async def _report_invalid(self, body: dict[str, Any], error: InvalidObjectError) -> None:
        """An object that got past another version of the CRD: say so on it, touch nothing else."""
        metadata = body["metadata"]
        status = body.get("status", {})
        since = {condition["type"]: condition for condition in status.get("conditions", [])}
        conditions = []
        for condition_type in TYPES:
            former = since.get(condition_type, {})
            conditions.append(
                {
                    "type": condition_type,
                    "status": "False",
                    "reason": "InvalidSpec",
                    "message": str(error),
                    "lastTransitionTime": former["lastTransitionTime"]
                    if former.get("status") == "False"
                    else timestamp(datetime.now(UTC)),
                    "observedGeneration": metadata["generation"],
                }
            )
        wanted = {**status, "observedGeneration": metadata["generation"], "conditions": conditions}
        if wanted != status:
            await self._apply_status(metadata["namespace"], metadata["name"], wanted)

    async def _apply_status(self, namespace: str, name: str, status: dict[str, Any]) -> bool:
        """False when the object is gone."""
        content = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name, "namespace": namespace}, "status": status}
        try:
            await self._api.apply(f"{object_path(namespace, name)}/status", content)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _announce(self, body: dict[str, Any], now: list[Condition], *, before: list[Condition]) -> None:
        """An event when the plan was made, and whenever Ready comes to stand differently: it has the reasons of all others."""
        former = {condition.type: (condition.status, condition.reason) for condition in before}
        for condition in now:
            if former.get(condition.type) == (condition.status, condition.reason):
                continue
            if condition.type == READY or (condition.type == POOL_SIZED and condition.status == "True"):
                expected = condition.status == "True" or condition.reason in PASSING_REASONS
                self._post(
                    body,
                    type="Normal" if expected else "Warning",
                    reason=condition.reason,
                    message=f"{condition.type}: {condition.message}",
                )


def object_path(namespace: str, name: str) -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}"


_CONDITION_VALUE = {"True": 1, "False": 0, "Unknown": -1}


def _export(owner: HiSparseDeployment, conditions: list[Condition], *, pool: PoolUse | None) -> None:
    """The same facts as Prometheus series."""
    for condition in conditions:
        metrics.CONDITION.labels(owner.namespace, owner.name, condition.type).set(_CONDITION_VALUE[condition.status])
    metrics.HOST_POOL_BYTES.labels(owner.namespace, owner.name).set(pool.capacity_bytes if pool else 0)
    metrics.HOST_POOL_USED_BYTES.labels(owner.namespace, owner.name).set(pool.used_bytes if pool else 0)
