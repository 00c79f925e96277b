"""Cases as JSON lines in, answers as JSON lines out, by kind of GPU and in the order of the cases within it."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TextIO

from tests.contract.upstream_side.fake_platform import install

Case = dict[str, Any]


def answer_by_gpu(answers: Callable[[str, list[Case]], Iterable[dict[str, Any]]]) -> int:
    """Exit code. vLLM is imported once; each kind of GPU gets a forked process, as vLLM remembers what it found out about it."""
    os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
    output = private_stdout()
    install()
    import_module("vllm.engine.arg_utils")
    import_module("vllm.v1.engine.core")
    cases = [json.loads(line) for line in sys.stdin if line.strip()]
    for gpu in sorted({case["gpu"] for case in cases}):
        child = os.fork()
        if child == 0:
            for answer in answers(gpu, [case for case in cases if case["gpu"] == gpu]):
                output.write(json.dumps(answer) + "\n")
                output.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(f"the process for {gpu} ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
            return 1
    return 0


def private_stdout() -> TextIO:
    """vLLM logs to standard output: that goes to standard error, and only answers to the real one."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return output
