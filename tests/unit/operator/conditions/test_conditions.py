"""What is observed -> which condition, with which reason and numbers."""

import pytest

from hisparse_operator.api import Condition
from hisparse_operator.cluster.slim import DeploymentFacts, Trouble
from hisparse_operator.conditions import AVAILABLE, POOL_SIZED, READY, TELEMETRY_AVAILABLE, Observation, conditions
from hisparse_operator.planning import Infeasible, InfeasibleReason
from hisparse_operator.telemetry import ProgressReport
from tests.unit.operator.objects import deployment, observation, owner, pod, sample

PROBLEM = Infeasible(
    InfeasibleReason.INSUFFICIENT_HOST_MEMORY, "host pool 96.0 GiB is wanted, node big has 8.0 GiB left: lower it"
)
GPU_TEXT = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
MEMORY_TEXT = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient memory."


def condition(condition_type: str, seen: Observation) -> Condition:
    return next(found for found in conditions(seen, before=[]) if found.type == condition_type)


def serving(**fields: object) -> Observation:
    return observation(deployed=deployment(), pods=[pod()], samples={"agents-1": sample()}, **fields)  # type: ignore[arg-type]  # one of observation's


def starting(**fields: object) -> DeploymentFacts:
    """The Deployment while its pod does not answer."""
    return deployment(**{"ready": 0, **fields})


def test_types_come_in_a_fixed_order_and_name_the_generation() -> None:
    found = conditions(observation(of=owner(generation=7)), before=[])
    assert [each.type for each in found] == ["PoolSized", "Available", "Ready", "TelemetryAvailable"]
    assert {each.observed_generation for each in found} == {7}


def test_pool_sized_names_the_sizes_and_the_node_that_decided_them() -> None:
    found = condition(POOL_SIZED, observation())
    assert (found.status, found.reason) == ("True", "Planned")
    for part in ("96.0 MiB", "131,072 tokens", "32.0 MiB", "776.0 MiB", "node big", "2 eligible"):
        assert part in found.message


def test_at05_a_plan_that_is_not_possible_says_so_with_its_arithmetic() -> None:
    seen = observation(problem=PROBLEM)
    for condition_type in (POOL_SIZED, READY):
        found = condition(condition_type, seen)
        assert (found.status, found.reason, found.message) == ("False", "InsufficientHostMemory", PROBLEM.message)
    assert condition(AVAILABLE, seen).message == f"0 of 1 pods answer requests, 1 needed: {PROBLEM.message}"


def test_pods_of_the_former_plan_keep_serving_while_the_new_one_is_not_possible() -> None:
    seen = observation(of=owner(replicas=2), problem=PROBLEM, deployed=deployment(replicas=2, updated=2, ready=2))
    assert condition(READY, seen).message == f"{PROBLEM.message} The 2 pods of the former plan keep serving."
    assert condition(AVAILABLE, seen).status == "True"


