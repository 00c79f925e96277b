"""vLLM engines on nodes: the same numbers as the command line's, and refusals before any pod."""

from typing import Any

import pytest

from hisparse_operator.api import HiSparseDeploymentSpec
from hisparse_operator.planning import Infeasible, Plan, plan
from tests.unit.planning.samples import GIB, sample_node

OWN = "team/agents"


def vllm_spec(
    *, model: str = "zai-org/GLM-5.3", engine: dict[str, Any] | None = None, vllm: dict[str, Any] | None = None, **fields: Any
) -> HiSparseDeploymentSpec:
    return HiSparseDeploymentSpec.model_validate(
        {
            "model": {"name": model},
            "engine": {
                "type": "VLLM",
                "maxModelLen": 142_000,
                "vllm": {"gpu": "H200", "tensorParallelSize": 8, "kvCacheDtype": "fp8", **(vllm or {})},
                **(engine or {}),
            },
            **fields,
        }
    )


def planned(spec: HiSparseDeploymentSpec, *, memory_gib: int = 2000, gpus: int = 8) -> Plan:
    return plan(spec, deployment=OWN, nodes=[sample_node(memory_bytes=memory_gib * GIB, gpus=gpus)], pods=[])


def refused(spec: HiSparseDeploymentSpec, **node: int) -> Infeasible:
    with pytest.raises(Infeasible) as caught:
        planned(spec, **node)
    return caught.value


def test_glm_5_3_on_eight_h200() -> None:
    made = planned(vllm_spec(engine={"gpuKVCache": 19112604467}))
    assert made.concurrency is not None
    assert (round(made.concurrency.steady, 2), made.concurrency.limited_by) == (24.29, "gpu")
    assert made.memory_bytes <= 2000 * GIB
    assert int(made.host_pool_gib * GIB) == made.host_pool_bytes
    assert made.startup_seconds > 1000
    assert any("keep prefixes of idle conversations" in warning for warning in made.warnings)
    status = made.to_status()
    assert status.concurrency is not None
    assert (status.concurrency.steady, status.concurrency.limited_by) == ("24.29", "gpu")
    assert status.warnings == list(made.warnings)


def test_kv_memory_is_estimated_from_gpu_and_weights_where_it_is_not_given() -> None:
    # 139.8 GiB x 0.92 - 88.45 GiB of weights - 15 GiB
    assert planned(vllm_spec()).gpu_kv_bytes / GIB == pytest.approx(25.17, abs=0.01)


def test_a_pod_takes_all_gpus_of_its_replicas() -> None:
    assert refused(vllm_spec(), gpus=4).message.startswith("1 node: 1 has 4 nvidia.com/gpu of 8 needed")
    two = vllm_spec(vllm={"dataParallelSize": 2})
    assert refused(two, gpus=8).message.startswith("1 node: 1 has 8 nvidia.com/gpu of 16 needed")


def test_at05_given_sizes_are_taken_and_refused_with_the_arithmetic_where_nothing_holds_them() -> None:
    spec = vllm_spec(hiSparse={"hostPoolGiB": 384}, offload={"cpuBytesToUse": "128Gi"})
    made = planned(spec)
    assert (made.host_pool_bytes, made.cpu_bytes_to_use) == (384 * GIB, 128 * GIB)
    problem = refused(spec, memory_gib=400)
    assert problem.reason == "InsufficientHostMemory"
    assert "384.00 GiB host pool + 128.00 GiB offload + 2.00 GiB slack = 514.00 GiB" in problem.message
    problem = refused(vllm_spec(hiSparse={"hostPoolGiB": 4}))
    assert problem.reason == "InsufficientHostMemory"
    assert "engine.maxModelLen 142,000 needs 2,221: raise hiSparse.hostPoolGiB to at least" in problem.message


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("--kv-transfer-config", "hiSparse.hostPoolGiB and offload.cpuBytesToUse"),
        ("--kv_transfer_config={}", "hiSparse.hostPoolGiB and offload.cpuBytesToUse"),
        ("--num-gpu-blocks-override=30000", "engine.gpuKVCache; the override would leave the host pool at another size"),
        ("--attention-config={'hisparse_config':{'host_pool_gib':384}}", "is the dialect of a branch that every release refuses"),
        ("-ac.hisparse_config.device_buffer_size=4096", "engine.deviceBufferSize"),
        ("--max-model-len", "engine.maxModelLen"),
    ],
)
def test_at06_arguments_that_change_sizes_are_refused_with_where_to_say_it_instead(argument: str, hint: str) -> None:
    problem = refused(vllm_spec(vllm={"extraArgs": ["--enable-auto-tool-choice", argument, "x"]}))
    assert problem.reason == "InvalidSpec"
    assert hint in problem.message


