"""The words after `--`, and the environment that they are run with."""

import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hisparse_runtime.capacity import VllmSettings
from hisparse_runtime.geometry import vllm_version
from hisparse_runtime.vllm.arguments import ServeArguments, serve_command
from hisparse_runtime.vllm.launch.bytecode import with_bytecode_cache
from hisparse_runtime.vllm.launch.command import CommandError, engine_command

GLM = ServeArguments(
    model="zai-org/GLM-5.3",
    settings=VllmSettings(
        version=vllm_version("0.33"),
        capability=(9, 0),
        gpu_kv_bytes=20 << 30,
        max_model_len=142_000,
        max_num_batched_tokens=32_768,
        max_num_seqs=256,
        kv_cache_dtype="fp8",
        tensor_parallel_size=8,
    ),
    host_pool_gib=384.0,
)


def test_a_rendered_command_is_run_by_this_interpreter_with_every_word() -> None:
    arguments = replace(GLM, served_model_name="glm", host="0.0.0.0", port=9000)
    rendered = serve_command(arguments)
    command = engine_command(rendered.words)
    assert command.arguments == (sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", *rendered.words[1:])
    assert (command.model, command.served_name, command.host, command.port) == ("zai-org/GLM-5.3", "glm", "127.0.0.1", 9000)


def test_left_out_options_are_vllms_defaults() -> None:
    command = engine_command(["vllm", "serve", "org/model"])
    assert (command.served_name, command.host, command.port) == ("org/model", "127.0.0.1", 8000)


def test_another_program_is_run_as_it_is() -> None:
    command = engine_command(["/opt/engine", "serve", "m", "--host", "10.0.0.7"])
    assert (command.arguments, command.host) == (("/opt/engine", "serve", "m", "--host", "10.0.0.7"), "10.0.0.7")


@pytest.mark.parametrize(
    "words",
    [[], ["vllm"], ["vllm", "bench", "m"], ["vllm", "serve", "--port", "1"], ["vllm", "serve", "m", "--port", "canary"]],
)
def test_words_that_start_no_engine_are_refused_without_repeating_them(words: list[str]) -> None:
    with pytest.raises(CommandError, match="next step") as found:
        engine_command(words)
    assert "canary" not in str(found.value)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "heavy"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != folder)
    importlib.invalidate_caches()
    return folder


def test_bytecode_is_kept_where_its_package_has_none_and_cannot_be_written(package: Path) -> None:
    found = with_bytecode_cache({"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/home"}, package=package.name)
    assert found == {"HOME": "/home", "PYTHONPYCACHEPREFIX": "/tmp/hisparse-pycache"}  # noqa: S108 - a path in the container
    assert with_bytecode_cache({"HISPARSE_PYCACHE": "/cache"}, package=package.name)["PYTHONPYCACHEPREFIX"] == "/cache"


def test_bytecode_stays_where_it_is_or_where_its_user_wants_it(package: Path) -> None:
    chosen = {"PYTHONPYCACHEPREFIX": "/mine", "PYTHONDONTWRITEBYTECODE": "1"}
    assert with_bytecode_cache(chosen, package=package.name) == chosen
    assert with_bytecode_cache({}, package="absent_from_here") == {}
    compiled = Path(importlib.util.cache_from_source(str(package / "__init__.py")))
    compiled.parent.mkdir()
    compiled.touch()
    assert with_bytecode_cache({}, package=package.name) == {}
