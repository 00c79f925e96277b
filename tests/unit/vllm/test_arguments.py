"""A plan becomes words for exec, an environment, and nothing that a shell would have to read."""

import json
from dataclasses import replace

import pytest

from hisparse_runtime.capacity import FLAG_NAMES, EnginePlan, EngineRequest, VllmSettings, plan_engine
from hisparse_runtime.geometry import VLLM_VERSIONS, complete_config, read_model
from hisparse_runtime.vllm.arguments import (
    ArgumentsError,
    Role,
    ServeArguments,
    planned_arguments,
    serve_command,
    without_hisparse,
)
from hisparse_runtime.vllm.dialects import Dialect
from tests.unit.vllm.lines import GIB

SETTINGS = VllmSettings(
    version=VLLM_VERSIONS["0.33"],
    capability=(9, 0),
    gpu_kv_bytes=20 * GIB,
    max_model_len=142_000,
    max_num_batched_tokens=32_768,
    max_num_seqs=256,
    kv_cache_dtype="fp8",
    tensor_parallel_size=8,
)
GLM = ServeArguments(model="zai-org/GLM-5.3", settings=SETTINGS, host_pool_gib=384.0, cpu_bytes_to_use=128 * GIB)
ROLES = {
    "hisparse": replace(GLM, cpu_bytes_to_use=None),
    "offloading": GLM,
    "decode": replace(GLM, role=Role.DECODE, nixl_host="10.0.0.1"),
    "prefill": replace(GLM, role=Role.PREFILL, host_pool_gib=None, cpu_bytes_to_use=None, nixl_host="10.0.0.1"),
    "baseline": without_hisparse(GLM),
    "branch": replace(GLM, dialect=Dialect.BRANCH),
}


def option(arguments: ServeArguments, name: str) -> str | None:
    words = serve_command(arguments).words
    return words[words.index(name) + 1] if name in words else None


def connectors(arguments: ServeArguments) -> list[str]:
    text = option(arguments, "--kv-transfer-config")
    if text is None:
        return []
    config = json.loads(text)
    children = config.get("kv_connector_extra_config", {}).get("connectors", [config])
    return [child["kv_connector"] for child in children]


def planned(**settings: object) -> EnginePlan:
    model = read_model(complete_config("glm-5.3", {})[0])
    changed: VllmSettings = replace(SETTINGS, **settings)  # type: ignore[arg-type]
    return plan_engine(EngineRequest(model=model, settings=changed, budget_bytes=1024 * GIB), names=FLAG_NAMES)


def test_the_announcements_engine_in_the_words_of_released_vllm() -> None:
    assert serve_command(GLM).words == (
        *("vllm", "serve", "zai-org/GLM-5.3", "--tensor-parallel-size", "8", "--max-model-len", "142000"),
        *("--max-num-batched-tokens", "32768", "--max-num-seqs", "256", "--kv-cache-dtype", "fp8", "--async-scheduling"),
        "--kv-transfer-config",
        (
            '{"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{"connectors":['
            '{"kv_connector":"HiSparseConnector","kv_role":"kv_both","kv_connector_extra_config":{"host_pool_gib":384.0}},'
            '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":'
            '{"spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":137438953472}}]}}'
        ),
    )


def test_the_announcements_engine_in_the_words_of_its_branch() -> None:
    words = serve_command(ROLES["branch"]).words
    assert words[words.index("--attention-config") + 1] == '{"hisparse_config":{"host_pool_gib":384.0}}'
    assert words[words.index("--kv-transfer-config") + 1] == (
        '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":'
        '{"spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":137438953472}}'
    )


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("hisparse", ["HiSparseConnector"]),
        ("offloading", ["HiSparseConnector", "OffloadingConnector"]),
        ("decode", ["HiSparseConnector", "NixlConnector", "OffloadingConnector"]),
        ("prefill", ["NixlConnector"]),
        ("baseline", ["OffloadingConnector"]),
        ("branch", ["OffloadingConnector"]),
    ],
)
def test_each_role_has_its_connectors_and_hisparse_leads(role: str, expected: list[str]) -> None:
    assert connectors(ROLES[role]) == expected


@pytest.mark.parametrize("role", ROLES)
def test_at08_no_quantity_reaches_vllm_where_it_wants_a_number(role: str) -> None:
    command = serve_command(replace(ROLES[role], shutdown_seconds=120, worker_shutdown_seconds=600, gpu_memory_utilization=0.9))
    values = [*command.words, *command.environment.values()]
    assert not [value for value in values if value.endswith(("Gi", "GiB", "Mi", "G"))]
    for name in ("--gpu-memory-utilization", "--max-model-len", "--shutdown-timeout", "--max-num-seqs"):
        float(command.words[command.words.index(name) + 1])
    for word in values:
        if word.startswith("{"):
            assert all(isinstance(size, int | float) for size in _sizes(json.loads(word)))
    assert float(command.environment["VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"]) == 600


