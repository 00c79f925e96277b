"""One reconciliation after the other against a fake Api: what is applied, in which order, and when nothing is."""

import dataclasses
from datetime import UTC, datetime

import pytest

from hisparse_operator import metrics
from hisparse_operator.cluster.api import ApiError
from hisparse_operator.cluster.slim import Trouble
from hisparse_operator.reconcile import object_path
from hisparse_operator.telemetry import Sample
from hisparse_runtime.vllm.arguments import ArgumentsError
from tests.unit.operator.objects import GIB, MIB, body, node, pod, report
from tests.unit.operator.reconcile.fake_cluster import DEPLOYMENT_PATH, STATUS_PATH, FakeCluster

pytestmark = pytest.mark.anyio

OWNER_PATH = object_path("shop", "agents")
CHILDREN = [
    ("APPLY", "/api/v1/namespaces/shop/configmaps/agents"),
    ("APPLY", "/api/v1/namespaces/shop/services/agents"),
    ("APPLY", DEPLOYMENT_PATH),
]
LOOKS = [("GET", OWNER_PATH), *(("GET", path) for _, path in CHILDREN)]
"""What is asked before anything is created: whether the object is still there, and whether its children's names are free."""
QUOTA = ApiError(403, "Forbidden", "exceeded quota: memory")


async def served(cluster: FakeCluster | None = None, **fields: object) -> FakeCluster:
    """A cluster whose object was reconciled until it serves and nothing is left to do."""
    cluster = cluster or FakeCluster()
    cluster.create(body(**fields))  # type: ignore[arg-type]  # fields of body
    await cluster.reconcile()
    cluster.roll_out()
    await cluster.reconcile()
    cluster.sync()
    assert await cluster.reconcile() == []
    return cluster


async def test_fake_api_a_new_object_is_looked_up_then_its_children_are_created_in_order_then_its_status_is_written() -> None:
    cluster = FakeCluster()
    cluster.create(body())
    assert await cluster.reconcile() == [*LOOKS, *CHILDREN, ("APPLY", STATUS_PATH)]
    assert cluster.status["observedGeneration"] == 1
    assert cluster.condition("PoolSized")["status"] == "True"
    assert cluster.condition("Ready")["reason"] == "RolloutInProgress"


async def test_fake_api_the_sizes_are_those_of_the_plan_for_what_nodes_have_left() -> None:
    cluster = FakeCluster(nodes=(node(memory_bytes=8 * GIB),))
    cluster.create(body(hostMemory={"max": "900Mi"}))
    await cluster.reconcile()
    engine = cluster.api.objects[DEPLOYMENT_PATH]["spec"]["template"]["spec"]["containers"][0]
    requested_bytes = int(engine["resources"]["requests"]["memory"])
    assert 800 * MIB < requested_bytes <= 900 * MIB
    assert cluster.status["plan"]["memoryBytes"] == requested_bytes
    assert cluster.status["plan"]["node"] == "big"


@pytest.mark.parametrize(
    "live",
    [None, body(uid="uid-2"), body(metadata={"deletionTimestamp": "2027-01-01T00:00:00Z"})],
    ids=["deleted", "another object of the same name", "being deleted"],
)
async def test_fake_api_nothing_is_created_for_an_object_that_is_gone_meanwhile(live: dict[str, object] | None) -> None:
    cluster = FakeCluster()
    cluster.create(body())
    del cluster.api.objects[OWNER_PATH]
    if live is not None:
        cluster.api.objects[OWNER_PATH] = live
    assert await cluster.reconcile() == [("GET", OWNER_PATH)]


@pytest.mark.parametrize("owners", [[], [{"uid": "another"}]], ids=["nobody's", "another object's"])
async def test_fake_api_a_service_of_somebody_else_is_not_taken_over(owners: list[dict[str, str]]) -> None:
    cluster = FakeCluster()
    cluster.create(body())
    service_path = "/api/v1/namespaces/shop/services/agents"
    metadata = {"name": "agents", "uid": "theirs", "ownerReferences": owners}
    theirs = {"kind": "Service", "metadata": metadata, "spec": {"clusterIP": "10.0.0.1"}}
    cluster.api.objects[service_path] = theirs
    with pytest.raises(ApiError, match="NameTaken"):
        await cluster.reconcile()
    assert cluster.api.objects[service_path] == theirs
    assert DEPLOYMENT_PATH not in cluster.api.objects
    assert cluster.condition("Ready")["reason"] == "ApplyFailed"
    assert "Service agents exists and does not belong to this object" in cluster.condition("Ready")["message"]


