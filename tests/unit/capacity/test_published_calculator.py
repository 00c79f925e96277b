"""The figures of the published page, row by row: 8 x H200, TP8, expert parallelism and FP8 KV where nothing else is said."""

from math import floor, inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.capacity.gpus import gpu
from hisparse_runtime.capacity.published_calculator import PublishedInput, PublishedResult, calculate_as_published

GIB = 1 << 30
MTP3_HOT_ROWS = 10_240


def result(**changes: Any) -> PublishedResult:
    return calculate_as_published(PublishedInput(**changes))


# tokens: requests without and with HiSparse, minimum host pool in GiB, MiB a request on a GPU without and with, and on the host
TABLE = {
    8_192: (48, 71, 25, 373, 255, 351),
    32_768: (12, 56, 77, 1_491, 322, 1_404),
    65_536: (6, 44, 121, 2_981, 412, 2_808),
    81_920: (4, 39, 134, 3_727, 457, 3_510),
    131_072: (3, 30, 165, 5_963, 592, 5_616),
    142_000: (2, 29, 173, 6_460, 622, 6_085),
    262_144: (1, 19, 209, 11_925, 952, 11_232),
    524_288: (0, 10, 220, 23_850, 1_672, 22_464),
    1_048_576: (0, 5, 220, 47_700, 3_112, 44_928),
}


@pytest.mark.parametrize("tokens", TABLE)
def test_the_table_over_context_lengths(tokens: int) -> None:
    shown = result(sequence_tokens=tokens)
    sizes_mib = (shown.gpu_mib_per_request_ordinary, shown.gpu_mib_per_request_hisparse, shown.host_mib_per_request)
    # 5,962.5 MiB are shown as 5,963: halves go up
    rounded_mib = tuple(floor(size_mib + 0.5) for size_mib in sizes_mib)
    assert (shown.ordinary, shown.hisparse, shown.min_host_gib, *rounded_mib) == TABLE[tokens]
    assert (shown.kv_gib, round(shown.weights_gib, 2)) == (17.8, 87.97)


@pytest.mark.parametrize(
    ("changes", "tokens", "ordinary", "hisparse", "min_host_gib"),
    [
        # three speculative tokens: (3 + 2) x 2,048 hot rows
        ({"hot_rows": MTP3_HOT_ROWS}, 65_536, 6, 24, 66),
        ({"hot_rows": MTP3_HOT_ROWS}, 81_920, 4, 22, 76),
        ({"hot_rows": MTP3_HOT_ROWS}, 131_072, 3, 19, 105),
        ({"hot_rows": MTP3_HOT_ROWS}, 1_048_576, 0, 5, 220),
        ({"kv": "bf16"}, 81_920, 2, 24, 165),
        ({"kv": "bf16"}, 1_048_576, 0, 3, 264),
        ({"gpu": "B200"}, 81_920, 14, 114, 391),
        ({"gpu": "B200"}, 1_048_576, 1, 16, 702),
        ({"gpu": "B300"}, 81_920, 39, 322, 1_104),
        ({"gpu": "B300"}, 1_048_576, 3, 47, 2_063),
    ],
)
def test_other_gpus_formats_and_hot_buffers(
    changes: dict[str, Any], tokens: int, ordinary: int, hisparse: int, min_host_gib: int
) -> None:
    shown = result(sequence_tokens=tokens, **changes)
    assert (shown.ordinary, shown.hisparse, shown.min_host_gib) == (ordinary, hisparse, min_host_gib)


def test_the_free_memory_of_each_gpu() -> None:
    assert [result(gpu=name).kv_gib for name in ("H200", "B200", "B300")] == [17.8, 51.3, 143.8]


def test_ordinary_kv_serves_nothing_from_400_thousand_tokens_on() -> None:
    # 6,260 blocks of 64 tokens; on the page's slider, which moves by 1,024, the first such length is 401,408
    assert result(sequence_tokens=400_640).ordinary == 1
    assert result(sequence_tokens=400_641).ordinary == 0


def test_sixteen_replicas_of_one_gpu_need_more_memory_than_the_default_budget() -> None:
    wide = {"data_parallel_size": 16, "tensor_parallel_size": 1}
    shown = result(ram_gib=8_192, **wide)
    assert (shown.total_ordinary, shown.total_hisparse) == (176, 1_552)
    assert (shown.kv_gib, shown.num_gpus, shown.min_host_gib) == (43.5, 16, 333)
    assert shown.requested_host_gib == shown.physical_host_gib == 16 * 333 + 128

    cut = result(**wide)
    assert cut.total_hisparse == 16 * 74
    assert cut.hisparse_unlimited_host * 16 == 1_552
    assert (cut.host_pool_gib, cut.offload_gib, cut.physical_host_gib) == (256, 0, 4_096)
    assert cut.is_limited_by_host
    assert not cut.is_limited_by_gpu


def test_the_defaults_are_those_of_the_page() -> None:
    shown = result()
    assert (shown.gpu_limit, shown.host_limit) == (39, 39)
    assert (shown.host_pool_gib, shown.physical_host_gib) == (134, 262)
    assert (shown.hot_bytes_per_request, shown.retained_bytes_per_request) == (225 << 20, 7_372_800)
    # 1,280 pages of 180 KiB on each of eight ranks
    assert shown.offload_bytes_per_request == 1_280 * 184_320 * 8
    assert shown.offload_full_histories == 72
    assert shown.multiplier == 9.75
    assert shown.fits


def test_a_private_host_pool_costs_memory_on_every_rank() -> None:
    shown = result(share_host=False)
    assert (shown.hisparse, shown.physical_host_gib) == (39, 8 * 134 + 128)


