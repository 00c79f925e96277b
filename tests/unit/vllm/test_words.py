"""A command line is read as vLLM's parser reads it, and nothing of it is lost."""

import pytest

from hisparse_runtime.vllm.command_line.words import CommandLineError, ItemKind, read_command_line
from tests.unit.vllm.lines import read, table


@pytest.mark.parametrize(
    "words",
    [
        ("vllm", "serve", "model", "--tensor-parallel-size", "8", "-ac.x.y=1", "--enforce-eager"),
        ("VLLM_USE_V2_MODEL_RUNNER=1", "numactl", "--all", "/opt/bin/vllm", "serve", "--model", "m", "stray", "--nope", "1"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model=m", "--served-model-name", "a", "b"),
        ("serve", "model", "-O3", "--max-num", "5"),
        ("docker", "run", "--gpus", "all", "--ipc=host", "vllm/vllm-openai:v0.33.0", "--model", "m", "-tp", "8"),
    ],
)
def test_every_word_comes_back(words: tuple[str, ...]) -> None:
    assert read(*words).words == words


def test_the_environment_in_front_is_kept_apart() -> None:
    line = read("env", "A=1", "B=x=y", "vllm", "serve", "m")
    assert line.environment == (("A", "1"), ("B", "x=y"))
    assert line.variable("B") == "x=y"
    assert line.variable("C") is None
    assert line.program == ("vllm", "serve")


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (("serve", "m", "-tp", "8"), "m"),
        (("serve", "-tp", "8", "m"), "m"),
        (("serve", "--enforce-eager", "m"), "m"),
        (("serve", "-tp", "8", "--model", "m"), "m"),
        (("serve", "-tp", "8", "--model=m"), "m"),
        (("serve", "-tp", "8"), None),
        (("docker", "run", "-it", "registry.local:5000/vllm/vllm-openai", "--model", "m", "-tp", "8"), "m"),
    ],
)
def test_the_model_is_the_word_that_no_option_takes(words: tuple[str, ...], model: str | None) -> None:
    assert read(*words).model == model


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("-tp=8", "--tensor-parallel-size"),
        ("--tensor_parallel_size=8", "--tensor-parallel-size"),
        ("--tensor-par=8", "--tensor-parallel-size"),
        ("-ac.backend=FLASHMLA", "--attention-config"),
        ("--kv_transfer_config.kv_role=kv_both", "--kv-transfer-config"),
        ("--no-async-scheduling", "--async-scheduling"),
        ("--device-memory-utilization=0.9", "--gpu-memory-utilization"),
    ],
)
def test_options_are_known_by_alias_underscores_abbreviation_and_keys(word: str, name: str) -> None:
    (item,) = read("serve", word).items
    assert item.option is not None
    assert item.option.name == name
    assert item.is_off == word.startswith("--no-")


def test_dotted_options_keep_underscores_in_their_keys() -> None:
    (item,) = read("serve", "--attention_config.hisparse_config.device_buffer_size=4096").items
    assert item.name == "--attention-config"
    assert item.keys == ("hisparse_config", "device_buffer_size")
    assert item.values == ("4096",)


def test_a_dotted_option_takes_the_next_word_whatever_it_is() -> None:
    item, model = read("serve", "-ac.x", "--enforce-eager", "m").items
    assert item.values == ("--enforce-eager",)
    assert model.kind is ItemKind.MODEL


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (("m", "--nope", "1"), ["model", "unknown", "stray"]),
        (("m", "--max-num", "5"), ["model", "ambiguous", "stray"]),
        (("m", "n"), ["model", "stray"]),
        (("--model", "m", "n"), ["option", "stray"]),
        (("m", "--served-model-name", "a", "b", "--port", "1"), ["model", "option", "option"]),
        (("m", "--max-model-len", "-1"), ["model", "option"]),
    ],
)
def test_words_that_belong_to_no_option_are_told_apart(words: tuple[str, ...], kinds: list[str]) -> None:
    assert [item.kind for item in read("serve", *words).items] == kinds


@pytest.mark.parametrize(
    ("words", "lack"),
    [
        (("m", "--port"), "expected one argument"),
        (("m", "--port", "--enforce-eager"), "expected one argument"),
        (("m", "--served-model-name"), "expected at least one argument"),
        (("m", "--enforce-eager=1"), "ignored explicit argument"),
        (("m", "-O"), "expected one argument"),
        (("m", "--hf-token"), ""),
    ],
)
def test_missing_and_surplus_values_are_named_as_argparse_does(words: tuple[str, ...], lack: str) -> None:
    assert read("serve", *words).items[1].lack == lack


def test_a_whole_line_in_one_text_is_split_as_a_shell_does() -> None:
    text = """A=1 vllm serve m \\\n  --attention-config '{"hisparse_config": {}}'"""
    line = read_command_line([text], table())
    assert line.words == ("A=1", "vllm", "serve", "m", "--attention-config", '{"hisparse_config": {}}')


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("python", "server.py"), "there is no `vllm serve` in it"),
        ((), "there is no `vllm serve` in it"),
        (("vllm serve 'm",), "cannot be told apart: No closing quotation"),
    ],
)
def test_what_is_no_command_of_vllm_is_refused_with_what_to_give(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(CommandLineError, match=text):
        read_command_line(words, table())


def test_options_differ_between_releases() -> None:
    assert read("serve", "m", "--grpc-port", "1").items[1].kind is ItemKind.OPTION
    assert read("serve", "m", "--grpc-port", "1", version="0.31").items[1].kind is ItemKind.UNKNOWN
