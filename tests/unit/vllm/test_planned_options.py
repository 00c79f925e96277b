"""Options that a plan decides are found whatever they are called."""

from dataclasses import replace

import pytest

from hisparse_runtime.geometry import VLLM_VERSIONS
from hisparse_runtime.vllm.arguments import Role, ServeArguments, serve_command
from hisparse_runtime.vllm.dialects import Dialect
from hisparse_runtime.vllm.planned_options import Decision, conflicts
from tests.unit.vllm.lines import GIB
from tests.unit.vllm.test_arguments import SETTINGS

NEWEST = VLLM_VERSIONS["0.33"]
EVERYTHING = ServeArguments(
    model="m",
    settings=replace(
        SETTINGS,
        data_parallel_size=2,
        prefill_context_parallel_size=2,
        block_size=64,
        num_speculative_tokens=3,
        device_buffer_size=10240,
        distributed_executor_backend="ray",
    ),
    role=Role.DECODE,
    host_pool_gib=10.0,
    cpu_bytes_to_use=GIB,
    expert_parallel=True,
    gpu_memory_utilization=0.9,
    kv_cache_memory_bytes=GIB,
    served_model_name="n",
    host="::",
    port=8000,
    shutdown_seconds=1,
)


@pytest.mark.parametrize(
    ("options", "option", "decision"),
    [
        (("--kv-transfer-config", "{}"), "--kv-transfer-config", Decision.CONNECTORS),
        (("--kv_transfer_config={}",), "--kv-transfer-config", Decision.CONNECTORS),
        (("--kv-transfer-config.kv_role=kv_both",), "--kv-transfer-config", Decision.CONNECTORS),
        (("--kv-transfer", "{}"), "--kv-transfer-config", Decision.CONNECTORS),
        (("-ac.backend=X",), "--attention-config", Decision.ATTENTION),
        (("-tp=2",), "--tensor-parallel-size", Decision.TENSOR_PARALLEL),
        (("--max-num-seq", "2"), "--max-num-seqs", Decision.NUM_SEQS),
        (("--no-async-scheduling",), "--async-scheduling", Decision.ASYNC_SCHEDULING),
        (("-ep",), "--enable-expert-parallel", Decision.EXPERT_PARALLEL),
        (("--spec-tokens", "3"), "--spec-tokens", Decision.SPECULATION),
        (("--api-key", "x"), "--api-key", Decision.SECRET),
        (("-cc.cudagraph_mode=full",), "--compilation-config", Decision.CUDA_GRAPHS),
    ],
)
def test_a_planned_option_is_found_by_any_of_its_names(options: tuple[str, ...], option: str, decision: Decision) -> None:
    (found,) = conflicts(options, NEWEST)
    assert (found.option, found.decision) == (option, decision)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--enable-auto-tool-choice", "--tool-call-parser", "glm47"),
        ("--trust-remote-code", "--chat-template", "x.jinja"),
        ("-cc.cudagraph_mode=PIECEWISE",),
        ("--max-num", "5"),
        ("--no-such-option", "--max"),
    ],
)
def test_other_options_are_the_users(options: tuple[str, ...]) -> None:
    assert conflicts(options, NEWEST) == ()


def test_a_planned_options_value_is_no_option() -> None:
    assert conflicts(("--chat-template", "max-model-len"), NEWEST) == ()


def test_conflicts_come_in_the_order_of_the_words() -> None:
    found = conflicts(("-dp", "2", "--trust-remote-code", "-tp", "2"), NEWEST)
    assert [conflict.typed for conflict in found] == ["-dp", "-tp"]


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("version", VLLM_VERSIONS.values(), ids=lambda version: str(version.name))
def test_every_option_that_is_ever_rendered_is_planned(version: object, dialect: Dialect) -> None:
    arguments = replace(EVERYTHING, dialect=dialect, settings=replace(EVERYTHING.settings, version=version))  # type: ignore[arg-type]
    words = [*serve_command(arguments).words[3:], "--no-async-scheduling"]
    options = {word for word in words if word.startswith("--")}
    assert len(options) >= 20
    assert {conflict.typed for conflict in conflicts(words, arguments.settings.version)} == options
