"""Values become what vLLM makes of them, or are refused in its words."""

from typing import Any

import pytest

from hisparse_runtime.vllm.command_line.quantities import quantity_bytes
from hisparse_runtime.vllm.command_line.values import Given, given_values, human_int
from tests.unit.vllm.lines import read


def given(*words: str, version: str = "0.33") -> dict[str, Given]:
    return given_values(read("serve", "m", *words, version=version))


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (("-tp", "8"), "--tensor-parallel-size", 8),
        (("--max-model-len", "128K"), "--max-model-len", 131072),
        (("--max-model-len", "142k"), "--max-model-len", 142000),
        (("--max-model-len", "auto"), "--max-model-len", -1),
        (("--max-model-len", "-1"), "--max-model-len", -1),
        (("--max-num-batched-tokens", "8.5k"), "--max-num-batched-tokens", 8500),
        (("--gpu-memory-utilization", ".9"), "--gpu-memory-utilization", 0.9),
        (("--no-async-scheduling",), "--async-scheduling", False),
        (("--enforce-eager",), "--enforce-eager", True),
        (("--served-model-name", "a", "b"), "--served-model-name", ["a", "b"]),
        (("--kv-transfer-config", "None"), "--kv-transfer-config", None),
        (("--kv-transfer-config", ""), "--kv-transfer-config", None),
        (("--hf-token",), "--hf-token", True),
        (("-sc.num_speculative_tokens=3",), "--speculative-config", {"num_speculative_tokens": 3}),
        (
            ("-ac.hisparse_config.device_buffer_size", "4K"),
            "--attention-config",
            {"hisparse_config": {"device_buffer_size": 4096}},
        ),
        (("-cc.a.b=1", "-cc.a.c=x"), "--compilation-config", {"a": {"b": 1, "c": "x"}}),
        (("--additional-config", "text"), "--additional-config", "text"),
        (("--additional-config", '{"a":1}'), "--additional-config", {"a": 1}),
        (("-tp", "2", "--tensor-parallel-size", "4"), "--tensor-parallel-size", 4),
    ],
)
def test_values_are_converted(words: tuple[str, ...], name: str, value: Any) -> None:
    assert given(*words)[name].value == value


def test_numbers_in_json_may_have_a_suffix_outside_of_quotes() -> None:
    text = '{"kv_connector":"8G","kv_port":2k}'
    assert given("--kv-transfer-config", text)["--kv-transfer-config"].value == {"kv_connector": "8G", "kv_port": 2000}


def test_dotted_options_replace_the_json_of_the_same_option() -> None:
    found = given("-ac.backend=X", "--attention-config", '{"hisparse_config":{}}')["--attention-config"]
    assert found.value == {"backend": "X"}
    assert [item.words for item in found.overridden] == [("--attention-config", '{"hisparse_config":{}}')]


def test_two_spellings_of_dotted_options_are_two_objects_and_the_later_counts() -> None:
    found = given("-ac.backend=X", "--attention-config.use_non_causal=true", "-ac.flex_attn_block_m=16")["--attention-config"]
    assert found.value == {"use_non_causal": True}


@pytest.mark.parametrize(
    ("words", "name", "says"),
    [
        (("-tp", "8K"), "--tensor-parallel-size", "invalid int value"),
        (("--max-model-len", "long"), "--max-model-len", "invalid human_readable_int_or_auto value"),
        (("--max-num-batched-tokens", "8.5K"), "--max-num-batched-tokens", "Decimals are not allowed"),
        (("--kv-cache-memory-bytes", "18Gi"), "--kv-cache-memory-bytes", "cannot be converted to"),
        (("--gpu-memory-utilization", "92%"), "--gpu-memory-utilization", "invalid float value"),
        (("--all2all-backend", "slurm"), "--all2all-backend", "invalid choice"),
        (("--kv-transfer-config", "{a:1}"), "--kv-transfer-config", "Invalid JSON"),
        (("--kv-transfer-config", "[1]"), "--kv-transfer-config", "Input should be an object"),
        (("--speculative-config", "{a:1}"), "--speculative-config", "cannot be converted to"),
        (("-ac.nope=1",), "--attention-config", "Unexpected keyword argument"),
        (("-ac.hisparse_config.nope=1",), "--attention-config", "Unexpected keyword argument"),
        (("-tp", "x", "-tp", "8"), "--tensor-parallel-size", "invalid int value"),
    ],
)
def test_values_that_vllm_refuses_say_so_in_its_words(words: tuple[str, ...], name: str, says: str) -> None:
    problem = given(*words)[name].problem
    assert problem is not None
    assert problem.says == says


def test_a_key_that_is_not_known_is_named_with_its_path() -> None:
    problem = given("-ac.hisparse_config.host_pool_gib=384")["--attention-config"].problem
    assert problem is not None
    assert problem.keys == ("hisparse_config", "host_pool_gib")
    assert "has no field 'hisparse_config.host_pool_gib'; vLLM 0.33 knows device_buffer_size, eager_host_mirror" in problem.text


def test_choices_of_a_release_are_its_own() -> None:
    assert given("--all2all-backend", "moonep", version="0.30")["--all2all-backend"].problem is not None
    assert given("--all2all-backend", "moonep", version="0.31")["--all2all-backend"].problem is None


def test_options_without_their_value_are_not_given() -> None:
    assert given("--port") == {}


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("1k", 1000), ("1K", 1024), ("25.6k", 25600), ("2T", 2 << 40)])
def test_human_numbers(text: str, number: int) -> None:
    assert human_int(text) == number


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("384GiB", 384 << 30), ("128Gi", 128 << 30), ("1.5 TB", 1_500_000_000_000), ("384", None), (384, None), ("lots", None)],
)
def test_sizes_with_a_unit(text: object, size_bytes: int | None) -> None:
    assert quantity_bytes(text) == size_bytes
