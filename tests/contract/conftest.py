"""Tests marked `contract` ask released vLLM itself: they need the environments that `make test` prepares, on Linux on x86-64."""

import os
import secrets

import pytest

from tools.upstream import reason_unsupported

SEED_VARIABLE = "HISPARSE_CONTRACT_SEED"
_SEED = int(os.environ.get(SEED_VARIABLE) or secrets.randbelow(10**6))


@pytest.fixture(scope="session")
def sample_seed() -> int:
    """Another one in each session; HISPARSE_CONTRACT_SEED repeats one."""
    return _SEED


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skipped only where vLLM cannot run. Elsewhere a missing environment is a failure."""
    if reason := reason_unsupported():
        for item in items:
            if item.get_closest_marker("contract"):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not reason_unsupported():
        terminalreporter.write_line(f"contract tests: the sample of vLLM's answers is that of {SEED_VARIABLE}={_SEED}")