async def test_fake_api_at20_a_restart_between_two_children_goes_on_with_those_that_are_there() -> None:
    cluster = FakeCluster()
    cluster.create(body())
    await cluster.reconcile()
    del cluster.api.objects[DEPLOYMENT_PATH]
    cluster.restart()
    cluster.sync()
    await cluster.reconcile()
    assert DEPLOYMENT_PATH in cluster.api.objects


async def test_fake_api_an_object_that_the_cache_does_not_have_or_that_is_being_deleted_is_left_alone() -> None:
    cluster = FakeCluster()
    assert await cluster.reconcile() == []
    cluster.create(body(metadata={"deletionTimestamp": "2027-01-01T00:00:00Z"}))
    assert await cluster.reconcile() == []


async def test_fake_api_the_same_state_makes_no_request_at_all() -> None:
    cluster = await served()
    assert await cluster.reconcile() == []
    assert cluster.condition("Ready")["reason"] == "Serving"


async def test_fake_api_a_restarted_operator_applies_once_and_changes_nothing() -> None:
    cluster = await served()
    before = cluster.api.objects[DEPLOYMENT_PATH]
    cluster.restart()
    assert await cluster.reconcile() == CHILDREN
    assert cluster.api.objects[DEPLOYMENT_PATH] == before
    assert await cluster.reconcile() == []


async def test_fake_api_the_resync_applies_again_what_no_informer_watches() -> None:
    cluster = await served()
    cluster.reconciler.apply_all_again()
    assert await cluster.reconcile() == CHILDREN


async def test_fake_api_drift_is_put_right_because_the_generation_differs() -> None:
    cluster = await served()
    deployed = cluster.api.objects[DEPLOYMENT_PATH]
    deployed["spec"]["replicas"] = 5
    deployed["metadata"]["generation"] += 1
    cluster.sync()
    assert (await cluster.reconcile())[:3] == CHILDREN
    assert cluster.api.objects[DEPLOYMENT_PATH]["spec"]["replicas"] == 1


async def test_fake_api_a_deployment_that_was_deleted_is_created_again() -> None:
    cluster = await served()
    del cluster.api.objects[DEPLOYMENT_PATH]
    cluster.sync()
    assert (await cluster.reconcile())[:7] == [*LOOKS, *CHILDREN]


async def test_fake_api_scaling_keeps_the_settled_plan_although_nodes_changed() -> None:
    cluster = await served()
    template = cluster.api.objects[DEPLOYMENT_PATH]["spec"]["template"]
    cluster.set_nodes(node(memory_bytes=700 * MIB, name="small"))
    cluster.create(body(replicas=3, generation=2))
    assert (await cluster.reconcile())[:3] == CHILDREN
    deployed = cluster.api.objects[DEPLOYMENT_PATH]["spec"]
    assert (deployed["replicas"], deployed["template"]) == (3, template)


async def test_fake_api_at09_nodes_that_change_restart_nothing() -> None:
    cluster = await served()
    cluster.restart()
    cluster.set_nodes(node(memory_bytes=64 * GIB), node(name="other", memory_bytes=2 * GIB))
    before = cluster.api.objects[DEPLOYMENT_PATH]
    await cluster.reconcile()
    assert cluster.api.objects[DEPLOYMENT_PATH] == before


async def test_fake_api_an_edited_plan_annotation_is_planned_anew() -> None:
    cluster = await served()
    deployed = cluster.api.objects[DEPLOYMENT_PATH]
    good = deployed["metadata"]["annotations"]["hisparse.dev/plan"]
    deployed["metadata"]["annotations"]["hisparse.dev/plan"] = "edited by hand"
    cluster.sync()
    cluster.restart()
    assert await cluster.reconcile() == CHILDREN
    assert cluster.api.objects[DEPLOYMENT_PATH]["metadata"]["annotations"]["hisparse.dev/plan"] == good


