"""Errors name fields of the spec: each of them exists under that path."""

from dataclasses import asdict

import pytest

from hisparse_operator.api import custom_resource_definition
from hisparse_runtime.capacity import SPEC_NAMES

SPEC = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


@pytest.mark.parametrize("path", asdict(SPEC_NAMES).values())
def test_a_name_that_errors_use_is_a_field_of_the_spec(path: str) -> None:
    holder = SPEC
    for part in path.split("."):
        assert part in holder["properties"], path
        holder = holder["properties"][part]
