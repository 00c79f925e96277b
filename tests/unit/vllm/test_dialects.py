"""The dialect of a vLLM, by its version or by its own configuration class."""

import pytest

from hisparse_runtime.geometry import UnknownVersionError
from hisparse_runtime.vllm.dialects import Dialect, dialect_of_fields, dialect_of_version


@pytest.mark.parametrize("text", ["0.30", "v0.33.1", "0.32.0"])
def test_releases_take_a_connector(text: str) -> None:
    assert dialect_of_version(text) is Dialect.CONNECTOR


@pytest.mark.parametrize("text", ["hisparse-glm", "hisparse-e8ef1e07bd", "0.24.1.dev7+hisparse"])
def test_builds_of_the_branch_have_its_name(text: str) -> None:
    assert dialect_of_version(text) is Dialect.BRANCH


@pytest.mark.parametrize("text", ["0.29", "0.34.0", "main"])
def test_other_versions_are_not_guessed(text: str) -> None:
    with pytest.raises(UnknownVersionError, match=r"0\.30"):
        dialect_of_version(text)


def test_an_installed_vllm_is_told_by_the_fields_of_its_config() -> None:
    assert dialect_of_fields(["device_buffer_size", "eager_host_mirror"]) is Dialect.CONNECTOR
    assert dialect_of_fields({"device_buffer_size", "host_pool_gib"}) is Dialect.BRANCH