def test_other_arguments_are_left_to_the_engine() -> None:
    planned(vllm_spec(vllm={"extraArgs": ["--enable-auto-tool-choice", "--tool-call-parser=glm47"]}))


@pytest.mark.parametrize(
    ("spec", "reason", "text"),
    [
        (vllm_spec(vllm={"gpu": "MI300X"}), "InvalidSpec", "engine.vllm.gpu MI300X: released vLLM refuses HiSparse on it"),
        (vllm_spec(vllm={"gpu": "A100"}), "InvalidSpec", "GPU 'A100' is not known: use one of"),
        (vllm_spec(vllm={"version": "0.29"}), "InvalidSpec", "sizes are known for 0.30, 0.31, 0.32, 0.33"),
        (vllm_spec(vllm={"kvCacheDtype": "nvfp4_ds_mla"}), "InvalidSpec", "use one of auto, bfloat16, fp8"),
        (vllm_spec(vllm={"tensorParallelSize": 4}), "InsufficientDeviceMemory", "of weights and 15.00 GiB for the runtime"),
        (vllm_spec(model="my/model"), "InvalidModelConfig", "model 'my/model' has no preset"),
        (vllm_spec(engine={"maxModelLen": 2_000_000}), "InvalidSpec", "max_position_embeddings 1,048,576"),
        (vllm_spec(engine={"gpuKVCache": "512Mi"}), "InsufficientDeviceMemory", "raise engine.gpuKVCache to at least"),
        (vllm_spec(engine={"deviceBufferSize": 100}), "InvalidSpec", "engine.deviceBufferSize 100 does not hold"),
    ],
)
def test_what_vllm_would_refuse_makes_no_pod(spec: HiSparseDeploymentSpec, reason: str, text: str) -> None:
    problem = refused(spec)
    assert problem.reason == reason
    assert text in problem.message


def test_weights_that_cannot_be_counted_matter_only_where_kv_memory_is_estimated() -> None:
    config = {"quantization_config": {"quant_method": "awq"}}
    spec = vllm_spec(engine={"gpuKVCache": "18Gi"}).model_dump(by_alias=True, exclude_none=True, mode="json")
    spec["model"]["config"] = config
    made = planned(HiSparseDeploymentSpec.model_validate(spec))
    assert any("1800 s weights of unknown size" in line for line in made.arithmetic)
    del spec["engine"]["gpuKVCache"]
    problem = refused(HiSparseDeploymentSpec.model_validate(spec))
    assert problem.reason == "InvalidModelConfig"
    assert "give engine.gpuKVCache, the KV memory of one GPU" in problem.message


