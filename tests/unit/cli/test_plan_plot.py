"""`hisparse plan --plot`."""

import subprocess
import sys
from pathlib import Path

import pytest

from hisparse_runtime.capacity import FLAG_NAMES, plan_engine
from hisparse_runtime.cli.plan.flags import PlanFlags, case_from_flags
from hisparse_runtime.cli.plan.model import ModelFiles
from hisparse_runtime.cli.plan.plot import curves
from tests.unit.cli.plan_runs import GLM, plan, plan_json

_SIGNATURES = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
_FLAGS = PlanFlags(
    files=ModelFiles(name="GLM-5.3"),
    gpu="H200",
    gpus_per_node=None,
    gpu_kv_bytes=int(17.8 * (1 << 30)),
    gpu_memory_utilization=0.92,
    kv_cache_dtype="fp8",
    tensor_parallel_size=8,
    data_parallel_size=1,
    expert_parallel=True,
    max_model_len=None,
    max_num_batched_tokens=8192,
    max_num_seqs=256,
    num_speculative_tokens=0,
    device_buffer_size=None,
    async_scheduling=True,
    host_pool_bytes=None,
    cpu_bytes_to_use=None,
    node_memory_bytes=None,
    vllm_version="0.33",
)


def test_curves_are_the_concurrency_of_plans_at_each_length() -> None:
    made = plan_engine(case_from_flags(_FLAGS).request, names=FLAG_NAMES)
    lines = curves(made, is_host_bounded=False)
    assert (lines.tokens[0], lines.tokens[-1], lines.host) == (8192, 1_048_576, None)
    for tokens in (65_536, 131_072, 1_048_576):
        at = lines.tokens.index(tokens)
        now = plan_json(*GLM, "--max-model-len", str(tokens))["concurrency"]
        assert lines.ordinary[at] == pytest.approx(now["ordinary"])
        assert lines.hisparse[at] == pytest.approx(now["steady"])


def test_with_a_given_host_pool_its_limit_is_a_curve_and_hisparse_stays_below() -> None:
    made = plan_engine(case_from_flags(_FLAGS).request, names=FLAG_NAMES)
    lines = curves(made, is_host_bounded=True)
    assert lines.host is not None
    assert all(hisparse <= host for hisparse, host in zip(lines.hisparse, lines.host, strict=True))


@pytest.mark.parametrize("suffix", _SIGNATURES)
def test_a_figure_is_written_in_the_format_of_its_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"figure{suffix}"
    run = plan(*GLM, "--host-pool-gib", "384", "--plot", path)
    assert run.exit_code == 0
    assert path.read_bytes().startswith(_SIGNATURES[suffix])
    assert run.stdout.startswith("zai-org/GLM-5.3 on 8 x H200")


def test_the_same_plan_gives_the_same_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.svg" for number in range(2)]
    for path in paths:
        plan(*GLM, "--plot", path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_compared_gpus_share_a_figure(tmp_path: Path) -> None:
    path = tmp_path / "gpus.svg"
    assert plan(*GLM[:2], "--gpu-kv-gib", "40", "--compare", "H200,MI300X,B200", "--plot", path).exit_code == 0
    text = path.read_text()
    assert "H200, HiSparse" in text
    assert "B200, without" in text
    assert "MI300X" not in text


def test_what_is_refused_is_not_drawn(tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    run = plan(*GLM, "--max-model-len", "2M", "--plot", path)
    assert run.exit_code == 2
    assert "is not written: there is no plan to draw" in run.stderr
    assert not path.exists()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    run = plan(*GLM, "--plot", tmp_path / "none" / "figure.png")
    assert run.exit_code == 2
    assert "cannot write" in run.message


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "hisparse_runtime.cli.plan.plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = plan(*GLM, "--plot", tmp_path / "figure.png")
    assert run.exit_code == 2
    assert "matplotlib is not installed: pip install 'hisparse-operator[plot]'" in run.message


def test_matplotlib_is_loaded_for_a_figure_only() -> None:
    code = (
        "import sys; from hisparse_runtime.cli import app\n"
        f"try: app(['plan', *{GLM!r}])\n"
        "except SystemExit: print(sorted({'matplotlib', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
