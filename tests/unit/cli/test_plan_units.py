"""Numbers as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.cli.plan.units import AUTO, compared, context, gib, quantity_bytes, tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("142000", 142_000),
        ("64K", 65_536),
        ("64k", 64_000),
        ("1M", 1_048_576),
        ("1m", 1_000_000),
        ("25.6k", 25_600),
        ("0.5K", 512),
        (" 8192 ", 8_192),
    ],
)
def test_tokens_are_read_as_vllm_reads_them(text: str, expected: int) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-5", "64Ki", "1G", "one", "1.5", "0.0001k", "1e6", "9" * 20, "0x10", "\uff11\uff12"])
def test_what_is_no_number_of_tokens_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="token"):
        tokens(text)


@given(st.integers(min_value=1, max_value=10**11))
def test_a_plain_number_of_tokens_is_itself(number: int) -> None:
    assert tokens(str(number)) == number


@pytest.mark.parametrize("text", ["auto", "AUTO", "-1"])
def test_a_context_can_be_fitted(text: str) -> None:
    assert context(text) == AUTO


@pytest.mark.parametrize(("text", "expected"), [("384", 384.0), ("0.5", 0.5), ("17.8", 17.8)])
def test_gib_are_plain_numbers(text: str, expected: float) -> None:
    assert gib(text) == expected


@pytest.mark.parametrize(
    ("text", "stands_for"), [("4Gi", "4Gi is 4"), ("2Ti", "2Ti is 2048"), ("512Mi", "512Mi is 0.5"), ("10G", "10G is 9.31323")]
)
def test_gib_with_a_unit_are_refused_with_the_number_that_was_meant(text: str, stands_for: str) -> None:
    with pytest.raises(ValueError, match=f"has a unit: write a plain number of GiB, .* {stands_for}"):
        gib(text)


@pytest.mark.parametrize("text", ["", "much", "4GiB", "nan", "inf", "0", "-1", "1e300"])
def test_what_is_no_number_of_gib_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="GiB"):
        gib(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("137438953472", 128 << 30),
        ("128Gi", 128 << 30),
        ("2Ti", 2 << 40),
        ("1.5Ki", 1_536),
        ("1k", 1_000),
        ("0", 0),
        ("0.0001Ki", 1),
        ("0.000000001Pi", 1_125_900),
    ],
)
def test_sizes_are_bytes_or_quantities(text: str, expected: int) -> None:
    assert quantity_bytes(text) == expected


@given(st.integers(min_value=0, max_value=10**6), st.sampled_from([("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)]))
def test_quantities_are_exact(number: int, unit: tuple[str, int]) -> None:
    suffix, exponent = unit
    assert quantity_bytes(f"{number}{suffix}") == number << exponent


@pytest.mark.parametrize("text", ["", "Gi", "4GiB", "4 Gi", "4gi", "1e9", "-1", "²", "1" * 21])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write bytes, or a quantity such as 128Gi"):
        quantity_bytes(text)


def test_a_size_beyond_any_machine_is_refused() -> None:
    assert quantity_bytes("1024Pi") == 1 << 60
    with pytest.raises(ValueError, match="is larger than 1,152,921,504,606,846,976 bytes"):
        quantity_bytes("1025Pi")


def test_compared_are_contexts_or_gpus() -> None:
    assert compared("65536, 64k,1M") == (65_536, 64_000, 1_048_576)
    assert compared("H200,rtx-pro-6000") == ("H200", "rtx-pro-6000")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty entry"),
        ("H200,", "empty entry"),
        ("64K,H200", "not both"),
        ("H200,H200", "twice"),
        ("64K,65536", "twice"),
        ("64K,12x", "not a number of tokens"),
        ("0", "whole number of one or more"),
    ],
)
def test_other_lists_cannot_be_compared(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        compared(text)
