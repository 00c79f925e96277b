"""How tests are spread over the workers of pytest-xdist, and what all of them have to agree on."""

import os
import secrets

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]  # it has no types
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # as above

SEED_VARIABLE = "HISPARSE_CONTRACT_SEED"
# Before the workers start: they take it with the environment.
os.environ.setdefault(SEED_VARIABLE, str(secrets.randbelow(10**6)))
_CLUSTER_TESTS = "tests/cluster"


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # as above
    """Each file stays whole, so what it starts is started once. One worker has the cluster, which mostly waits."""

    def _split_scope(self, nodeid: str) -> str:
        return _CLUSTER_TESTS if nodeid.startswith(_CLUSTER_TESTS) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(
        f"contract tests: the sample of vLLM's answers is that of {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"
    )
