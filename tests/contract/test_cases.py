"""The generated configurations: enough of each kind, and those that the data answers."""

import pytest

from tests.contract.cases import cases, flash_cases
from tests.contract.data import load_answers
from tools.upstream import VERSIONS

NUM_WANTED = {"0.30": 200, "0.31": 200, "0.32": 500, "0.33": 500}


@pytest.mark.parametrize("version", VERSIONS)
def test_data_answers_exactly_the_generated_cases(version: str) -> None:
    """A stale file fails here: next step is `python -m tests.contract.make_planner_data`."""
    assert [row.case for row in load_answers(version)] == cases(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_case_has_one_answer_and_enough_are_plans_and_refusals(version: str) -> None:
    rows = load_answers(version)
    assert len({row.case["id"] for row in rows}) == len(rows) >= NUM_WANTED[version]
    num_refused = 0
    for row in rows:
        assert row.answer["id"] == row.case["id"]
        assert row.answer["vllm"].startswith(f"{version}.")
        assert ("plan" in row.answer) != ("refused" in row.answer)
        num_refused += "refused" in row.answer
    assert 0.15 <= num_refused / len(rows) <= 0.6


def test_older_versions_are_asked_a_part_of_what_newer_ones_are() -> None:
    names = {case["id"] for case in cases("0.33")}
    assert {case["id"] for case in cases("0.31")} < names
    assert cases("0.30") == cases("0.31")
    assert names.isdisjoint(case["id"] for case in flash_cases())


def test_plans_cover_what_changes_them() -> None:
    """Row sizes, pools, groups of one and of many layers, speculation, fitted contexts, plans without HiSparse."""
    rows = [row for row in load_answers("0.33") if "plan" in row.answer]
    plans = [row.answer["plan"] for row in rows if row.case["hisparse"]]
    assert {plan["row_bytes"] for plan in plans} == {352, 576, 656, 1152}
    assert {plan["shared_host_pool"] for plan in plans} == {False, True}
    assert min(plan["resident_groups"] for plan in plans) == 1
    assert max(plan["resident_groups"] for plan in plans) > 25
    assert {row.case["num_speculative_tokens"] for row in rows} == set(range(6))
    assert sum(row.case["max_model_len"] == -1 for row in rows) >= 20
    assert len(rows) - len(plans) >= 20
