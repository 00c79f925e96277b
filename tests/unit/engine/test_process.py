"""`hisparse serve` as a process: what it says and how it ends."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hisparse_runtime.engine.build import EngineOptions
from hisparse_runtime.engine.process import ServeOptions, StartError, serve
from tests.unit.engine.bare_engine import BLOCK_BYTES, CONFIG


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


COMMAND = "from hisparse_runtime.cli import app; app()"
# The first step of the engine fails, as if by a bug.
BROKEN_COMMAND = (
    """
from hisparse_runtime.engine.executor import ModelExecutor
def broken(self, plan):
    raise ZeroDivisionError("no rows")
ModelExecutor.submit = broken
"""
    + COMMAND
)


def start(config_file: Path, *, port: int, code: str = COMMAND, **changes: Any) -> subprocess.Popen[str]:
    options = {
        "model-config": config_file,
        "served-model-name": "tiny",
        "port": port,
        "max-model-len": 1024,
        "max-num-seqs": 4,
        "max-num-batched-tokens": 64,
        "gpu-kv-bytes": BLOCK_BYTES * 300,
        "host-pool-gib": 0.002,
        "cpu-bytes-to-use": 1 << 20,
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-c", code, "serve", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"}
    )


@contextlib.contextmanager
def serving(config_file: Path, **changes: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    port = free_port()
    process = start(config_file, port=port, **changes)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for_health(process, url)
        yield process, url
    finally:
        process.kill()
        process.communicate()


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr of a process that ends by itself."""
    try:
        return process.wait(timeout=60), process.communicate()[1]
    finally:
        process.kill()
        process.communicate()


def wait_for_health(process: subprocess.Popen[str], url: str) -> None:
    for _ in range(600):
        assert process.poll() is None, process.communicate()[1]
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url + "/health").status_code == 200:
                return
        time.sleep(0.1)
    pytest.fail("the server does not become healthy")


def running(url: str) -> int:
    return int(httpx.get(url + "/hisparse/residency").json()["requests"]["running"])


def wait_until_running(url: str, count: int) -> None:
    for _ in range(600):
        if running(url) == count:
            return
        time.sleep(0.02)
    pytest.fail(f"never {count} running requests")


def test_drains_on_sigterm_while_refusing_new_requests(config_file: Path) -> None:
    with serving(config_file) as (process, url):
        body = {"prompt": "hello", "max_tokens": 700, "stream": True}
        with httpx.stream("POST", url + "/v1/completions", json=body, timeout=60) as answer:
            events = answer.iter_lines()
            next(events)
            process.send_signal(signal.SIGTERM)
            for _ in range(100):
                refusal = httpx.post(url + "/v1/completions", json={"prompt": "x"})
                if refusal.status_code == 503:
                    break
            assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "1")
            assert httpx.get(url + "/health").json() == {"status": "draining"}
            rest = [line for line in events if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        assert process.wait(timeout=30) == 0
        assert process.communicate()[1] == ""


def test_requests_that_do_not_finish_in_time_are_told_and_the_exit_is_clean(config_file: Path) -> None:
    with serving(config_file, shutdown_timeout=0.2) as (process, url):
        body = {"prompt": "hello", "max_tokens": 1000, "stream": True}
        with httpx.stream("POST", url + "/v1/completions", json=body, timeout=60) as answer:
            events = answer.iter_lines()
            next(events)
            process.send_signal(signal.SIGTERM)
            last = [line for line in events if line][-1]
        assert "the server shut down before the request was complete" in last
        assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_leaves_ends_its_request(config_file: Path, stream: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    with serving(config_file) as (_process, url):
        connection = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])))
        body = json.dumps({"prompt": "x", "max_tokens": 1000, "stream": stream})
        head = f"POST /v1/completions HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        wait_until_running(url, 1)
        connection.close()
        wait_until_running(url, 0)
        assert httpx.get(url + "/hisparse/residency").json()["requests"]["finished"] == 0


def test_engine_failure_ends_the_process_with_its_reason(config_file: Path) -> None:
    with serving(config_file, code=BROKEN_COMMAND) as (process, url):
        answer = httpx.post(url + "/v1/completions", json={"prompt": "x"}, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_error")
        assert process.wait(timeout=30) == 1
        assert process.communicate()[1].endswith("hisparse serve: the engine failed: ZeroDivisionError: no rows\n")


def test_wrong_start_is_one_line_and_exit_code_2(config_file: Path) -> None:
    returncode, errors = end_of(start(config_file, port=free_port(), host_pool_gib=0.0001))
    assert returncode == 2
    assert errors.startswith(
        "hisparse serve: host pool 104.9 KiB holds 34 blocks of 16 tokens; --max-model-len 1,024 needs 66: raise --host-pool-gib"
    )
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu_kv_bytes": BLOCK_BYTES * 20}, "has 20 blocks of 1.5 KiB; one request of --max-model-len 1,024 needs 83"),
        ({"max_model_len": 2000}, "--max-model-len 2000 exceeds the model's max_position_embeddings 1024"),
        ({"device_buffer_size": 3}, "--device-buffer-size is 3 and the model's index_topk 16"),
        ({"host_pool_bytes": 1 << 50}, "has .* MiB free: host pool"),
    ],
)
def test_sizes_that_cannot_work_are_refused_before_the_first_request(
    config_file: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(StartError, match=message):
        serve(options_for(config_file, **changes))


def test_unusable_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(StartError, match=r"config.json: No such file or directory"):
        serve(options_for(path))
    path.write_text(json.dumps({name: value for name, value in CONFIG.items() if name != "rope_theta"}))
    with pytest.raises(StartError, match=r"config.json has no 'rope_theta'"):
        serve(options_for(path))


def test_port_in_use_is_told(config_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        with pytest.raises(StartError, match=f"--port {port}: Address already in use"):
            serve(options_for(config_file, port=port))


def options_for(config_file: Path, *, port: int = 1, **changes: Any) -> ServeOptions:
    engine = EngineOptions(
        max_model_len=1024,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        gpu_kv_bytes=BLOCK_BYTES * 300,
        host_pool_bytes=2 << 20,
        cpu_bytes_to_use=1 << 20,
    )
    return ServeOptions(
        model_config=config_file,
        model_name="tiny",
        host="127.0.0.1",
        port=port,
        shutdown_timeout_seconds=1,
        engine=replace(engine, **changes),
    )
