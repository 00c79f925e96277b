"""`hisparse serve`: the embedded engine behind an OpenAI-compatible API."""

import math
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

_GIB = 1 << 30
_TERMINATION_LOG = Path("/dev/termination-log")
# The model's products are small: more threads than one cost more than they give, and results must
# not depend on the machine's size.
_BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def serve(
    *,
    model_config: Annotated[Path, typer.Option(help="The model's config.json.")],
    served_model_name: Annotated[str, typer.Option(help="Name of the model in requests.")],
    max_model_len: Annotated[int, typer.Option(min=1, help="Longest context of one request, prompt and output, in tokens.")],
    gpu_kv_bytes: Annotated[int, typer.Option(min=1, help="Size of the device block pool in bytes.")],
    host_pool_gib: Annotated[float, typer.Option(min=0, help="Size of the host pool in GiB.")],
    cpu_bytes_to_use: Annotated[int, typer.Option(min=0, help="Size of the offload tier for indexer pages in bytes.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Most requests that run at the same time.")] = 16,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one engine step.")] = 512,
    device_buffer_size: Annotated[
        int | None, typer.Option(min=1, max=32768, help="Rows of one request's hot region. Default: 2 x index_topk.")
    ] = None,
    max_queued_requests: Annotated[int, typer.Option(min=0, help="Most requests that wait; more are answered 503.")] = 256,
    shutdown_timeout: Annotated[float, typer.Option(min=0, help="Seconds that requests get to finish after SIGTERM.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random weights.")] = 0,
) -> None:
    """Serve a sparse-MLA model on the CPU with Hybrid HiSparse (random weights in the shapes of the config)."""
    if not math.isfinite(host_pool_gib) or math.isnan(shutdown_timeout):
        raise typer.BadParameter(f"--host-pool-gib {host_pool_gib}, --shutdown-timeout {shutdown_timeout}: a number is needed")
    for variable in _BLAS_VARIABLES:
        os.environ.setdefault(variable, "1")
    from hisparse_runtime.engine.build import EngineOptions  # noqa: PLC0415 - numpy reads the variables above when it is loaded
    from hisparse_runtime.engine.process import EngineFailedError, ServeOptions, StartError  # noqa: PLC0415 - as above
    from hisparse_runtime.engine.process import serve as run  # noqa: PLC0415 - as above

    options = ServeOptions(
        model_config=model_config,
        model_name=served_model_name,
        host=host,
        port=port,
        shutdown_timeout_seconds=shutdown_timeout,
        engine=EngineOptions(
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            gpu_kv_bytes=gpu_kv_bytes,
            host_pool_bytes=int(host_pool_gib * _GIB),
            cpu_bytes_to_use=cpu_bytes_to_use,
            device_buffer_size=device_buffer_size,
            seed=seed,
            max_queued=max_queued_requests,
        ),
    )
    try:
        run(options)
    except StartError as error:
        _end(str(error), exit_code=2)
    except EngineFailedError as error:
        _end(str(error), exit_code=1)


def _end(message: str, *, exit_code: int) -> None:
    """One line to stderr, and to where the kubelet looks for it."""
    line = f"hisparse serve: {message}"
    sys.stderr.write(line + "\n")
    if _TERMINATION_LOG.exists() and os.access(_TERMINATION_LOG, os.W_OK):
        _TERMINATION_LOG.write_text(line + "\n", encoding="utf-8")
    raise typer.Exit(exit_code)
