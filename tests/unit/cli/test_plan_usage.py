"""Wrong usage of `hisparse plan`: one clear line, exit code 2, never a traceback."""

from pathlib import Path

import pytest

from tests.unit.cli.plan_runs import GLM, plan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a model (--model or --model-config) or a file (-f)"),
        ((*GLM, "--max-model-len", "64Gi"), "--max-model-len: '64Gi' is not a number of tokens"),
        ((*GLM, "--gpu-kv-gib", "16Gi"), "--gpu-kv-gib: '16Gi' has a unit"),
        ((*GLM, "--cpu-bytes-to-use", "128GiB"), "--cpu-bytes-to-use: '128GiB' is not a size"),
        ((*GLM, "--node-memory", "lots"), "--node-memory: 'lots' is not a size"),
        ((*GLM, "--compare", "64K,H200"), "--compare: '64K,H200': give context lengths or kinds of GPU, not both"),
        ((*GLM, "--compare", "B200"), "leave out --gpu: --compare has a list of them"),
        ((*GLM, "--compare", "64K", "--max-model-len", "1M"), "leave out --max-model-len: --compare has a list of them"),
        ((*GLM, "--plot", "figure.jpg"), "figure.jpg: the name has to end in .png, .svg, .pdf"),
        ((*GLM, "-o", "xml"), "'xml' is not one of 'table', 'json', 'yaml'"),
        ((*GLM, "--tensor-parallel-size", "0"), "0 is not in the range x>=1"),
        ((*GLM, "--gpu-memory-utilization", "1.5"), "1.5 is not in the range 0.01<=x<=1"),
        (("--model-config", "/nowhere/config.json"), "cannot read /nowhere/config.json: No such file"),
    ],
)
def test_wrong_usage_is_told_in_a_line(arguments: tuple[str, ...], message: str) -> None:
    run = plan(*arguments)
    assert (run.exit_code, run.stdout) == (2, "")
    assert message in run.message


def test_at_08_a_quantity_never_becomes_a_number_of_gib() -> None:
    run = plan(*GLM, "--host-pool-gib", "4Gi")
    assert run.exit_code == 2
    assert (
        "--host-pool-gib: '4Gi' has a unit: write a plain number of GiB, as vLLM's host_pool_gib is one; 4Gi is 4" in run.message
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "is not JSON"), (b"[1]", "must hold a JSON object, and holds a list"), (b"\xff\xfe", "cannot read")],
)
def test_a_file_that_is_no_config_json_is_told(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    run = plan("--model-config", path)
    assert run.exit_code == 2
    assert message in run.message


def test_help_names_every_option_in_its_place() -> None:
    run = plan("--help")
    assert run.exit_code == 0
    places = [run.stdout.index(heading) for heading in ("What to plan", "vLLM's own options", "Memory ", "Output ")]
    assert places == sorted(places)
    for option in ("--filename", "--model-config", "--gpus-per-node", "--no-async-scheduling", "--node-memory", "--as-published"):
        assert option in run.stdout
