"""A launcher with a stand-in engine, as a pod has it: plan, ports, termination log."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from hisparse_runtime.vllm.pod_plan import Mode, PodPlan, pod_plan_to_json

REPOSITORY = Path(__file__).resolve().parents[4]
API_KEY = "canary-of-the-api-key"
# Longer than a loaded machine takes; a test that passes never waits for it.
PATIENCE_SECONDS = 60.0
PLAN = PodPlan(
    vllm_version="0.32",
    mode=Mode.OFF,
    gpus=1,
    tensor_parallel_size=1,
    data_parallel_size=1,
    host_pool_bytes=0,
    host_pool_copies=1,
    shares_host_pool=False,
    cpu_bytes_to_use=0,
    device_block_bytes=0,
    working_set_bytes=0,
    weights_bytes=None,
    shm_bytes=0,
    memory_bytes=0,
    drain_seconds=300,
    unpin_seconds=0,
    startup_seconds=60,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A running launcher. `folder` has what the stand-in leaves, and the termination log."""

    process: subprocess.Popen[str]
    folder: Path
    status_port: int
    engine_port: int

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.status_port}{path}", timeout=PATIENCE_SECONDS)

    def work(self) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.engine_port}/work", timeout=PATIENCE_SECONDS)

    def wait_for_stage(self, stage: str) -> None:
        wait_until(lambda: is_listening(self.status_port) and self.get("/hisparse/progress").json()["stage"] == stage)

    def wait_for(self, name: str) -> Path:
        file = self.folder / name
        wait_until(file.exists)
        return file

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        output, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, output, errors

    @property
    def termination_message(self) -> str:
        return (self.folder / "termination-log").read_text(encoding="utf-8")


@contextmanager
def launched(
    folder: Path, *, plan: PodPlan = PLAN, preflight_seconds: float = 0, is_refused: bool = False, **stand_in: Any
) -> Iterator[Launched]:
    """`stand_in`: how the engine behaves, as in stand_in_engine."""
    status_port, engine_port = free_port(), free_port()
    (folder / "plan.json").write_text(json.dumps(pod_plan_to_json(plan)), encoding="utf-8")
    (folder / "termination-log").touch()
    engine = folder / "engine"
    engine.write_text(
        f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("stand_in_engine.py")} "$@"\n', encoding="utf-8"
    )
    engine.chmod(0o755)
    told = {
        "plan_file": str(folder / "plan.json"),
        "words": [str(engine), "serve", "model", "--served-model-name", "tiny", "--port", str(engine_port)],
        "status_port": status_port,
        "termination_log": str(folder / "termination-log"),
        "preflight_seconds": preflight_seconds,
        "is_refused": is_refused,
    }
    environment = {**os.environ, "VLLM_API_KEY": API_KEY, "STAND_IN": json.dumps({"folder": str(folder), **stand_in})}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.vllm.launch.stand_in_launch", json.dumps(told)],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Launched(process=process, folder=folder, status_port=status_port, engine_port=engine_port)
    finally:
        process.kill()
        process.communicate()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s"
        time.sleep(0.05)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_running(pid: int) -> bool:
    """A zombie, too."""
    return Path(f"/proc/{pid}").exists()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
