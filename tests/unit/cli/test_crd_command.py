"""`hisparse crd`: what it prints and how it ends."""

from pathlib import Path

import typer
from typer.testing import CliRunner

from hisparse_operator.api import custom_resource_definition_yaml
from hisparse_runtime.cli.crd import crd

_app = typer.Typer()
_app.command()(crd)


def test_the_crd_is_printed_as_it_is() -> None:
    result = CliRunner().invoke(_app, [])
    assert (result.exit_code, result.stdout) == (0, custom_resource_definition_yaml())


def test_a_fresh_file_passes_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "crd.yaml"
    path.write_text(custom_resource_definition_yaml(), encoding="utf-8")
    result = CliRunner().invoke(_app, ["--check", str(path)])
    assert (result.exit_code, result.output) == (0, "")


def test_a_stale_file_fails_with_the_difference_and_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "crd.yaml"
    path.write_text(custom_resource_definition_yaml().replace("maximum: 256", "maximum: 8"), encoding="utf-8")
    result = CliRunner().invoke(_app, ["--check", str(path)])
    assert result.exit_code == 1
    assert "-                maximum: 8\n+                maximum: 256\n" in result.stdout
    assert f"write it anew with `hisparse crd > {path}`" in result.stderr


def test_a_missing_file_is_an_error_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(_app, ["--check", str(tmp_path / "none.yaml")])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"cannot read {tmp_path / 'none.yaml'}: ")
    assert result.stderr.count("\n") == 1