def _sizes(config: object) -> list[object]:
    if isinstance(config, list):
        return [size for entry in config for size in _sizes(entry)]
    if not isinstance(config, dict):
        return []
    own = [config[key] for key in ("host_pool_gib", "cpu_bytes_to_use", "num_speculative_tokens") if key in config]
    return own + [size for value in config.values() for size in _sizes(value)]


def test_sizes_of_a_plan_arrive_to_the_byte() -> None:
    plan = planned()
    arguments = planned_arguments(plan, model="m")
    assert arguments.host_pool_gib is not None
    text = option(arguments, "--kv-transfer-config")
    assert text is not None
    pool, offload = json.loads(text)["kv_connector_extra_config"]["connectors"]
    assert int(pool["kv_connector_extra_config"]["host_pool_gib"] * GIB) == plan.memory.host_pool_bytes
    assert offload["kv_connector_extra_config"]["cpu_bytes_to_use"] == plan.memory.cpu_bytes_to_use
    assert serve_command(arguments).environment == {"VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": str(plan.times.unpin_seconds)}


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({"data_parallel_size": 8, "tensor_parallel_size": 1}, {"--data-parallel-size": "8", "--tensor-parallel-size": "1"}),
        ({"max_model_len": None}, {"--max-model-len": "auto"}),
        ({"block_size": 128}, {"--block-size": "128"}),
        ({"num_speculative_tokens": 3}, {"--speculative-config": '{"method":"mtp","num_speculative_tokens":3}'}),
        ({"device_buffer_size": 6144}, {"--attention-config": '{"hisparse_config":{"device_buffer_size":6144}}'}),
        ({"distributed_executor_backend": "ray"}, {"--distributed-executor-backend": "ray"}),
        ({"prefill_context_parallel_size": 2}, {"--prefill-context-parallel-size": "2"}),
    ],
)
def test_settings_become_options_of_their_name(changed: dict[str, object], options: dict[str, str]) -> None:
    arguments = replace(GLM, settings=replace(SETTINGS, **changed))  # type: ignore[arg-type]
    assert {name: option(arguments, name) for name in options} == options


def test_what_has_vllms_default_is_left_out() -> None:
    words = serve_command(ROLES["hisparse"]).words
    for name in (
        "--data-parallel-size",
        "--block-size",
        "--attention-config",
        "--speculative-config",
        "--enable-expert-parallel",
    ):
        assert name not in words
    assert serve_command(ROLES["hisparse"]).environment == {}


def test_one_step_at_a_time_is_said() -> None:
    words = serve_command(replace(GLM, settings=replace(SETTINGS, async_scheduling=False))).words
    assert "--no-async-scheduling" in words
    assert "--async-scheduling" not in words


def test_engines_that_exchange_kv_say_where_they_are() -> None:
    assert serve_command(ROLES["decode"]).environment == {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1"}
    assert serve_command(replace(ROLES["offloading"], nixl_host="10.0.0.1")).environment == {}


def test_the_baseline_has_the_same_host_memory() -> None:
    assert without_hisparse(GLM).cpu_bytes_to_use == 512 * GIB
    private = replace(GLM, settings=replace(SETTINGS, distributed_executor_backend="ray"))
    assert without_hisparse(private).cpu_bytes_to_use == (8 * 384 + 128) * GIB
    assert without_hisparse(GLM).host_pool_gib is None
    assert without_hisparse(without_hisparse(GLM)) == without_hisparse(GLM)


def test_an_engine_without_any_tier_has_no_connector() -> None:
    plain = replace(GLM, host_pool_gib=None, cpu_bytes_to_use=None)
    assert "--kv-transfer-config" not in serve_command(plain).words


def test_extra_options_come_last_and_as_they_are() -> None:
    extra = ("--enable-auto-tool-choice", "--tool-call-parser", "glm47")
    assert serve_command(replace(GLM, extra=extra)).words[-3:] == extra


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"role": Role.PREFILL}, "prefill with a host pool of 384 GiB: NIXL cannot send KV"),
        ({"host_pool_gib": 0.0}, "host_pool_gib 0 must be above zero"),
        ({"settings": replace(SETTINGS, nodes_per_replica=2)}, "nodes_per_replica is 2"),
        ({"extra": ("--max-model-len", "5")}, "extra: --max-model-len: the plan decides the context length"),
        ({"extra": ("--api-key", "x", "-tp", "2")}, "--api-key: command lines are no place for secrets"),
    ],
)
def test_engines_that_cannot_be_are_refused_with_what_to_change(changed: dict[str, object], text: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        serve_command(replace(GLM, **changed))  # type: ignore[arg-type]
    assert text in str(caught.value)