READY_CASES = [
    pytest.param(serving(), "True", "Serving", "1 of 1 pods serve at http://agents.shop.svc:8000", id="serving"),
    pytest.param(
        observation(of=owner(replicas=0), deployed=deployment(replicas=0, updated=0, ready=0)),
        "False",
        "ScaledToZero",
        "raise it to serve",
        id="scaled to zero",
    ),
    pytest.param(observation(), "False", "RolloutInProgress", "0 of 1 pods run the current spec", id="no Deployment yet"),
    pytest.param(
        observation(of=owner(replicas=3), deployed=deployment(replicas=3, updated=1, ready=3)),
        "False",
        "RolloutInProgress",
        "1 of 3 pods run the current spec",
        id="pods of the former template",
    ),
    pytest.param(
        observation(deployed=deployment(rendered_hash="former")),
        "False",
        "RolloutInProgress",
        "1 of 1 pods",
        id="the Deployment in the cache is older than what was applied",
    ),
    pytest.param(
        observation(deployed=deployment(generation=2)), "False", "RolloutInProgress", "1 of 1", id="not seen by its controller"
    ),
    pytest.param(
        observation(deployed=deployment(replicas=2)),
        "False",
        "RolloutInProgress",
        "1 of 1 pods",
        id="one pod too many is still there",
    ),
    pytest.param(
        observation(of=owner(replicas=3), deployed=deployment(replicas=3, updated=3, ready=2)),
        "False",
        "PodsNotReady",
        "2 of 3 pods are ready",
        id="starting",
    ),
    pytest.param(
        observation(deployed=starting(), pods=[pod(ready=False, node_name=None, unschedulable=GPU_TEXT)]),
        "False",
        "InsufficientGPU",
        f"Pod agents-1 waits for a node: {GPU_TEXT}",
        id="AT-22: no GPU left",
    ),
    pytest.param(
        observation(deployed=starting(), pods=[pod(ready=False, node_name=None, unschedulable=MEMORY_TEXT)]),
        "False",
        "InsufficientHostMemory",
        f"Pod agents-1 waits for a node: {MEMORY_TEXT}",
        id="AT-22: no memory left",
    ),
    pytest.param(
        observation(
            deployed=starting(), pods=[pod(ready=False, node_name=None, unschedulable="0/1 nodes: 1 node(s) had taints.")]
        ),
        "False",
        "Unschedulable",
        "Pod agents-1 waits for a node: 0/1 nodes: 1 node(s) had taints.",
        id="AT-22: another cause",
    ),
    pytest.param(
        observation(deployed=starting(), pods=[pod(ready=False, trouble=Trouble("OOMKilled", "exit code 137"), restarts=4)]),
        "False",
        "OOMKilled",
        "Pod agents-1: OOMKilled, 4 restarts: exit code 137",
        id="AT-21: killed for its memory",
    ),
    pytest.param(
        observation(
            deployed=starting(), pods=[pod(ready=False, trouble=Trouble("CrashLoopBackOff", "exit code 1: no model"), restarts=2)]
        ),
        "False",
        "CrashLoopBackOff",
        "Pod agents-1: CrashLoopBackOff, 2 restarts: exit code 1: no model",
        id="ends again and again",
    ),
    pytest.param(
        observation(deployed=starting(), pods=[pod(ready=False, trouble=Trouble("ErrImageNeverPull", ""))]),
        "False",
        "ErrImageNeverPull",
        "Pod agents-1: ErrImageNeverPull: no further detail.",
        id="no image",
    ),
    pytest.param(
        observation(
            of=owner(replicas=2),
            deployed=deployment(replicas=2, updated=2),
            pods=[pod(name="agents-1", trouble=Trouble("OOMKilled", ""), ready=False, deleting=True), pod(name="agents-2")],
        ),
        "False",
        "PodsNotReady",
        "1 of 2 pods",
        id="the trouble of a pod that is going away is past",
    ),
    pytest.param(
        observation(
            of=owner(replicas=2),
            deployed=starting(replicas=2, updated=2),
            pods=[
                pod(name="agents-1", ready=False, trouble=Trouble("OOMKilled", "exit code 137")),
                pod(name="agents-2", ready=False, node_name=None, unschedulable=MEMORY_TEXT),
            ],
        ),
        "False",
        "InsufficientHostMemory",
        "Pod agents-2",
        id="a pod without a node comes first",
    ),
    pytest.param(
        observation(apply_error="The API server refused a child: 403 Forbidden: quota exceeded."),
        "False",
        "ApplyFailed",
        "403 Forbidden: quota exceeded. It is tried again with growing delays.",
        id="a child was refused",
    ),
]


def progress(stage: str, *, pinned_bytes: int = 0) -> ProgressReport:
    return ProgressReport(stage=stage, pinned_bytes=pinned_bytes, planned_pinned_bytes=96 << 30)


@pytest.mark.parametrize(
    ("told", "reason", "words"),
    [
        ({"a": progress("loading")}, "LoadingModel", "pod a loads the model."),
        (
            {"a": progress("warming"), "b": progress("pinning", pinned_bytes=40 << 30)},
            "PinningHostPool",
            "pod b fills and pins its host pools, 40 % of 96.00 GiB.",
        ),
        ({"a": progress("starting")}, "PodsNotReady", "pod a imports its engine."),
        ({"a": progress("of a newer engine")}, "PodsNotReady", "the others are starting."),
    ],
)
def test_a_pod_that_starts_tells_how_far_it_is(told: dict[str, ProgressReport], reason: str, words: str) -> None:
    seen = observation(deployed=starting(), pods=[pod(ready=False)], starting=told)
    found = condition(READY, seen)
    assert (found.status, found.reason) == ("False", reason)
    assert found.message.endswith(words)
    assert condition(AVAILABLE, seen).reason == reason