def test_mode_off_is_planned_for_any_model_with_an_offload_tier_of_what_is_left() -> None:
    off: dict[str, Any] = {"hiSparse": {"mode": "Off"}}
    made = planned(vllm_spec(model="llama", **off), memory_gib=100)
    # 8 workers x 6 GiB + 2 GiB, 2 GiB of slack, and the headroom; the rest is the tier
    assert made.memory_bytes == 100 * GIB
    assert made.shm_bytes == made.cpu_bytes_to_use + 2 * GIB
    assert 44 * GIB < made.cpu_bytes_to_use < 48 * GIB
    assert (made.host_pool_bytes, made.device_pool_tokens, made.concurrency) == (0, None, None)
    given = planned(vllm_spec(model="llama", offload={"cpuBytesToUse": "10Gi"}, **off), memory_gib=100)
    assert (given.cpu_bytes_to_use, given.memory_bytes < 66 * GIB) == (10 * GIB, True)
    without = planned(vllm_spec(model="llama", offload={"enabled": False}, **off), memory_gib=100)
    assert (without.cpu_bytes_to_use, without.arithmetic[-5]) == (0, "offload: none")
    assert planned(vllm_spec(**off), memory_gib=100).startup_seconds < made.startup_seconds  # weights that can be counted


@pytest.mark.parametrize(
    ("spec", "block_bytes"),
    [
        # 64 tokens of 656 B in 78 layers, and of 132 B in the 21 that have an indexer
        (vllm_spec(hiSparse={"mode": "Off"}), 64 * (78 * 656 + 21 * 132)),
        (vllm_spec(hiSparse={"mode": "Off"}, vllm={"numSpeculativeTokens": 3}), 64 * (79 * 656 + 22 * 132)),
        (vllm_spec(hiSparse={"mode": "Off"}, vllm={"kvCacheDtype": "nvfp4_ds_mla"}), 0),
        (vllm_spec(model="llama", hiSparse={"mode": "Off"}), 0),
        (vllm_spec(), 0),
    ],
    ids=["known", "speculative", "no such cache", "unknown model", "On"],
)
def test_a_pod_without_hisparse_is_told_the_size_of_a_block_where_it_is_known(
    spec: HiSparseDeploymentSpec, block_bytes: int
) -> None:
    told = planned(spec).pod
    assert told is not None
    assert told.device_block_bytes == block_bytes


def test_mode_off_is_refused_where_no_node_holds_it() -> None:
    spec = vllm_spec(model="llama", hiSparse={"mode": "Off"}, offload={"cpuBytesToUse": "100Gi"})
    problem = refused(spec, memory_gib=100)
    assert problem.reason == "InsufficientHostMemory"
    assert "Next: lower offload.cpuBytesToUse" in problem.message
    problem = refused(vllm_spec(model="llama", hiSparse={"mode": "Off"}), memory_gib=10)
    assert "Next: use nodes with more memory" in problem.message


def test_at06_arguments_of_an_engine_without_hisparse_are_checked_as_well() -> None:
    spec = vllm_spec(model="llama", hiSparse={"mode": "Off"}, vllm={"extraArgs": ["--api-key", "x"]})
    assert "command lines are no place for secrets" in refused(spec).message


@pytest.mark.parametrize("fields", [{}, {"hiSparse": {"mode": "Off"}}], ids=["On", "Off"])
def test_at29_pods_that_share_a_node_have_time_to_pin_one_after_the_other(fields: dict[str, Any]) -> None:
    engine = {"vllm": {"gpu": "H200", "tensorParallelSize": 4, "kvCacheDtype": "fp8"}, "gpuKVCache": "20Gi"}
    alone = planned(vllm_spec(engine=engine, hostMemory={"max": "800Gi"}, **fields))
    both = planned(vllm_spec(engine=engine, hostMemory={"max": "800Gi"}, replicas=2, **fields))
    assert (alone.pods_per_node, both.pods_per_node) == (1, 2)
    assert alone.memory_bytes == both.memory_bytes
    pinned_gib = (alone.host_pool_bytes + alone.cpu_bytes_to_use) / GIB
    assert both.startup_seconds - alone.startup_seconds == pytest.approx(pinned_gib / 2, abs=2)
    assert both.termination_seconds - alone.termination_seconds == pytest.approx(pinned_gib / 2, abs=2)
