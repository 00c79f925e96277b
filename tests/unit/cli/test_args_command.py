"""`hisparse args explain` answers about a command line in a second, for people and for programs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hisparse_runtime.cli import app
from hisparse_runtime.geometry import complete_config

ON = '{"kv_connector":"HiSparseConnector","kv_role":"kv_both","kv_connector_extra_config":{"host_pool_gib":384}}'
OLD = '{"hisparse_config":{"host_pool_gib":384}}'
OFFLOADING = (
    '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":'
    '{"spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":137438953472}}'
)
# The launch command of the announcement, with a bare OffloadingConnector.
PUBLISHED = (
    *("vllm", "serve", "zai-org/GLM-5.3", "--served-model-name", "glm-agentx", "--trust-remote-code", "--host", "0.0.0.0"),
    *("--port", "8000", "--tensor-parallel-size", "8", "--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.92"),
    *("--max-model-len", "142000", "--max-num-batched-tokens", "32768", "--max-num-seqs", "256", "--enable-prefix-caching"),
    *("--attention-config", OLD, "--kv-transfer-config", OFFLOADING),
    *("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}', "--enable-auto-tool-choice"),
    *("--tool-call-parser", "glm47", "--reasoning-parser", "glm45"),
)
VLLM = ("vllm", "serve", "zai-org/GLM-5.3", "-tp", "8", "--max-model-len", "142000")
GOLDEN = Path(__file__).parent / "golden" / "args-published.txt"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(
        app, ["args", "explain", *arguments], env={"NO_COLOR": "1", "TERMINAL_WIDTH": "200", "COLUMNS": "200"}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def explained(*arguments: str, options: tuple[str, ...] = (), exit_code: int = 0) -> Any:
    result = run(*options, "-o", "json", "--", *arguments)
    assert result.exit_code == exit_code
    return json.loads(result.stdout)


def test_the_announcements_command_is_explained() -> None:
    """The answer as people see it; the file is the expected text."""
    result = run("--gpu", "H200", "--gpu-kv-gib", "17.8", "--", *PUBLISHED)
    assert result.exit_code == 2
    assert result.stdout == GOLDEN.read_text()


@pytest.mark.parametrize("version", ["0.30", "0.31", "v0.32.1", "0.33"])
def test_what_is_given_as_working_is_taken(version: str) -> None:
    refused = explained(*PUBLISHED, options=("--vllm-version", version), exit_code=2)
    assert [rejection["code"] for rejection in refused["rejections"]] == ["OldDialect"]
    assert explained(*refused["working"], options=("--vllm-version", version))["accepted"]


def test_the_answer_for_programs_has_every_field() -> None:
    answer = explained(*VLLM, "--attention-config", OLD, exit_code=2)
    assert set(answer) == {
        *("vllm_version", "accepted", "command", "summary", "rejections", "cautions", "working", "changes"),
        "sizes_unjudged_without",
    }
    (rejection,) = answer["rejections"]
    assert (answer["vllm_version"], answer["accepted"]) == ("0.33", False)
    assert (rejection["code"], rejection["stage"], rejection["option"]) == ("OldDialect", "argparse", "--attention-config")
    assert rejection["when"] == "at once, when the command line is read"
    assert rejection["vllm_says"] == "Unexpected keyword argument"
    assert answer["command"] == [*VLLM, "--attention-config", OLD]
    assert answer["working"] == [*VLLM, "--kv-transfer-config", ON]
    assert answer["sizes_unjudged_without"] == ["the kind of GPU (--gpu)"]


def test_a_right_command_ends_with_zero() -> None:
    result = run("--gpu", "H200", "--", *VLLM, "--kv-transfer-config", ON)
    assert result.exit_code == 0
    assert result.stdout.startswith("vLLM 0.33 takes this command.\n")
    assert "This works" not in result.stdout


def test_without_a_gpu_the_answer_says_what_it_does_not_know() -> None:
    result = run("--", *VLLM, "--kv-transfer-config", ON)
    assert result.stdout.startswith("vLLM 0.33 takes this command, as far as can be told.\n")
    assert "not judged: the kind of GPU (--gpu) not given" in result.stdout


def test_what_cannot_be_put_right_says_so() -> None:
    result = run("--", *VLLM, "--kv-transfer-config", "{}", "--max-num-seqs", "many")
    assert result.exit_code == 2
    assert "What was meant cannot be told: no command that works is given." in result.stdout


def test_the_branch_is_a_version() -> None:
    answer = explained(*PUBLISHED, options=("--vllm-version", "hisparse-glm"))
    assert (answer["vllm_version"], answer["accepted"]) == ("hisparse-glm", True)
    assert [caution["code"] for caution in answer["cautions"]] == ["BranchNotChecked"]


def test_a_models_own_config_decides(tmp_path: Path) -> None:
    config = complete_config("glm-5.3", {})[0] | {"max_position_embeddings": 100_000}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for options, model in ((("--model-config", str(tmp_path)), "my/model"), ((), str(tmp_path))):
        line = ("vllm", "serve", model, "--max-model-len", "142000", "--kv-transfer-config", ON)
        answer = explained(*line, options=options, exit_code=2)
        assert [rejection["code"] for rejection in answer["rejections"]] == ["ContextTooLong"]
    answer = explained("vllm", "serve", "my/model", "--max-model-len", "142000", "--kv-transfer-config", ON)
    assert answer["sizes_unjudged_without"] == ["the model (--model-config)", "the kind of GPU (--gpu)"]


def test_the_whole_line_may_come_as_one_text() -> None:
    assert explained(" ".join([*VLLM, "--kv-transfer-config", f"'{ON}'"]))["accepted"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--vllm-version", "0.29", "--", *VLLM), "sizes are known for 0.30, 0.31, 0.32, 0.33"),
        (("--gpu", "A100", "--", *VLLM), "GPU 'A100' is not known"),
        (("--gpu-kv-gib", "18GiB", "--", *VLLM), "'18GiB' is not a number: write GiB without a unit"),
        (("--model-config", "/no/such/file", "--", *VLLM), "cannot read /no/such/file"),
        (("--", "python", "server.py"), "there is no `vllm serve` in it"),
        ((), "Missing argument"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_two(arguments: tuple[str, ...], text: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    message = " ".join("".join(letter for letter in result.stderr if letter not in "│╭╮╰╯─").split())
    assert text in message


def test_a_process_loads_neither_engines_nor_the_operator() -> None:
    code = (
        "import sys\nfrom hisparse_runtime.cli import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit:\n    print(*sorted(sys.modules), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "args", "explain", "-o", "json", "--", *PUBLISHED]
    loaded = {
        name.partition(".")[0] for name in subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()
    }
    assert not loaded & {"torch", "vllm", "numpy", "pydantic", "hisparse_operator", "kubernetes", "rich", "yaml"}
