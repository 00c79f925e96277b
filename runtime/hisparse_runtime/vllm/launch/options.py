"""The launcher's own command line; what comes after `--` is the engine's."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from hisparse_runtime.vllm.launch.run import LaunchOptions
from hisparse_runtime.vllm.pod_plan import FOLDER, PLAN_FILE, STATUS_PORT


def parse_options(arguments: Sequence[str]) -> LaunchOptions:
    """Exits with 2 and a text for a wrong one."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    own, words = arguments[:split], arguments[split + 1 :]
    parser = argparse.ArgumentParser(
        prog="hisparse launch",
        usage="python3 -m hisparse_runtime.vllm.launch [--plan FILE] [--status-port PORT] -- vllm serve MODEL ...",
        description="Runs an engine as a pod does: preflight, probes, drain.",
    )
    parser.add_argument("--plan", type=Path, default=Path(FOLDER) / PLAN_FILE, help="what the pod was planned with")
    parser.add_argument("--status-port", type=int, default=STATUS_PORT, help="of probes, progress and residency (%(default)s)")
    options = parser.parse_args(own)
    return LaunchOptions(
        plan_file=options.plan, words=tuple(words), environment=dict(os.environ), status_port=options.status_port
    )