async def test_fake_api_at04_at05_an_object_that_cannot_be_planned_gets_a_condition_and_no_child() -> None:
    cluster = FakeCluster(nodes=(node(gpus=0),))
    cluster.create(body())
    assert await cluster.reconcile() == [("APPLY", STATUS_PATH)]
    assert cluster.condition("PoolSized")["reason"] == cluster.condition("Ready")["reason"] == "NoEligibleNode"
    assert "0 nvidia.com/gpu of 1 needed" in cluster.condition("Ready")["message"]
    assert cluster.cache.unplaced == {"shop/agents"}
    cluster.set_nodes(node())
    cluster.sync()
    assert (await cluster.reconcile())[4:7] == CHILDREN
    assert cluster.cache.unplaced == set()


async def test_fake_api_an_object_that_cannot_be_planned_after_a_change_keeps_its_running_child() -> None:
    cluster = await served()
    before = cluster.api.objects[DEPLOYMENT_PATH]
    cluster.create(body(generation=2, hiSparse={"hostPoolGiB": 500}, hostMemory={}))
    assert await cluster.reconcile() == [("APPLY", STATUS_PATH)]
    assert cluster.api.objects[DEPLOYMENT_PATH] == before
    assert cluster.condition("Ready")["reason"] == "InsufficientHostMemory"
    assert "The 1 pods of the former plan keep serving." in cluster.condition("Ready")["message"]
    assert cluster.condition("Available")["status"] == "True"


async def test_fake_api_numbers_that_no_node_has_room_for_are_made_anew_while_no_pod_runs() -> None:
    cluster = await served()
    settled = cluster.status["plan"]["memoryBytes"]
    waiting = pod(ready=False, node_name=None, unschedulable="0/1 nodes are available: 1 Insufficient memory.")
    cluster.set_pods(agents=waiting)
    cluster.set_nodes(node(memory_bytes=900 * MIB))
    await cluster.reconcile()
    assert cluster.status["plan"]["memoryBytes"] <= 900 * MIB < settled
    assert cluster.cache.unplaced == {"shop/agents"}


async def test_fake_api_numbers_of_running_pods_are_kept_while_another_pod_waits() -> None:
    cluster = await served(replicas=2)
    settled = cluster.status["plan"]["memoryBytes"]
    waiting = pod(name="second", ready=False, node_name=None, unschedulable="0/1 nodes are available: 1 Insufficient memory.")
    cluster.set_pods(first=pod(name="first"), second=waiting)
    cluster.set_nodes(node(memory_bytes=900 * MIB))
    cluster.roll_out(ready=1)
    await cluster.reconcile()
    assert cluster.status["plan"]["memoryBytes"] == settled
    assert cluster.condition("Ready")["reason"] == "InsufficientHostMemory"


async def test_fake_api_a_refused_child_shows_in_the_conditions_and_is_raised_to_be_tried_again() -> None:
    cluster = FakeCluster()
    cluster.create(body())
    cluster.api.refusals["/api/v1/namespaces/shop/services/agents"] = QUOTA
    with pytest.raises(ApiError, match="exceeded quota"):
        await cluster.reconcile()
    assert cluster.api.calls == [*LOOKS, *CHILDREN[:2], ("APPLY", STATUS_PATH)]
    assert cluster.condition("Ready")["reason"] == "ApplyFailed"
    assert "403 Forbidden: exceeded quota: memory" in cluster.condition("Ready")["message"]
    assert "observedGeneration" not in cluster.status
    cluster.api.refusals.clear()
    cluster.sync()
    assert (await cluster.reconcile())[4:7] == CHILDREN
    assert cluster.status["observedGeneration"] == 1


async def test_fake_api_a_refused_status_is_raised_and_a_missing_object_is_not() -> None:
    cluster = FakeCluster()
    cluster.create(body())
    cluster.api.refusals[STATUS_PATH] = QUOTA
    with pytest.raises(ApiError, match="exceeded quota"):
        await cluster.reconcile()
    assert cluster.events == []
    cluster.api.refusals[STATUS_PATH] = ApiError(404, "NotFound", "deleted meanwhile")
    await cluster.reconcile()
    assert cluster.events == [], "there is no object left to tell anything about"


