"""The launcher as a process, with preflight and residency replaced: told by the JSON of the only argument."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hisparse_runtime.vllm.launch.__main__  # noqa: F401 - its signal handlers
from hisparse_runtime.vllm.launch.command import EngineCommand
from hisparse_runtime.vllm.launch.run import LaunchOptions, Parts, launch
from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight import Reason, Report
from hisparse_runtime.vllm.preflight.findings import refused

TOLD: dict[str, Any] = json.loads(sys.argv[1])


def preflight(_plan: PodPlan, _command: EngineCommand, _words: Sequence[str]) -> Report:
    time.sleep(TOLD["preflight_seconds"])
    findings = (refused(Reason.NOT_ENOUGH_GPUS, "0 of 8 GPUs"),) if TOLD["is_refused"] else ()
    return Report(findings=findings, facts={})


def residency(text: str, _engine_seconds: float) -> dict[str, Any]:
    return {"page": text}


sys.exit(
    launch(
        LaunchOptions(
            plan_file=Path(TOLD["plan_file"]),
            words=tuple(TOLD["words"]),
            environment=dict(os.environ),
            status_port=TOLD["status_port"],
            termination_log=Path(TOLD["termination_log"]),
        ),
        parts=Parts(preflight=preflight, residency=lambda _plan, _command: residency),
    )
)
