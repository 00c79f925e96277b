"""Runs `hisparse plan` within the test's process."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from hisparse_runtime.cli import app

# 8 x H200 as in the reference run of HiSparse: KV memory as vLLM logged it, so that no estimate is in the way.
GLM = ("--model", "zai-org/GLM-5.3", "--gpu", "H200", "--gpu-kv-gib", "17.8", "--kv-cache-dtype", "fp8")
GLM_DEPLOYMENT = """\
apiVersion: hisparse.dev/v1alpha1
kind: HiSparseDeployment
metadata: {name: glm}
spec:
  model: {name: zai-org/GLM-5.3}
  engine:
    type: VLLM
    maxModelLen: 142000
    vllm: {gpu: H200, tensorParallelSize: 8, kvCacheDtype: fp8}
"""


@dataclass(frozen=True)
class Run:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def message(self) -> str:
        """What standard error says, without frames and line breaks."""
        return " ".join("".join(letter for letter in self.stderr if letter not in "│╭╮╰╯─").split())


def plan(*arguments: str | Path, stdin: str | None = None) -> Run:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)], input=stdin, env={"NO_COLOR": "1", "TERMINAL_WIDTH": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Run(exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr)


def plan_json(*arguments: str | Path) -> Any:
    """The answer of a run that must not be refused."""
    run = plan(*arguments, "-o", "json")
    assert (run.exit_code, run.stderr) == (0, "")
    return run.json