async def test_fake_api_events_tell_of_changes_only() -> None:
    cluster = FakeCluster()
    cluster.create(body())
    await cluster.reconcile()
    assert [(kind, reason) for kind, reason, _ in cluster.events] == [("Normal", "Planned"), ("Normal", "RolloutInProgress")]
    cluster.events.clear()
    cluster.sync()
    await cluster.reconcile()
    assert cluster.events == []
    cluster.roll_out()
    await cluster.reconcile()
    assert cluster.events == [("Normal", "Serving", "Ready: 1 of 1 pods serve at http://agents.shop.svc:8000.")]


async def test_fake_api_at21_the_reason_of_a_pods_end_reaches_the_condition_and_an_event() -> None:
    cluster = await served()
    cluster.events.clear()
    cluster.set_pods(agents=pod(ready=False, trouble=Trouble("OOMKilled", "exit code 137"), restarts=1))
    cluster.roll_out(ready=0)
    await cluster.reconcile()
    assert cluster.condition("Ready")["message"] == "Pod agents-1: OOMKilled, 1 restarts: exit code 137"
    assert {(kind, reason) for kind, reason, _ in cluster.events} == {("Warning", "OOMKilled")}


async def test_fake_api_samples_of_ready_pods_become_the_residency() -> None:
    cluster = await served()
    cluster.samples["shop/agents"] = Sample(report(), "", datetime.now(UTC))
    cluster.samples["shop/leaving"] = Sample(report(), "", datetime.now(UTC))
    cluster.set_pods(agents=pod(), leaving=dataclasses.replace(pod(name="agents-2"), deleting=True))
    cluster.events.clear()
    assert await cluster.reconcile() == [("APPLY", STATUS_PATH)]
    assert cluster.status["residency"]["podsReporting"] == 1
    assert cluster.status["summary"]["used"] == "25%"
    assert cluster.condition("TelemetryAvailable")["status"] == "True"
    assert cluster.events == [], "numbers are no news"


async def test_fake_api_an_object_of_another_schema_is_told_so_and_nothing_else_is_touched() -> None:
    cluster = await served()
    before = cluster.api.objects[DEPLOYMENT_PATH]
    cluster.create(body(generation=2, engine={"maxModelLen": 0}))
    assert await cluster.reconcile() == [("APPLY", STATUS_PATH)]
    assert {(each["status"], each["reason"]) for each in cluster.status["conditions"]} == {("False", "InvalidSpec")}
    assert "spec.engine.maxModelLen" in cluster.condition("Ready")["message"]
    assert cluster.status["plan"]["node"] == "big", "what was known of it stays"
    assert cluster.api.objects[DEPLOYMENT_PATH] == before
    cluster.sync()
    assert await cluster.reconcile() == []


async def test_fake_api_a_deployment_of_a_former_object_of_the_same_name_is_not_this_objects() -> None:
    cluster = await served()
    cluster.create(body(uid="uid-2", engine={"maxModelLen": 2048}))
    await cluster.reconcile()
    assert cluster.status["replicas"] == 0
    assert cluster.condition("Ready")["status"] == "False"


async def test_fake_api_metrics_follow_the_object_and_end_with_it() -> None:
    cluster = await served()
    labels = {"namespace": "shop", "name": "agents", "type": "Ready"}
    assert metrics.REGISTRY.get_sample_value("hisparse_deployment_condition", labels) == 1
    cluster.reconciler.gone("shop/agents")
    cluster.reconciler.gone("shop/never-seen")
    assert metrics.REGISTRY.get_sample_value("hisparse_deployment_condition", labels) is None
    assert (
        metrics.REGISTRY.get_sample_value("hisparse_deployment_host_pool_bytes", {"namespace": "shop", "name": "agents"}) is None
    )


async def test_fake_api_an_engine_that_a_newer_operator_refuses_keeps_its_pods_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = await served()
    before = cluster.api.objects[DEPLOYMENT_PATH]["metadata"]["generation"]

    def refuse(*_: object, **__: object) -> None:
        raise ArgumentsError("extra: --new-option: the plan decides it")

    monkeypatch.setattr("hisparse_operator.reconcile.render", refuse)
    cluster.restart()
    assert await cluster.reconcile() == [("APPLY", STATUS_PATH)]
    assert cluster.condition("Ready")["reason"] == "InvalidSpec"
    assert "--new-option: the plan decides it" in cluster.condition("Ready")["message"]
    assert cluster.api.objects[DEPLOYMENT_PATH]["metadata"]["generation"] == before
