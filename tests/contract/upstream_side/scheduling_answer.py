"""`python -m tests.contract.upstream_side.scheduling_answer`: workloads as JSON lines in, their traces out.

One process for all: importing vLLM takes half a minute, building a scheduler less than a second.
"""

import gc
import json
import os
import sys
import traceback
from importlib import import_module
from typing import Any, TextIO

from tests.contract.trace_driver import trace
from tests.contract.traces import packed
from tests.contract.upstream_side.fake_platform import GPUS, Machine, install
from tests.contract.workloads import Workload


def main() -> int:
    output = start()
    from tests.contract.upstream_side.scheduling_driven import UpstreamScheduler  # noqa: PLC0415  after vLLM's platform

    for line in sys.stdin:
        workload = Workload.from_json(json.loads(line))
        answer: dict[str, Any]
        try:
            answer = packed(trace(workload, UpstreamScheduler(workload.settings)))
        except Exception as error:  # noqa: BLE001  the one who asks decides what an impossible workload means
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
            answer = {"workload": workload.to_json(), "error": text}
        output.write(json.dumps(answer, separators=(",", ":")) + "\n")
        output.flush()
        gc.collect()
    return 0


def start() -> TextIO:
    """Imports vLLM for a GPU that is not there. Its log goes to standard error; returned is the real standard output."""
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    install()
    import_module("vllm.engine.arg_utils")
    import_module("vllm.v1.engine.core")
    Machine.gpu = GPUS["H200"]
    return output


if __name__ == "__main__":
    sys.exit(main())
