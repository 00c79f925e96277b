"""Tests marked `contract` ask released vLLM itself: they need the environments that `make test` prepares, on Linux on x86-64."""

import os

import pytest

from tools.upstream import reason_unsupported


@pytest.fixture(scope="session")
def sample_seed() -> int:
    """Another one in each session; HISPARSE_CONTRACT_SEED repeats one."""
    return int(os.environ["HISPARSE_CONTRACT_SEED"])  # tests/conftest.py has set it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skipped only where vLLM cannot run. Elsewhere a missing environment is a failure."""
    if reason := reason_unsupported():
        for item in items:
            if item.get_closest_marker("contract"):
                item.add_marker(pytest.mark.skip(reason=reason))
