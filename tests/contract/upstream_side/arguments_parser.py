"""vLLM's own parser of `vllm serve`, and what it says about its options."""

from importlib import import_module
from typing import Any


def serve_parser() -> Any:
    """Takes words from `serve` on, as the `vllm` command builds it. Its other commands import what is not installed here."""
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser(prog="vllm")
    commands = parser.add_subparsers(required=False, dest="subparser")
    return _attach(commands, parser)


def validate_serve(parsed: Any) -> None:
    """The checks that the command makes of what was parsed."""
    _cli_args().validate_parsed_serve_args(parsed)


def serve_command(parser: Any) -> Any:
    """The parser of the command itself, below the one for all of `vllm`."""
    return parser._subparsers._group_actions[0].choices["serve"]


def _attach(commands: Any, parser: Any) -> Any:
    _cli_args().make_arg_parser(commands.add_parser("serve", usage="vllm serve [model_tag] [options]"))
    return parser


def _cli_args() -> Any:
    """0.33 moved it."""
    try:
        return import_module("vllm.entrypoints.common.cli_args")
    except ModuleNotFoundError:
        return import_module("vllm.entrypoints.launchers.cli_args")