def test_a_given_host_pool_limits() -> None:
    # 100 GiB are 37,342 blocks: 29 times 1,280
    shown = result(host_pool_gib=100)
    assert (shown.hisparse, shown.host_limit, shown.gpu_limit) == (29, 29, 39)
    assert shown.is_limited_by_host
    assert not shown.is_limited_by_gpu


def test_the_number_of_sequences_limits() -> None:
    shown = result(max_num_seqs=16)
    assert shown.hisparse == 16
    assert not shown.is_limited_by_gpu
    assert result(sequence_tokens=8_192, max_num_seqs=16).min_host_gib == 0


def test_without_expert_parallelism_each_replica_has_all_experts() -> None:
    together, apart = (result(data_parallel_size=2, expert_parallel=is_on) for is_on in (True, False))
    assert together.weights_gib == pytest.approx(19.556 / 8 + 684.167 / 16)
    assert apart.weights_gib == result().weights_gib


def test_a_model_that_does_not_fit_serves_nothing() -> None:
    shown = result(tensor_parallel_size=4)
    assert not shown.fits
    assert (shown.kv_gib, shown.ordinary, shown.hisparse, shown.multiplier) == (0, 0, 0, None)
    assert shown.needed_gib > shown.budget_gib == pytest.approx(120.81, abs=0.01)


def test_only_hisparse_serves_the_full_context() -> None:
    assert result(sequence_tokens=1_048_576).multiplier == inf


def test_a_given_kv_size_replaces_the_estimate() -> None:
    assert result(kv_gib=35.6).ordinary == 9


def test_memory_bars_under_pressure() -> None:
    shown = result()
    gpus, host = shown.gpu_memory, shown.host_memory
    assert gpus.total_bytes == 8 * 141 * 10**9
    assert gpus.hot_bytes == gpus.indexer_bytes == 39 * 1_280 * 184_320 * 8
    # 103,692 blocks less two times 39 x 1,280
    assert gpus.resident_bytes == 3_852 * 184_320 * 8
    assert host.total_bytes == (134 + 128) * GIB
    assert host.hisparse_bytes == 39 * 1_280 * 2_875_392
    assert host.offload_bytes == 39 * 1_280 * 184_320 * 8


def test_memory_bars_without_pressure_have_no_hot_buffers() -> None:
    gpus = result(shown_requests=4).gpu_memory
    assert (gpus.hot_bytes, gpus.indexer_bytes) == (0, 4 * 1_280 * 184_320 * 8)
    # a page of all layers is as large as 15.6 blocks, so that 1,280 of them take 19,968
    assert gpus.resident_bytes == 4 * 19_968 * 184_320 * 8
    # five times 1,280 + 19,968 are more than the 103,692 blocks
    assert result(shown_requests=5).gpu_memory.hot_bytes == 5 * 1_280 * 184_320 * 8


def test_gpu_memory_is_that_of_the_gpu_table() -> None:
    for name in ("H200", "B200", "B300"):
        assert result(gpu=name).gpu_memory.total_bytes == 8 * gpu(name).memory_bytes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu": "A100"}, "gpu is 'A100': the published calculator knows H200, B200, B300"),
        ({"data_parallel_size": 3}, "data_parallel_size is 3: the published calculator knows 1, 2, 4, 8, 16"),
        ({"tensor_parallel_size": True}, "tensor_parallel_size is True: .* knows 1, 2, 4, 8"),
        ({"kv": "int8"}, "kv is 'int8': the published calculator knows fp8, bf16"),
        ({"sequence_tokens": 8_191}, "sequence_tokens is 8191: .* whole numbers from 8,192 to 1,048,576"),
        ({"hot_rows": 40_000}, "hot_rows is 40000: .* from 2,048 to 32,768"),
        ({"retained_pages": -1}, "retained_pages is -1: the published calculator takes whole numbers from 0$"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0: .* from 1$"),
        ({"host_pool_gib": 8}, "host_pool_gib is 8: .* from 16 to 4,096"),
        ({"offload_gib": None}, "offload_gib is None: .* from 0 to 2,048"),
        ({"ram_gib": 64.5}, r"ram_gib is 64\.5: .* from 128 to 8,192"),
        ({"kv_gib": float("nan")}, r"kv_gib is nan: the published calculator takes 0 to 131\.32 on H200"),
        ({"kv_gib": 200}, r"kv_gib is 200: .* 0 to 131\.32"),
    ],
)
def test_what_the_page_cannot_take_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PublishedInput(**changes)


@given(
    inputs=st.builds(
        PublishedInput,
        sequence_tokens=st.integers(8_192, 1_048_576),
        hot_rows=st.integers(2_048, 8_192),
        kv_gib=st.floats(0, 131),
        host_pool_gib=st.none() | st.integers(16, 4_096),
        ram_gib=st.integers(128, 8_192),
        tensor_parallel_size=st.sampled_from([1, 2, 4, 8]),
        share_host=st.booleans(),
    )
)
def test_hisparse_is_never_below_ordinary_and_host_memory_never_over_the_budget(inputs: PublishedInput) -> None:
    shown = calculate_as_published(inputs)
    assert shown.ordinary <= shown.hisparse <= shown.hisparse_unlimited_host
    assert shown.physical_host_gib <= inputs.ram_gib
    gpus = shown.gpu_memory
    # where more requests fit without HiSparse, the page draws bars of a HiSparse pool that does not hold them
    if shown.hisparse > shown.ordinary:
        assert gpus.hot_bytes + gpus.indexer_bytes + gpus.resident_bytes + gpus.unused_bytes <= gpus.total_bytes
