"""The children of examples/embedded.yaml, whole, as they are applied.

A difference is either a mistake or a change that restarts engines: read it, then refresh the file with
    HISPARSE_REFRESH_GOLDEN=1 pytest tests/unit/operator/resources/test_golden.py
"""

import os
from pathlib import Path

import pytest
import yaml

from hisparse_operator import settled_plan
from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.resources import render
from tests.unit.operator.objects import PLAN

EXAMPLE = Path(__file__).parents[4] / "examples" / "embedded.yaml"
GOLDEN = Path(__file__).parent / "golden" / "embedded.yaml"


def test_children_of_the_example_are_those_of_the_golden_file() -> None:
    body = yaml.safe_load(EXAMPLE.read_text())
    body["metadata"] |= {"namespace": "shop", "uid": "0b4cf2f2-5d8e-4c43-9d0e-6f1c1a2b3c4d", "generation": 1}
    owner = HiSparseDeployment.parse(body)
    rendered = render(
        owner, plan=PLAN, settled=settled_plan.write(PLAN, owner=owner), engine_image="registry.example/hisparse-embedded:1"
    )
    text = yaml.safe_dump_all([child.body for child in rendered.children], sort_keys=False, width=120)
    if os.environ.get("HISPARSE_REFRESH_GOLDEN"):
        GOLDEN.write_text(text)
        pytest.skip(f"wrote {GOLDEN.name}: read the difference before you commit it")
    assert text == GOLDEN.read_text()
