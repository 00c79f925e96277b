"""The children of the examples, whole, as they are applied.

A difference is either a mistake or a change that restarts engines: read it, then refresh the file with
    HISPARSE_REFRESH_GOLDEN=1 pytest tests/unit/operator/resources/test_golden.py
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hisparse_operator import settled_plan
from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import Plan, plan
from hisparse_operator.resources import render
from tests.unit.operator.objects import GIB, IMAGES, PLAN, node

EXAMPLES = Path(__file__).parents[4] / "examples"
GOLDEN = Path(__file__).parent / "golden"
PLANS: dict[str, Callable[[HiSparseDeployment], Plan]] = {
    "embedded": lambda _: PLAN,
    "vllm": lambda owner: plan(owner.spec, deployment=owner.key, nodes=[node(memory_bytes=2048 * GIB)], pods=[]),
}


@pytest.mark.parametrize("name", PLANS)
def test_children_of_the_example_are_those_of_the_golden_file(name: str) -> None:
    body = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    body["metadata"] |= {"namespace": "shop", "uid": "0b4cf2f2-5d8e-4c43-9d0e-6f1c1a2b3c4d", "generation": 1}
    owner = HiSparseDeployment.parse(body)
    made = PLANS[name](owner)
    rendered = render(owner, plan=made, settled=settled_plan.write(made, owner=owner), images=IMAGES)
    text = yaml.safe_dump_all([child.body for child in rendered.children], sort_keys=False, width=120)
    if os.environ.get("HISPARSE_REFRESH_GOLDEN"):
        (GOLDEN / f"{name}.yaml").write_text(text)
        pytest.skip(f"wrote {name}.yaml: read the difference before you commit it")
    assert text == (GOLDEN / f"{name}.yaml").read_text()
