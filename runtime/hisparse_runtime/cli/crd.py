"""`hisparse crd`: prints the CustomResourceDefinition, or checks that a file holds it."""

import difflib
from pathlib import Path
from typing import Annotated

import typer


def crd(
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Print nothing when FILE holds the CRD; else print the difference and exit 1."),
    ] = None,
) -> None:
    """Print the CustomResourceDefinition of HiSparseDeployment as YAML."""
    # The command line sits on top of both packages; nothing else of the runtime may import the operator.
    from hisparse_operator.api import custom_resource_definition_yaml  # noqa: PLC0415  (paid for by this sub-command only)

    expected = custom_resource_definition_yaml()
    if check is None:
        typer.echo(expected, nl=False)
        return
    try:
        found = check.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        typer.echo(f"cannot read {check}: {error}; write it with `hisparse crd > {check}`", err=True)
        raise typer.Exit(2) from error
    if found != expected:
        difference = difflib.unified_diff(
            found.splitlines(keepends=True), expected.splitlines(keepends=True), str(check), "hisparse crd"
        )
        typer.echo("".join(difference), nl=False)
        typer.echo(f"{check} is stale: write it anew with `hisparse crd > {check}`", err=True)
        raise typer.Exit(1)
