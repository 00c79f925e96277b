"""The GPU table, names as nodes carry them, and the resolver's shared memory."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.capacity.gpus import Gpu, check_resolver_shared_memory, gpu, known_gpus, resolver_shared_memory_bytes

GIB = 1 << 30
TOPK = 2_048


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("H200", "H200"),
        ("h200", "H200"),
        ("NVIDIA-H200", "H200"),
        ("NVIDIA H200 NVL", "H200"),
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("NVIDIA-B200", "B200"),
        ("NVIDIA-B300-SXM6-AC", "B300"),
        ("RTX PRO 6000", "RTX-PRO-6000"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "RTX-PRO-6000"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("mi355x", "MI355X"),
    ],
)
def test_names_of_people_and_of_node_labels(label: str, name: str) -> None:
    assert gpu(label).name == name


@pytest.mark.parametrize("label", ["A100", "", "NVIDIA-GB200", "NVIDIA-H100-NVL", "NVIDIA-H20", "RTX-6000-Ada"])
def test_another_gpu_is_not_taken_for_its_neighbour(label: str) -> None:
    with pytest.raises(ValueError, match=r"not known: use one of H100, H200, B200, B300, RTX-PRO-6000, MI300X, MI355X"):
        gpu(label)


@pytest.mark.parametrize("label", ["NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "NVIDIA-H200-SHARED"])
def test_a_slice_of_a_gpu_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match=r"is a slice of one \(MIG or time-slicing\): HiSparse needs whole GPUs"):
        gpu(label)


def test_memory_of_the_data_sheet_and_what_vllm_sees() -> None:
    h200 = gpu("H200")
    assert h200.memory_bytes == 141 * 10**9
    assert h200.visible_memory_bytes / GIB == pytest.approx(139.8)
    assert h200.capability == (9, 0)
    # binary or decimal gigabytes, less what the driver keeps
    assert all(0.99 <= entry.visible_memory_bytes / entry.memory_bytes <= 1.074 for entry in known_gpus())


def test_amd_is_known_and_not_supported() -> None:
    unsupported = [entry for entry in known_gpus() if not entry.supported]
    assert [entry.name for entry in unsupported] == ["MI300X", "MI355X"]
    assert all("NVIDIA CUDA" in entry.note for entry in unsupported)


# Worked out from the layout in vLLM's check; the default buffer is (tokens + 2) x top-K.
@pytest.mark.parametrize(("tokens", "expected"), [(0, 26_148), (1, 47_396), (2, 68_644), (3, 89_892), (4, 111_140), (5, 132_388)])
def test_shared_memory_grows_with_speculation(tokens: int, expected: int) -> None:
    assert _needed(tokens) == expected


def test_a_started_chunk_counts_in_full() -> None:
    at_64, at_65 = (
        resolver_shared_memory_bytes(num_speculative_tokens=0, topk_rows=64, device_buffer_rows=rows) for rows in (64, 65)
    )
    assert (at_64, at_65) == (4 * (2 * 65 + 3 * 2 + 7) + 128, 4 * (2 * 65 + 3 * 3 + 7) + 130)


@pytest.mark.parametrize(("name", "most_tokens"), [("H200", 9), ("B200", 9), ("RTX-PRO-6000", 3), ("MI300X", 1)])
def test_how_many_speculative_tokens_a_gpu_carries(name: str, most_tokens: int) -> None:
    _check(gpu(name), most_tokens)
    with pytest.raises(ValueError, match=f"num_speculative_tokens to {most_tokens} with device_buffer_size"):
        _check(gpu(name), most_tokens + 1)


def test_the_error_has_the_numbers_and_both_ways_out() -> None:
    with pytest.raises(ValueError, match="the residency resolver needs") as caught:
        check_resolver_shared_memory(gpu("RTX-PRO-6000"), num_speculative_tokens=3, topk_rows=TOPK, device_buffer_rows=16_384)
    assert str(caught.value) == (
        "the residency resolver needs 104,484 B of shared memory per block for device_buffer_size 16,384 and 3 speculative tokens"
        " (top-K of 2,048 rows); RTX-PRO-6000 allows 101,376 B (99.0 KiB): lower device_buffer_size to at most 15,040 or"
        " num_speculative_tokens to 2 with device_buffer_size 8,192"
    )
    # both are ways out, and the buffer cannot be a page larger
    check_resolver_shared_memory(gpu("RTX-PRO-6000"), num_speculative_tokens=3, topk_rows=TOPK, device_buffer_rows=15_040)
    check_resolver_shared_memory(gpu("RTX-PRO-6000"), num_speculative_tokens=2, topk_rows=TOPK, device_buffer_rows=8_192)
    assert resolver_shared_memory_bytes(num_speculative_tokens=3, topk_rows=TOPK, device_buffer_rows=15_104) > 101_376


def test_a_buffer_below_the_queries_rows_is_not_offered() -> None:
    # five queries pick up to 10,240 rows, and with these the hash alone is too large
    with pytest.raises(ValueError, match=r": lower num_speculative_tokens to 3 with device_buffer_size 10,240$"):
        _check(gpu("RTX-PRO-6000"), 4)


def test_a_top_k_that_no_setting_carries_says_so() -> None:
    with pytest.raises(ValueError, match=r"no setting fits a top-K of 16,384 rows, use another GPU$"):
        check_resolver_shared_memory(gpu("RTX-PRO-6000"), num_speculative_tokens=0, topk_rows=16_384, device_buffer_rows=16_384)


@given(tokens=st.integers(0, 16), topk=st.integers(1, 4_096), rows=st.integers(1, 32_768), entry=st.sampled_from(known_gpus()))
def test_the_check_agrees_with_the_formula(tokens: int, topk: int, rows: int, entry: Gpu) -> None:
    needed = resolver_shared_memory_bytes(num_speculative_tokens=tokens, topk_rows=topk, device_buffer_rows=rows)
    check = partial(check_resolver_shared_memory, entry, num_speculative_tokens=tokens, topk_rows=topk, device_buffer_rows=rows)
    if needed <= entry.shared_memory_per_block_optin_bytes:
        check()
    else:
        with pytest.raises(ValueError, match=f"needs {needed:,} B"):
            check()


def _needed(tokens: int) -> int:
    return resolver_shared_memory_bytes(num_speculative_tokens=tokens, topk_rows=TOPK, device_buffer_rows=(tokens + 2) * TOPK)


def _check(entry: Gpu, tokens: int) -> None:
    check_resolver_shared_memory(entry, num_speculative_tokens=tokens, topk_rows=TOPK, device_buffer_rows=(tokens + 2) * TOPK)
