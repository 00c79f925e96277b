"""Asks a released vLLM for traces: workloads to a process inside its environment, which answers one after the other."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from threading import Timer
from typing import NamedTuple

from tests.contract.oracle import REPOSITORY, OracleError
from tests.contract.traces import Trace, unpacked
from tests.contract.workloads import Workload
from tools.upstream import upstream


class Failure(NamedTuple):
    """vLLM's scheduler raised an exception that would end the engine."""

    workload: str
    error: str


def upstream_traces(version: str, workloads: Iterable[Workload], *, timeout_seconds: float) -> Iterator[Trace | Failure]:
    """In the order of `workloads`. OracleError when the process fails, or takes longer than `timeout_seconds` for all."""
    environment = upstream(version)
    command = [str(environment.python), "-m", "tests.contract.upstream_side.scheduling_answer"]
    with tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as log:
        asked.writelines(json.dumps(workload.to_json()) + "\n" for workload in workloads)
        asked.seek(0)
        with subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **environment.environment},
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process:
            timer = Timer(timeout_seconds, process.kill)
            timer.start()
            try:
                yield from (_answer(line) for line in process.stdout or ())
                process.wait()
            finally:
                timer.cancel()
                process.kill()
        if process.returncode:
            log.seek(0)
            raise OracleError(
                f"vLLM {version}: exit code {process.returncode} (after {timeout_seconds:.0f} s?)\n{log.read()[-3000:]}"
            )


def _answer(line: str) -> Trace | Failure:
    record = json.loads(line)
    return Failure(record["workload"]["name"], record["error"]) if "error" in record else unpacked(record)
