"""A stand-in for vLLM: its processes, endpoints and signals, each as told by the JSON in STAND_IN. Standard library only.

`import_lasts`: until `folder` has a file `import-may-end`, and SIGTERM ends it. `ignores_sigterm`. `serves`: a model of another
name. `crash`: its last words, with `exit_code` (-N: by a signal). `grandchild`: outlives its parent. `orphan`: ends as an orphan.
Their pids are left in `folder`. A request to /work runs until there is a file `request-may-end`.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOW: dict[str, Any] = json.loads(os.environ.get("STAND_IN", "{}"))
FOLDER = Path(HOW["folder"])
SERVED_NAME = HOW.get("serves", sys.argv[sys.argv.index("--served-model-name") + 1])
PORT = int(sys.argv[sys.argv.index("--port") + 1])
PR_SET_PDEATHSIG = 1
is_stopping = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        match self.path:
            case "/health":
                self.send(200, "")
            case "/v1/models" if self.headers["Authorization"] != "Bearer canary-of-the-api-key":
                self.send(401, "")
            case "/v1/models":
                self.send(200, json.dumps({"data": [{"id": SERVED_NAME}]}))
            case "/metrics":
                self.send(200, "vllm:num_requests_running 1\n")
            case "/work":
                (FOLDER / "request-runs").touch()
                while not (FOLDER / "request-may-end").exists():
                    time.sleep(0.05)
                self.send(200, "whole")
                (FOLDER / "request-runs").unlink()

    def send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


def leave_orphan() -> None:
    """Its parent ends first, in a group of its own: only a first process can reap it."""
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            time.sleep(0.2)
            os._exit(0)
        leave("orphan", pid)
        os._exit(0)
    os.wait()


def start_grandchild() -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    leave("grandchild", pid)


def leave(name: str, pid: int) -> None:
    """Whole, as soon as it is there."""
    (FOLDER / "pid").write_text(str(pid), encoding="ascii")
    (FOLDER / "pid").rename(FOLDER / name)


def main() -> None:
    # Where a test ends without stopping its launcher.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if HOW.get("ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (FOLDER / "started").touch()
    if HOW.get("orphan"):
        leave_orphan()
    if HOW.get("grandchild"):
        start_grandchild()
    while HOW.get("import_lasts") and not (FOLDER / "import-may-end").exists():
        time.sleep(0.05)
    print("stand-in: imported", flush=True)
    if "crash" in HOW:
        print(HOW["crash"], file=sys.stderr, flush=True)
        if HOW["exit_code"] < 0:
            os.kill(os.getpid(), -HOW["exit_code"])
        sys.exit(HOW["exit_code"])
    if not HOW.get("ignores_sigterm"):
        signal.signal(signal.SIGTERM, lambda *_: is_stopping.set())
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    is_stopping.wait()
    while (FOLDER / "request-runs").exists():
        time.sleep(0.05)
    time.sleep(0.1)  # the answer's last byte is on its way


if __name__ == "__main__":
    main()
