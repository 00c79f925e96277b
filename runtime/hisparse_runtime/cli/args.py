"""`hisparse args explain`: what a `vllm serve` command line says, what a release refuses of it and when, and one that works."""

from pathlib import Path
from typing import Annotated

import typer

from hisparse_runtime.cli.plan.output import OutputFormat
from hisparse_runtime.geometry import NEWEST_VERSION

app = typer.Typer(no_args_is_help=True, help="Command lines of `vllm serve`.")
_REFUSED_EXIT_CODE = 2


@app.callback()
def args() -> None:
    """Command lines of `vllm serve`."""


@app.command(context_settings={"ignore_unknown_options": False})
def explain(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="Behind two dashes: -- vllm serve ...")],
    *,
    vllm_version: Annotated[
        str, typer.Option(metavar="VERSION", help="0.30 to 0.33, or hisparse-glm for the branch of the announcement.")
    ] = NEWEST_VERSION.name,
    model_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The model's config.json, or the folder with it. Default: the known model of that name, if any."
        ),
    ] = None,
    gpu: Annotated[str | None, typer.Option(metavar="KIND", help="Kind of GPU, such as H200: with it, sizes are judged.")] = None,
    gpu_kv_gib: Annotated[
        str | None, typer.Option(metavar="GIB", help="KV memory on each GPU, from vLLM's log. Default: estimated.")
    ] = None,
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="For people or for programs.")] = OutputFormat.TABLE,
) -> None:
    """Explain a `vllm serve` command line, before its weights are loaded.

    Exit code 2 where vLLM would not start, with the reason, when it would say so, and the command that works.

    \b
    hisparse args explain -- vllm serve zai-org/GLM-5.3 --attention-config '{"hisparse_config":{"host_pool_gib":384}}'
    hisparse args explain --vllm-version 0.32 --gpu H200 -- vllm serve zai-org/GLM-5.3 -tp 8 --max-model-len 142000 ...
    """
    # pydantic and rich have no part in it, but the rules and option tables have: paid for by this command only
    from hisparse_runtime.cli.args_answer import AskedWronglyError, Question, answer, text_of  # noqa: PLC0415  (not for --help)

    question = Question(words=tuple(command), version=vllm_version, model_config=model_config, gpu=gpu, gpu_kv_gib=gpu_kv_gib)
    try:
        found = answer(question)
    except AskedWronglyError as error:
        raise typer.BadParameter(str(error), param_hint=error.option) from error
    typer.echo(text_of(found, output=output), nl=False)
    if found.explanation.rejections:
        raise typer.Exit(_REFUSED_EXIT_CODE)