@pytest.mark.parametrize(("seen", "status", "reason", "part"), READY_CASES)
def test_ready(seen: Observation, status: str, reason: str, part: str) -> None:
    found = condition(READY, seen)
    assert (found.status, found.reason) == (status, reason)
    assert part in found.message


@pytest.mark.parametrize(
    ("replicas", "ready", "status", "reason", "message"),
    [
        (0, 0, "False", "ScaledToZero", "spec.replicas is 0: no pod is asked for."),
        (1, 0, "False", "PodsNotReady", "0 of 1 pods answer requests, 1 needed: 0 of 1 pods are ready; the others are starting."),
        (1, 1, "True", "PodsReady", "1 of 1 pods answer requests."),
        (3, 1, "False", "PodsNotReady", "1 of 3 pods answer requests, 2 needed: 1 of 3 pods are ready; the others are starting."),
        (3, 2, "True", "PodsReady", "2 of 3 pods answer requests."),
    ],
)
def test_available_is_true_while_at_most_one_pod_is_down(
    replicas: int, ready: int, status: str, reason: str, message: str
) -> None:
    seen = observation(of=owner(replicas=replicas), deployed=deployment(replicas=replicas, updated=replicas, ready=ready))
    found = condition(AVAILABLE, seen)
    assert (found.status, found.reason, found.message) == (status, reason, message)


def test_available_names_a_refused_child_as_the_cause() -> None:
    found = condition(AVAILABLE, observation(apply_error="The API server refused a child: 403 Forbidden: quota."))
    assert (found.reason, "403 Forbidden: quota." in found.message) == ("ApplyFailed", True)


TELEMETRY_CASES = [
    pytest.param({}, "Unknown", "NoPods", "No pod is ready", id="no pods"),
    pytest.param({"a": sample(), "b": sample(age_seconds=15)}, "True", "Scraped", "2 of 2 pods report", id="fresh"),
    pytest.param({"a": sample(error="TimeoutError", age_seconds=9)}, "True", "Scraped", "1 of 1 pods", id="one answer missed"),
    pytest.param(
        {"a": sample(error="TimeoutError", age_seconds=9), "b": sample(age_seconds=16)},
        "Unknown",
        "ScrapePending",
        "1 of 2 pods",
        id="one answer missed, another pod silent",
    ),
    pytest.param({"a": None}, "Unknown", "ScrapePending", "1 of 1 pods have not reported in the last 15 s", id="not asked yet"),
    pytest.param(
        {"a": sample(), "b": sample(age_seconds=16)},
        "Unknown",
        "ScrapePending",
        "1 of 2 pods have not reported",
        id="AT-24: older than three periods",
    ),
    pytest.param(
        {"a": sample(), "b": sample(error="TimeoutError", lost=True)},
        "False",
        "ScrapeFailed",
        "1 of 2 pods report their residency; pod b: TimeoutError.",
        id="one fails",
    ),
    pytest.param(
        {"a": sample(error="ScrapeError: GET /hisparse/residency answered 500", age_seconds=40)},
        "Unknown",
        "ScrapeFailed",
        "0 of 1 pods report their residency; pod a: ScrapeError: GET /hisparse/residency answered 500. The numbers of",
        id="all fail",
    ),
]


@pytest.mark.parametrize(("samples", "status", "reason", "part"), TELEMETRY_CASES)
def test_telemetry_available(samples: dict[str, object], status: str, reason: str, part: str) -> None:
    found = condition(TELEMETRY_AVAILABLE, observation(samples=samples))  # type: ignore[arg-type]  # samples by pod, see the cases
    assert (found.status, found.reason) == (status, reason)
    assert part in found.message


def test_the_transition_time_is_kept_while_the_status_stays_even_if_the_reason_changes() -> None:
    first = conditions(observation(), before=[])
    assert {each.last_transition_time for each in first} == {"2027-03-04T05:06:07Z"}
    second = conditions(observation(deployed=starting(), seconds_later=60), before=first)
    ready = next(each for each in second if each.type == READY)
    assert (ready.reason, ready.last_transition_time) == ("PodsNotReady", "2027-03-04T05:06:07Z")


def test_the_transition_time_is_now_once_the_status_differs() -> None:
    first = conditions(observation(), before=[])
    second = {each.type: each for each in conditions(serving(seconds_later=60), before=first)}
    assert second[READY].last_transition_time == second[AVAILABLE].last_transition_time == "2027-03-04T05:07:07Z"
    assert second[POOL_SIZED].last_transition_time == "2027-03-04T05:06:07Z"
