"""`hisparse plan --compare`: a plan for each entry."""

from pathlib import Path

import pytest

from tests.unit.cli.plan_runs import GLM, GLM_DEPLOYMENT, plan, plan_json

_WITHOUT_GPU = ("--model", "GLM-5.3", "--kv-cache-dtype", "fp8", "--gpu-kv-gib", "17.8")


def test_each_context_is_planned_as_if_it_were_asked_for_alone() -> None:
    answers = plan_json(*GLM, "--compare", "64K,142000,1M")
    assert answers == [plan_json(*GLM, "--max-model-len", tokens) for tokens in ("65536", "142000", "1048576")]


def test_each_gpu_is_planned_as_if_it_were_asked_for_alone() -> None:
    answers = plan_json(*_WITHOUT_GPU, "--compare", "H200,B200")
    assert answers == [plan_json(*_WITHOUT_GPU, "--gpu", gpu) for gpu in ("H200", "B200")]


def test_a_file_can_be_compared_too(tmp_path: Path) -> None:
    path = tmp_path / "glm.yaml"
    path.write_text(GLM_DEPLOYMENT)
    contexts = plan_json("-f", path, "--compare", "64K,142000")
    assert contexts[1] == plan_json("-f", path)
    assert contexts[0]["asked"]["max_model_len"] == 65_536
    gpus = plan_json("-f", path, "--compare", "H200,B200")
    assert gpus[0] == plan_json("-f", path)
    assert gpus[1]["geometry"]["row_bytes"] == 576


def test_a_longer_context_runs_fewer_requests_at_once() -> None:
    steady = [answer["concurrency"]["steady"] for answer in plan_json(*GLM, "--compare", "8K,64K,256K,1M")]
    assert steady == sorted(steady, reverse=True)


def test_the_table_has_a_row_for_each_and_tells_what_was_refused() -> None:
    run = plan(*_WITHOUT_GPU, "--compare", "H200,MI300X,B200", "--max-model-len", "1M")
    assert (run.exit_code, run.stderr) == (0, "")
    rows = {line.split()[0]: line.split() for line in run.stdout.splitlines() if line.startswith(("H200", "MI300X", "B200"))}
    assert rows["MI300X"][-1] == "refused"
    assert rows["H200"][1:3] == ["17.80", "656"]
    assert rows["B200"][1:3] == ["17.80", "576"]
    assert "refused: --gpu MI300X: released vLLM refuses HiSparse on it" in run.stdout


def test_explain_gives_the_arithmetic_of_each() -> None:
    lines = plan(*GLM, "--compare", "64K,1M", "--explain").stdout.splitlines()
    assert sum(line.startswith("- device pool: 17.80 GiB") for line in lines) == 2


@pytest.mark.parametrize("output", ["table", "json"])
def test_only_refusals_end_with_2(output: str) -> None:
    assert plan(*GLM, "--compare", "2M,4M", "-o", output).exit_code == 2
    assert plan(*GLM, "--compare", "2M,1M", "-o", output).exit_code == 0
