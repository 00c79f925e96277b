"""`python -m tests.contract.upstream_side.answer_cases`: cases as JSON lines in, answers as JSON lines out, in the same order.

vLLM is imported once. Each GPU model gets a forked process, because vLLM remembers what it found out about the GPU.
"""

import json
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, TextIO

from tests.contract.upstream_side.fake_platform import GPUS, Machine, install


def main() -> int:
    os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
    output = _private_stdout()
    install()
    import_module("vllm.engine.arg_utils")
    import_module("vllm.v1.engine.core")
    cases = [json.loads(line) for line in sys.stdin if line.strip()]
    for gpu in sorted({case["gpu"] for case in cases}):
        child = os.fork()
        if child == 0:
            _answer_all(gpu, (case for case in cases if case["gpu"] == gpu), output)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(f"the process for {gpu} ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
            return 1
    return 0


def _answer_all(gpu: str, cases: Iterable[dict[str, Any]], output: TextIO) -> None:
    from tests.contract.upstream_side.planner import answer  # noqa: PLC0415  after the fork

    Machine.gpu = GPUS[gpu]
    for case in cases:
        output.write(json.dumps(answer(case)) + "\n")
        output.flush()


def _private_stdout() -> TextIO:
    """vLLM logs to standard output: that goes to standard error, and only answers to the real one."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return output


if __name__ == "__main__":
    sys.exit(main())
