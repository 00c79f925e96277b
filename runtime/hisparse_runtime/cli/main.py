"""Entry point of `hisparse`: wires the sub-commands."""

import typer

from hisparse_runtime.cli import args, crd, serve
from hisparse_runtime.cli.plan import command as plan

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Runtime of hisparse-operator: plan memory, serve a model, print the CRD.",
)
app.command("plan")(plan.plan)
app.command("crd")(crd.crd)
app.command("serve")(serve.serve)
app.add_typer(args.app, name="args")
