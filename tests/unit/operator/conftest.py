"""Fixtures of the operator's unit tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run in asyncio: the operator, kopf and kubernetes.aio know no other loop."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """kubernetes.aio reads proxies from the environment; the servers of these tests are on this machine."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
