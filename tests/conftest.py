"""How tests are spread over the workers of pytest-xdist, and what all of them have to agree on."""

import os
import secrets

import pytest

SEED_VARIABLE = "HISPARSE_CONTRACT_SEED"
# Before the workers start: they take it with the environment.
os.environ.setdefault(SEED_VARIABLE, str(secrets.randbelow(10**6)))


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker has the cluster, which mostly waits. Of the others each file stays whole: what it starts is started once."""
    for item in items:
        group = "cluster" if item.get_closest_marker("cluster") else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(
        f"contract tests: the sample of vLLM's answers is that of {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"
    )
