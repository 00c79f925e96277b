"""Quantities as Kubernetes reads them: our parser against the one of the Kubernetes client."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity
from pydantic import TypeAdapter, ValidationError

from hisparse_operator.api import quantity_bytes
from hisparse_operator.api.quantity import Quantity

_SUFFIXES = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", "E", "e3", "E2", "e12"]


@pytest.mark.parametrize(
    ("quantity", "size_bytes"),
    [
        (1073741824, 1 << 30),
        ("8Mi", 8 << 20),
        ("1.5Gi", 3 << 29),
        ("100M", 100_000_000),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
        (".5k", 500),
    ],
)
def test_a_quantity_stands_for_its_bytes(quantity: int | str, size_bytes: int) -> None:
    assert quantity_bytes(quantity) == size_bytes


def test_fractions_round_up() -> None:
    assert quantity_bytes("500m") == 1
    assert quantity_bytes("1001m") == 2


@pytest.mark.parametrize("text", ["", "Gi", "8 Gi", "8gi", "-1Gi", "+1", "1e", "1e999999999", "0x10", "8Gib", "1" * 33])
def test_what_is_not_a_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a quantity: .* such as 512Mi"):
        quantity_bytes(text)


@pytest.mark.parametrize("value", [0, -1, "0", "0Gi", "0.0"])
def test_a_size_of_zero_or_less_is_refused(value: int | str) -> None:
    with pytest.raises(ValidationError, match="must be above zero"):
        TypeAdapter(Quantity).validate_python(value)


@given(number=st.decimals(min_value=0, max_value=10**6, places=3) | st.integers(0, 10**9), suffix=st.sampled_from(_SUFFIXES))
def test_quantities_agree_with_the_kubernetes_client(number: object, suffix: str) -> None:
    text = f"{number}{suffix}"
    client = parse_quantity(text)
    # The client multiplies with 28 digits of precision: compare where that is exact.
    if client < 10**24:
        assert quantity_bytes(text) == math.ceil(client)
