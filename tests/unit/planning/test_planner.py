"""Plans worked out by hand, refusals with their next step, and what holds for every plan."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_operator.api import PlanStatus
from hisparse_operator.planning import Infeasible, Plan, PodRequest, plan, plan_from_json, plan_to_json
from tests.unit.planning.samples import GIB, MIB, MODEL_CONFIG, SMALLEST_POD_BYTES, sample_node, sample_pod, sample_spec

OWN = "team/agents"


def test_one_pod_on_one_node_gets_what_the_bound_allows() -> None:
    settled = plan(sample_spec(host_memory_max="704Mi"), deployment=OWN, nodes=[sample_node()], pods=[])
    memory_sum = "440.0 MiB shared memory + 192.0 MiB working set + 8.0 MiB device pool + 64.0 MiB headroom"
    # 704 MiB - 192 working set - 8 device pool - 64 headroom - 64 slack = 376 MiB = 24,064 pages of 12 + 4 KiB
    assert settled == Plan(
        node="node-a",
        eligible_nodes=1,
        pods_per_node=1,
        host_pool_bytes=282 * MIB,
        host_pool_gib=282 / 1024,
        cpu_bytes_to_use=94 * MIB,
        gpu_kv_bytes=8 * MIB,
        device_buffer_rows=128,
        max_model_len=4096,
        shm_bytes=440 * MIB,
        memory_bytes=704 * MIB,
        host_pool_tokens=24_063 * 16,
        device_pool_tokens=272 * 16,
        startup_seconds=120,
        termination_seconds=45,
        arithmetic=(
            "node node-a: 16.00 GiB allocatable - 0 B requested by other pods = 16.00 GiB",
            "1 pod spread over 1 node: node-a decides with 1 of them, 16.00 GiB / 1 = 16.00 GiB for one pod",
            "hostMemory.max: 704.0 MiB of that for one pod",
            "host pool: 282.0 MiB tuned, 24,064 blocks of 12.0 KiB, 385,008 tokens",
            "offload: 94.0 MiB tuned, 24,064 blocks of 4.0 KiB, 385,024 tokens",
            "shared memory: 282.0 MiB host pool + 94.0 MiB offload + 64.0 MiB slack = 440.0 MiB",
            f"memory of one pod: {memory_sum} = 704.0 MiB",
        ),
    )


def test_at03_other_pods_and_ours_fit_on_the_node_together() -> None:
    others = [sample_pod(memory_bytes=3 * GIB), sample_pod(memory_bytes=2 * GIB, deployment="team/another")]
    elsewhere = sample_pod("node-z", memory_bytes=9 * GIB)
    settled = plan(sample_spec(replicas=2), deployment=OWN, nodes=[sample_node()], pods=[*others, elsewhere])
    assert settled.pods_per_node == 2
    # (16 - 5) / 2 GiB
    assert settled.memory_bytes == 5632 * MIB
    assert settled.arithmetic[0] == "node node-a: 16.00 GiB allocatable - 5.00 GiB requested by other pods = 11.00 GiB"


def test_pods_of_the_deployment_itself_do_not_shrink_its_plan() -> None:
    alone = plan(sample_spec(), deployment=OWN, nodes=[sample_node()], pods=[])
    running = plan(sample_spec(), deployment=OWN, nodes=[sample_node()], pods=[sample_pod(memory_bytes=15 * GIB, deployment=OWN)])
    assert running == alone


def test_at03_of_two_different_nodes_the_smaller_share_decides() -> None:
    nodes = [sample_node("node-a", memory_bytes=16 * GIB), sample_node("node-b", memory_bytes=8 * GIB)]
    settled = plan(sample_spec(replicas=2), deployment=OWN, nodes=nodes, pods=[])
    assert (settled.node, settled.eligible_nodes, settled.pods_per_node) == ("node-b", 2, 1)
    assert settled.memory_bytes == 8 * GIB


def test_at04_a_cordoned_small_node_does_not_take_part_in_sizing() -> None:
    nodes = [sample_node("node-a", memory_bytes=16 * GIB), sample_node("node-b", memory_bytes=8 * GIB, unschedulable=True)]
    settled = plan(sample_spec(replicas=2), deployment=OWN, nodes=nodes, pods=[])
    assert (settled.node, settled.eligible_nodes, settled.pods_per_node) == ("node-a", 1, 2)


def test_a_node_full_of_other_pods_does_not_make_the_plan_fail() -> None:
    nodes = [sample_node("node-a"), sample_node("node-b")]
    settled = plan(sample_spec(replicas=2), deployment=OWN, nodes=nodes, pods=[sample_pod("node-b", memory_bytes=16 * GIB)])
    assert (settled.node, settled.pods_per_node, settled.memory_bytes) == ("node-a", 2, 8 * GIB)
    assert "2 pods cannot be spread evenly" in settled.arithmetic[1]


def test_gpus_limit_how_many_pods_share_a_node() -> None:
    settled = plan(sample_spec(replicas=4, engine={"gpus": 4}), deployment=OWN, nodes=[sample_node(gpus=8)], pods=[])
    assert (settled.pods_per_node, settled.memory_bytes) == (2, 8 * GIB)


def test_pods_that_gpus_keep_from_spreading_evenly_still_fit() -> None:
    nodes = [sample_node("node-a", gpus=1), sample_node("node-b", gpus=8)]
    settled = plan(sample_spec(replicas=4, engine={"gpus": 1}), deployment=OWN, nodes=nodes, pods=[])
    # one on node-a, three on node-b
    assert settled.memory_bytes == 16 * GIB // 3 // MIB * MIB
    assert (settled.node, settled.pods_per_node) == ("node-b", 3)


def test_no_replicas_are_planned_as_one() -> None:
    nodes = [sample_node()]
    none = plan(sample_spec(replicas=0), deployment=OWN, nodes=nodes, pods=[])
    assert none.memory_bytes == plan(sample_spec(replicas=1), deployment=OWN, nodes=nodes, pods=[]).memory_bytes


def test_at05_given_sizes_are_taken_as_they_are() -> None:
    settled = plan(sample_spec(host_pool_gib=0.5, cpu_bytes_to_use="100M"), deployment=OWN, nodes=[sample_node()], pods=[])
    assert (settled.host_pool_bytes, settled.cpu_bytes_to_use) == (512 * MIB, 100_000_000)
    # 512 + 95.37 + 64 MiB, then 192 + 8 + 64 MiB
    assert (settled.shm_bytes, settled.memory_bytes) == (672 * MIB, 936 * MIB)


def test_at05_a_pool_larger_than_any_node_is_refused_with_what_would_fit() -> None:
    nodes = [sample_node("node-a", memory_bytes=8 * GIB), sample_node("node-b", memory_bytes=16 * GIB)]
    with pytest.raises(Infeasible) as caught:
        plan(sample_spec(host_pool_gib=96), deployment=OWN, nodes=nodes, pods=[sample_pod("node-b", memory_bytes=GIB)])
    message = caught.value.message
    assert caught.value.reason == "InsufficientHostMemory"
    assert message.startswith(
        "1 pod needs at least 97.41 GiB (shared memory: 96.00 GiB host pool + 8.0 KiB offload + 64.0 MiB slack"
    )
    assert (
        "the roomiest of 2 eligible nodes has 15.00 GiB left (node node-b: 16.00 GiB allocatable - 1.00 GiB requested" in message
    )
    assert "Next: hiSparse.hostPoolGiB 10.924 with an offload tier of 3.64 GiB would fit there" in message
    # 15,360 MiB = 1.01 x (pools + 64 slack + 200) + pools / 512: 14,915 MiB of pools, three quarters for KV; and it fits:
    fitting = sample_spec(host_pool_gib=10.924)
    assert plan(fitting, deployment=OWN, nodes=nodes, pods=[sample_pod("node-b", memory_bytes=GIB)]).node == "node-b"


def test_too_many_given_pods_are_refused_with_how_many_fit() -> None:
    spec = sample_spec(replicas=9, host_pool_gib=2, cpu_bytes_to_use="1Gi")
    with pytest.raises(Infeasible) as caught:
        plan(spec, deployment=OWN, nodes=[sample_node("node-a"), sample_node("node-b")], pods=[])
    # 3 GiB + 64 MiB of shared memory, 192 + 8 MiB and 64 MiB of headroom: 3.32 GiB, four to a node
    assert caught.value.reason == "InsufficientHostMemory"
    assert "each of 9 pods needs at least 3.32 GiB" in caught.value.message
    assert "there is room for 8" in caught.value.message
    assert "lower spec.replicas to 8" in caught.value.message


def test_a_bound_below_the_smallest_pod_is_refused() -> None:
    with pytest.raises(Infeasible, match=r"hostMemory\.max is 332\.0 MiB and one pod needs at least 333\.0 MiB") as caught:
        plan(sample_spec(host_memory_max="332Mi"), deployment=OWN, nodes=[sample_node()], pods=[])
    assert caught.value.reason == "InsufficientHostMemory"
    assert (
        plan(sample_spec(host_memory_max="333Mi"), deployment=OWN, nodes=[sample_node()], pods=[]).memory_bytes
        == SMALLEST_POD_BYTES
    )


def test_given_sizes_above_the_bound_are_refused() -> None:
    with pytest.raises(Infeasible, match=r"hostMemory\.max is 1\.00 GiB"):
        plan(sample_spec(host_pool_gib=1, host_memory_max="1Gi"), deployment=OWN, nodes=[sample_node()], pods=[])


def test_a_host_pool_that_holds_no_longest_request_is_refused() -> None:
    with pytest.raises(
        Infeasible, match=r"maxModelLen 4,096 needs 258: raise hiSparse\.hostPoolGiB to at least 0\.003"
    ) as caught:
        plan(sample_spec(host_pool_gib=0.001), deployment=OWN, nodes=[sample_node()], pods=[])
    assert caught.value.reason == "InsufficientHostMemory"


def test_a_device_pool_that_holds_no_longest_request_is_refused() -> None:
    with pytest.raises(Infeasible, match=r"raise engine\.gpuKVCache to at least 2242560") as caught:
        plan(sample_spec(engine={"gpuKVCache": "2Mi"}), deployment=OWN, nodes=[sample_node()], pods=[])
    assert caught.value.reason == "InsufficientDeviceMemory"


def test_a_model_config_without_a_field_is_refused_naming_it() -> None:
    config = {key: value for key, value in MODEL_CONFIG.items() if key != "index_topk"}
    with pytest.raises(Infeasible, match=r"spec\.model\.config: config\.json has no 'index_topk'") as caught:
        plan(sample_spec(model_config=config), deployment=OWN, nodes=[sample_node()], pods=[])
    assert caught.value.reason == "InvalidModelConfig"


def test_a_top_k_beyond_any_hot_region_is_refused() -> None:
    with pytest.raises(Infeasible, match="index_topk is 40,000 and a hot region numbers at most 32,768 rows") as caught:
        plan(sample_spec(model_config={**MODEL_CONFIG, "index_topk": 40000}), deployment=OWN, nodes=[sample_node()], pods=[])
    assert caught.value.reason == "InvalidModelConfig"


def test_a_context_longer_than_the_model_has_positions_is_refused() -> None:
    with pytest.raises(Infeasible, match="max_position_embeddings 8,192") as caught:
        plan(sample_spec(engine={"maxModelLen": 8193}), deployment=OWN, nodes=[sample_node()], pods=[])
    assert caught.value.reason == "InvalidSpec"


def test_a_hot_region_smaller_than_the_top_k_is_refused() -> None:
    with pytest.raises(Infeasible, match="raise it to at least 64, or leave it out for 128") as caught:
        plan(sample_spec(engine={"deviceBufferSize": 63}), deployment=OWN, nodes=[sample_node()], pods=[])
    assert caught.value.reason == "InvalidSpec"


def test_at10_only_allocatable_memory_is_planned_with() -> None:
    # the facts of a node carry no capacity: what the kubelet reserves, huge pages included, is already gone
    settled = plan(sample_spec(), deployment=OWN, nodes=[sample_node(memory_bytes=10 * GIB)], pods=[])
    assert settled.memory_bytes == 10 * GIB


def test_a_plan_survives_json() -> None:
    settled = plan(sample_spec(), deployment=OWN, nodes=[sample_node()], pods=[])
    assert plan_from_json(plan_to_json(settled)) == settled


@pytest.mark.parametrize(
    "change", [{"memory_bytes": "1Gi"}, {"memory_bytes": True}, {"arithmetic": "text"}, {"node": None}, {"surplus": 1}]
)
def test_a_tampered_plan_is_refused(change: dict[str, object]) -> None:
    settled = plan(sample_spec(), deployment=OWN, nodes=[sample_node()], pods=[])
    with pytest.raises(ValueError, match=next(iter(change))):
        plan_from_json(json.dumps(json.loads(plan_to_json(settled)) | change))


def test_a_plan_shows_in_the_status() -> None:
    settled = plan(sample_spec(host_memory_max="704Mi"), deployment=OWN, nodes=[sample_node()], pods=[])
    status = settled.to_status()
    assert isinstance(status, PlanStatus)
    assert (status.node, status.host_pool_bytes, status.cpu_bytes_to_use, status.memory_bytes) == (
        "node-a",
        282 * MIB,
        94 * MIB,
        704 * MIB,
    )
    assert status.arithmetic == list(settled.arithmetic)


def given_pod_bytes(host_pool_gib: float) -> int:
    """The smallest pod with a given host pool: an offload tier of two indexer pages."""
    pools = int(host_pool_gib * GIB) + 2 * 4096
    shm = -(-(pools + 64 * MIB) // MIB) * MIB
    used = shm + 200 * MIB
    return -(-(used + max(64 * MIB, used // 100 + pools * 8 // 4096)) // MIB) * MIB


_SIZES = st.integers(0, 64 * GIB)


@given(
    node_bytes=st.lists(_SIZES, min_size=1, max_size=4),
    other_pods=st.lists(st.tuples(st.integers(0, 3), _SIZES), max_size=4),
    replicas=st.integers(0, 6),
    gpus=st.sampled_from([0, 1, 4]),
    host_pool_gib=st.none() | st.floats(0.004, 8),
)
def test_at03_replicas_fit_beside_other_pods_on_real_nodes(
    node_bytes: list[int], other_pods: list[tuple[int, int]], replicas: int, gpus: int, host_pool_gib: float | None
) -> None:
    nodes = [sample_node(f"node-{index}", memory_bytes=size, gpus=8) for index, size in enumerate(node_bytes)]
    pods: list[PodRequest] = [sample_pod(f"node-{index}", memory_bytes=size) for index, size in other_pods]
    left = [size - sum(taken for index, taken in other_pods if index == at) for at, size in enumerate(node_bytes)]
    spec = sample_spec(replicas=replicas, engine={"gpus": gpus}, host_pool_gib=host_pool_gib)
    wanted = min(max(1, replicas), len(nodes) * 8 // gpus) if gpus else max(1, replicas)

    def places(memory_bytes: int) -> int:
        return sum(min(max(0, room) // memory_bytes, 8 // gpus if gpus else wanted) for room in left)

    least_bytes = SMALLEST_POD_BYTES if host_pool_gib is None else given_pod_bytes(host_pool_gib)
    if places(least_bytes) < wanted:
        with pytest.raises(Infeasible) as caught:
            plan(spec, deployment=OWN, nodes=nodes, pods=pods)
        assert caught.value.reason == "InsufficientHostMemory"
        return
    settled = plan(spec, deployment=OWN, nodes=nodes, pods=pods)
    assert settled.memory_bytes >= least_bytes
    assert places(settled.memory_bytes) >= wanted
    assert settled.shm_bytes >= settled.host_pool_bytes + settled.cpu_bytes_to_use
    assert int(settled.host_pool_gib * GIB) == settled.host_pool_bytes
    assert settled.host_pool_tokens >= 4096


@given(memory_bytes=st.integers(SMALLEST_POD_BYTES, 64 * GIB), more_bytes=_SIZES)
def test_more_memory_never_gives_smaller_pools(memory_bytes: int, more_bytes: int) -> None:
    smaller = plan(sample_spec(), deployment=OWN, nodes=[sample_node(memory_bytes=memory_bytes)], pods=[])
    larger = plan(sample_spec(), deployment=OWN, nodes=[sample_node(memory_bytes=memory_bytes + more_bytes)], pods=[])
    assert larger.host_pool_bytes >= smaller.host_pool_bytes
    assert larger.cpu_bytes_to_use >= smaller.cpu_bytes_to_use
    assert larger.memory_bytes >= smaller.memory_bytes
