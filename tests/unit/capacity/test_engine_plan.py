"""The whole plan of a vLLM engine: GLM-5.3 on a node with eight H200, its neighbours in settings, and what holds for all."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.capacity import (
    FLAG_NAMES,
    GIB,
    CapacityError,
    EnginePlan,
    EngineRequest,
    HostMemoryError,
    SettingsError,
    VllmSettings,
    estimated_kv_bytes,
    plan_arithmetic,
    plan_engine,
    plan_warnings,
    pod_shape,
    with_context,
)
from hisparse_runtime.capacity.errors import DeviceMemoryError
from hisparse_runtime.capacity.gpus import gpu
from hisparse_runtime.geometry import VLLM_VERSIONS
from tests.unit.capacity.models import preset_model

H200 = gpu("H200")


def request(*, budget_gib: int | None = None, host_pool_gib: int | None = None, **settings: Any) -> EngineRequest:
    defaults: dict[str, Any] = {
        "version": VLLM_VERSIONS["0.33"],
        "capability": H200.capability,
        "gpu_kv_bytes": int(17.8 * GIB),
        "max_model_len": 142_000,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        "kv_cache_dtype": "fp8",
        "tensor_parallel_size": 8,
    }
    return EngineRequest(
        model=preset_model("GLM-5.3"),
        settings=VllmSettings(**{**defaults, **settings}),
        gpu=H200,
        weights_bytes=704 * GIB,
        host_pool_bytes=None if host_pool_gib is None else host_pool_gib * GIB,
        budget_bytes=None if budget_gib is None else budget_gib * GIB,
    )


def made(wanted: EngineRequest) -> EnginePlan:
    return plan_engine(wanted, names=FLAG_NAMES)


def test_without_a_budget_the_host_pool_is_what_the_gpu_side_can_use() -> None:
    plan = made(request())
    # 25 requests of 2,219 pages, the last one not for long, and the null block
    assert plan.concurrency.limited_by == "gpu"
    assert plan.concurrency.steady == pytest.approx(24.29, abs=0.005)
    assert plan.memory.host_pool_bytes == (25 * 2219 + 1) * 3_276_800
    assert plan.memory.cpu_bytes_to_use == (25 * 2219 + 1) * plan.sizes.offload_chunk_bytes
    assert plan_warnings(plan) == ()


def test_a_context_that_was_impossible_fits() -> None:
    plan = made(request(max_model_len=1_048_576, budget_gib=512))
    assert plan.concurrency.ordinary < 1
    assert plan.concurrency.steady == pytest.approx(4.86, abs=0.005)


def test_at05_host_memory_that_the_gpu_side_cannot_use_is_not_taken_without_saying_so() -> None:
    plan = made(request(budget_gib=1900))
    (warning,) = plan_warnings(plan)
    assert warning.startswith(
        "host pool 1,253.98 GiB: running requests of 142,000 tokens can fill 169.30 GiB of it, since gpu ends"
    )
    assert "1,084.68 GiB keep prefixes of idle conversations" in warning


def test_a_host_pool_that_ends_concurrency_says_what_would_use_the_gpu() -> None:
    plan = made(request(host_pool_gib=20))
    assert plan.concurrency.limited_by == "host"
    assert plan.concurrency.steady == plan.concurrency.host == 6553 / 2219
    assert any("the GPU side would carry 24.29: a host pool of 169.30 GiB would use it" in text for text in plan_warnings(plan))


def test_few_sequences_end_concurrency_before_memory_does() -> None:
    plan = made(request(max_num_seqs=4))
    assert plan.concurrency.limited_by == "max_num_seqs"
    assert plan.memory.host_pool_bytes == (4 * 2219 + 1) * 3_276_800


def test_warnings_name_bugs_padding_small_gain_and_memory_beside_the_pool() -> None:
    texts = "\n".join(
        plan_warnings(
            made(request(version=VLLM_VERSIONS["0.31"], max_model_len=4096, device_buffer_size=4100, max_num_seqs=1024))
        )
    )
    assert "vLLM 0.31: cudagraph_mode=FULL is accepted and corrupts output" in texts
    assert "device_buffer_size 4,100 leaves 60 rows of each hot group unused: use 4,160" in texts
    assert "HiSparse gains little here" in texts
    assert "of each GPU beside the KV pool, after vLLM profiled" in texts


def test_an_offload_tier_that_is_far_smaller_than_the_host_pool_is_pointed_out() -> None:
    plan = made(replace(request(host_pool_gib=384), cpu_bytes_to_use=GIB))
    assert any("a prefix whose keys are gone is computed again" in text for text in plan_warnings(plan))


def test_the_arithmetic_ends_in_the_numbers_of_the_plan() -> None:
    plan = made(request(budget_gib=512))
    text = "\n".join(plan_arithmetic(plan))
    assert "row: 656 B per token and layer (fp8_ds_mla), 78 layers" in text
    assert "groups: 20 of 2, 4 x 19 layers" in text
    assert "1 + (91,047 - 8,619) / 3,539 = 24.29 by the GPU" in text
    assert text.count(f"{plan.host.num_blocks:,} blocks of 3.1 MiB") == 1
    assert f"= {plan.times.startup_seconds} s" in text
    assert plan.memory.memory_bytes <= 512 * GIB


def test_older_versions_pin_the_pool_twice() -> None:
    newest, older = made(request(budget_gib=900)), made(request(budget_gib=900, version=VLLM_VERSIONS["0.32"]))
    pinned_gib = newest.memory.host_pool_bytes / GIB
    assert older.times.startup_seconds - newest.times.startup_seconds == pytest.approx(pinned_gib / 2, abs=1.5)
    assert older.times.termination_seconds == newest.times.termination_seconds


def test_at02_private_pools_take_memory_for_each_rank() -> None:
    shared = made(request(host_pool_gib=100))
    private = made(request(host_pool_gib=100, tensor_parallel_size=1, data_parallel_size=8))
    assert shared.memory.shm_bytes > 100 * GIB > private.memory.shm_bytes - private.memory.cpu_bytes_to_use * 8
    assert private.memory.memory_bytes > 800 * GIB


def test_a_resolver_without_the_shared_memory_it_needs_is_refused_with_what_fits() -> None:
    rtx = gpu("RTX PRO 6000")
    wanted = request(capability=rtx.capability, num_speculative_tokens=4)
    with pytest.raises(SettingsError, match=r"RTX PRO 6000.*lower device_buffer_size|num_speculative_tokens"):
        made(replace(wanted, gpu=rtx))
    # 0.30 does not look
    made(replace(request(capability=rtx.capability, num_speculative_tokens=4, version=VLLM_VERSIONS["0.30"]), gpu=rtx))


def test_a_gpu_that_does_not_hold_the_weights_is_refused() -> None:
    with pytest.raises(DeviceMemoryError, match=r"H200: 139\.80 GiB x 0\.92 = 128\.62 GiB do not hold 704\.00 GiB of weights"):
        estimated_kv_bytes(H200, weights_bytes=704 * GIB)


_SETTINGS = st.fixed_dictionaries(
    {
        "version": st.sampled_from(list(VLLM_VERSIONS.values())),
        "max_model_len": st.integers(1, 1_048_576),
        "max_num_batched_tokens": st.integers(1, 131_072),
        "num_speculative_tokens": st.integers(0, 5),
        "gpu_kv_bytes": st.integers(1, 120 * GIB),
        "tensor_parallel_size": st.sampled_from([1, 4, 8]),
        "data_parallel_size": st.sampled_from([1, 2]),
        "async_scheduling": st.booleans(),
    }
)


@given(settings=_SETTINGS, budget_gib=st.integers(1, 4096), more_gib=st.integers(0, 512))
def test_at01_plans_stay_within_their_budget_and_grow_with_it(settings: dict[str, Any], budget_gib: int, more_gib: int) -> None:
    wanted = request(budget_gib=budget_gib, **settings)
    try:
        plan = made(wanted)
    except CapacityError:
        return
    memory, shape = plan.memory, pod_shape(plan.request.settings)
    copies = shape.replicas * shape.host_pool_copies
    in_shm = memory.cpu_bytes_to_use * shape.replicas + (memory.host_pool_bytes * copies if shape.shares_host_pool else 0)
    assert in_shm < memory.shm_bytes < memory.memory_bytes <= budget_gib * GIB
    assert memory.host_pool_bytes * copies <= memory.memory_bytes
    assert plan.host.num_blocks >= plan.host.min_blocks
    # what is planned is accepted when it is given
    made(replace(wanted, host_pool_bytes=memory.host_pool_bytes, cpu_bytes_to_use=memory.cpu_bytes_to_use))
    larger = made(replace(wanted, budget_bytes=(budget_gib + more_gib) * GIB))
    assert larger.memory.host_pool_bytes >= memory.host_pool_bytes
    assert larger.concurrency.steady >= plan.concurrency.steady


@given(settings=_SETTINGS, shorter=st.integers(1, 1_048_576), more_bytes=st.integers(0, 64 * GIB))
def test_shorter_contexts_and_more_gpu_memory_never_lower_concurrency(
    settings: dict[str, Any], shorter: int, more_bytes: int
) -> None:
    wanted = request(**settings)
    try:
        sizes = made(wanted).sizes
    except CapacityError:
        return
    shorter = min(shorter, sizes.max_model_len)
    assert made(with_context(wanted, shorter)).sizes.device.steady_concurrency(shorter) >= sizes.device.steady_concurrency(
        sizes.max_model_len
    )
    richer = made(request(**{**settings, "gpu_kv_bytes": settings["gpu_kv_bytes"] + more_bytes}))
    assert richer.sizes.device.steady_concurrency(sizes.max_model_len) >= sizes.device.steady_concurrency(sizes.max_model_len)


def test_a_budget_below_one_request_is_refused_with_its_arithmetic() -> None:
    with pytest.raises(HostMemoryError, match=r"one pod needs at least .* and has 40\.00 GiB"):
        made(request(budget_gib=40))
