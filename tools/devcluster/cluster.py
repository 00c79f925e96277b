"""The cluster as an object: up, use, down."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.devcluster import cgroups, machine, processes
from tools.devcluster.binaries import link_programs, program_paths
from tools.devcluster.certificates import make_certificates, write_kubeconfig
from tools.devcluster.configuration import COMPONENT_NAMES
from tools.devcluster.environment import inner_environment, outer_environment
from tools.devcluster.failure import DevClusterError
from tools.devcluster.forwards import Forward, last_port, live_forwards, open_forward
from tools.devcluster.layout import API_PORT, GPU_RESOURCE, REPOSITORY, clusters_folder, layout_of
from tools.devcluster.pause_image import pause_archive
from tools.devcluster.processes import ProcessIdentity
from tools.devcluster.supervisor import ComponentState

Report = Callable[[str], None]

_API_FORWARD = "kubernetes-api"
_UP_SECONDS = 240.0
_MOST_ENDS = 5  # of one component during `up`: it will not get better
_LAST_LINES = 12


def print_line(text: str) -> None:
    """The default report: a first `up` may build for minutes, and must not look dead in a pipe either."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class DevCluster:
    """One cluster by its name. Objects hold no state: another process may use the same cluster through its own object."""

    def __init__(self, *, name: str = "demo") -> None:
        self._layout = layout_of(name)

    @property
    def name(self) -> str:
        return self._layout.name

    @property
    def node_name(self) -> str:
        return self._layout.node_name

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig for programs outside of the box."""
        return self._layout.kubeconfig

    @property
    def folder(self) -> Path:
        """Where state and logs lie; gone after `down`."""
        return self._layout.folder

    def is_up(self) -> bool:
        return self._box() is not None and self._layout.ready_file.exists()

    def up(self, *, report: Report = print_line) -> None:
        """Brings the cluster up and returns when pods can be made. A cluster that is up already stays as it is.

        When it fails, the error holds the last lines of every log, the processes are ended and the folder stays for a look.
        """
        begin_seconds = time.monotonic()

        def say(text: str) -> None:
            report(f"[{time.monotonic() - begin_seconds:6.1f} s] {text}")

        machine.check_platform()
        machine.check_programs()
        machine.check_disk(clusters_folder())
        with self._starting():
            if self.is_up():
                self._forward_api()
                say(f"cluster {self.name} is already up")
                return
            if any(self._layout.folder.iterdir()):
                say(f"cluster {self.name} did not end by `down`: removing what it left")
                self._tear_down()
                self._clear_folder()
            programs, pause = program_paths(report=say), pause_archive(report=say)
            try:
                self._start_box(programs=programs, pause=pause, begin_seconds=begin_seconds)
                say("box started")
                self._follow(report=report)
                self._forward_api()
            except DevClusterError as error:
                self._tear_down()
                raise DevClusterError(
                    f"{error}\n{self._last_lines()}\nThe logs stay in {self._layout.logs} until the next up or down."
                ) from error
            except BaseException:
                self._tear_down()
                raise
        say(f"cluster {self.name} is up; KUBECONFIG={self.kubeconfig}")

    def down(self) -> bool:
        """Ends everything and removes every trace. False when there was nothing."""
        machine.check_platform()
        if not self._layout.folder.exists():
            return False
        self._tear_down()
        shutil.rmtree(self._layout.folder)
        return True

    # `input` shadows the builtin in these three: it is subprocess's name for the same thing.

    def kubectl(self, *arguments: str, input: str | None = None, timeout_seconds: float | None = None) -> str:  # noqa: A002
        """Output of kubectl on this cluster. A failure is a DevClusterError with what kubectl said."""
        return _output(
            self.command("kubectl", *arguments), environment=self.environment(), stdin=input, timeout_seconds=timeout_seconds
        )

    def helm(self, *arguments: str, input: str | None = None, timeout_seconds: float | None = None) -> str:  # noqa: A002
        """Output of helm on this cluster."""
        return _output(
            self.command("helm", *arguments), environment=self.environment(), stdin=input, timeout_seconds=timeout_seconds
        )

    def exec(self, command: Sequence[str | Path], *, input: str | None = None, timeout_seconds: float | None = None) -> str:  # noqa: A002
        """Output of a program that runs inside of the box, in the present folder: Services and pods have addresses there."""
        return _output(self.inner_command(command), environment=dict(os.environ), stdin=input, timeout_seconds=timeout_seconds)

    def load(self, *archives: str | Path) -> list[str]:
        """Imports OCI or docker archives into the node; gives the images' references."""
        references: list[str] = []
        for archive in map(Path, archives):
            # By standard input, because the box does not see the machine's /run and /var/log.
            try:
                with archive.open("rb") as content:
                    done = subprocess.run(
                        self.inner_command(["ctr", "--namespace", "k8s.io", "images", "import", "-"]),
                        stdin=content,
                        capture_output=True,
                        text=True,
                        check=False,
                    )
            except OSError as error:
                raise DevClusterError(f"{archive} cannot be read: {error.strerror}") from error
            names = [words[1] for line in done.stdout.splitlines() if (words := line.split()) and words[0] == "unpacking"]
            if done.returncode or not names:
                raise DevClusterError(
                    f"{archive} was not imported; is it an OCI or docker archive with an image name?"
                    f"\n{(done.stderr or done.stdout).strip()}"
                )
            references += names
        return references

    def set_gpus(self, count: int, *, timeout_seconds: float = 60) -> None:
        """Gives the node `count` simulated GPUs and waits until they can be requested."""
        if count < 0:
            raise DevClusterError(f"{count} GPUs: the number cannot be negative")
        patch = json.dumps({"status": {"capacity": {GPU_RESOURCE: str(count)}}})
        self.kubectl("patch", "node", self.node_name, "--subresource=status", "--type=merge", "-p", patch)
        deadline = time.monotonic() + timeout_seconds
        while (seen := self._allocatable_gpus()) != count:
            if time.monotonic() > deadline:
                raise DevClusterError(
                    f"{timeout_seconds:.0f} s after the patch the node offers {seen} GPUs, not {count}; see the kubelet's log"
                )
            time.sleep(0.2)

    def forward(self, *, service: str, port: int | str, namespace: str = "default", listen_port: int = 0) -> int:
        """A port of 127.0.0.1 that reaches a Service's `port` (number or name) until `down`; asked again, the same one."""
        found = json.loads(self.kubectl("get", "service", service, "--namespace", namespace, "-o", "json"))["spec"]
        address = found.get("clusterIP", "")
        if address in {"", "None"}:
            raise DevClusterError(
                f"service {namespace}/{service} has no address to forward to (headless or external); name one with a cluster IP"
            )
        numbers = [entry["port"] for entry in found["ports"] if str(port) in {str(entry["port"]), entry.get("name")}]
        if not numbers:
            offered = ", ".join(
                f"{entry['port']} ({entry['name']})" if entry.get("name") else str(entry["port"]) for entry in found["ports"]
            )
            raise DevClusterError(f"service {namespace}/{service} has no port {port}; it has {offered}")
        return self._forward(
            f"{namespace}.{service}.{numbers[0]}", address=address, port=numbers[0], listen_port=listen_port
        ).listen_port

    def stop_component(self, component: str, *, timeout_seconds: float = 10) -> None:
        """SIGKILL, and keeps it down until `start_component`. What it had started goes on: pods do not notice."""
        self._hold(component, held=True, timeout_seconds=timeout_seconds)

    def start_component(self, component: str, *, timeout_seconds: float = 10) -> None:
        """Lets it run again and returns when its process is there; whether it answers is another matter."""
        self._hold(component, held=False, timeout_seconds=timeout_seconds)

    def components(self) -> dict[str, ComponentState]:
        """What runs; empty when the cluster is not up."""
        try:
            states: dict[str, ComponentState] = json.loads(self._layout.components_file.read_text())
        except FileNotFoundError:
            return {}
        return states if self._box() else {}

    def forwards(self) -> list[Forward]:
        """The forwarded ports that work now."""
        return live_forwards(self._layout)

    def log_file(self, component: str) -> Path:
        path = self._layout.log_of(component)
        if not path.exists():
            known = ", ".join(sorted(found.stem for found in self._layout.logs.glob("*.log")))
            raise DevClusterError(f"no log of {component!r} in cluster {self.name}; there are: {known or 'none, it is not up'}")
        return path

    def log_names(self) -> list[str]:
        return sorted(path.stem for path in self._layout.logs.glob("*.log"))

    def program(self, name: str) -> Path:
        """Path of one of the cluster's own programs, such as kubectl; run it with `environment()`."""
        self._pid_one()  # says so when the cluster is not up
        return self._layout.bin / name

    def command(self, program: str, *arguments: str) -> list[str]:
        """A command line for one of the cluster's own programs outside of the box; run it with `environment()`."""
        return [str(self.program(program)), *arguments]

    def environment(self) -> dict[str, str]:
        """The environment for kubectl, helm and other clients outside of the box."""
        return outer_environment(self._layout)

    def inner_command(self, command: Sequence[str | Path]) -> list[str]:
        """A command line that runs `command` inside of the box, with the cluster's programs on PATH."""
        pid = self._pid_one().pid
        inner = inner_environment(self._layout)
        settings = [f"{key}={value}" for key, value in inner.items() if os.environ.get(key) != value]
        enter = ["nsenter", "--target", str(pid), "--mount", "--uts", "--net", "--pid", "--"]
        return [*enter, "env", f"--chdir={Path.cwd()}", *settings, *(str(word) for word in command)]

    # --- the box

    def _box(self) -> ProcessIdentity | None:
        """The unshare process around the box, when it lives."""
        box = processes.read_identity(self._layout.box_file)
        return box if box and box.is_alive() else None

    def _pid_one(self) -> ProcessIdentity:
        """Pid 1 of the box, by its number on the machine."""
        box = self._box()
        inner = processes.first_child(box) if box else None
        if inner is None:
            state = "has died; see its logs, then run up again" if self._layout.folder.exists() else "is not up; run up first"
            raise DevClusterError(f"cluster {self.name} {state} (python3 -m tools.devcluster --name {self.name} up)")
        return inner

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Only one `up` of a cluster at a time; the folder exists inside."""
        self._layout.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._layout.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DevClusterError(f"cluster {self.name} is being brought up by another process; wait for it") from None
            yield
        finally:
            os.close(descriptor)
            if self._layout.folder.exists() and not any(self._layout.folder.iterdir()):
                self._layout.folder.rmdir()

    def _start_box(self, *, programs: Mapping[str, Path], pause: Path, begin_seconds: float) -> None:
        layout = self._layout
        for folder in (layout.logs, layout.held, layout.forwards):
            folder.mkdir()
        layout.timeline.touch()
        link_programs(programs, folder=layout.bin)
        make_certificates(layout)
        machine.keep_settings(self.name, folder=clusters_folder())
        cgroups.make_subtree(layout.cgroup, hierarchies=cgroups.machine_hierarchies())
        namespaces = ["--net", "--uts", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        box = [sys.executable, "-m", "tools.devcluster.box", str(layout.folder), str(pause), str(begin_seconds)]
        identity = processes.start_daemon(
            ["unshare", *namespaces, *box],
            log=layout.log_of("box"),
            pid_file=layout.folder / "box.pid",
            environment={"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1", "PATH": machine.search_path()},
        )
        identity.write(layout.box_file)

    def _follow(self, *, report: Report) -> None:
        """Passes the box's timeline on until it is ready."""
        layout = self._layout
        deadline = time.monotonic() + _UP_SECONDS
        with layout.timeline.open() as timeline:
            while True:
                is_ready = layout.ready_file.exists()  # before the last look at the timeline, so that no line is missed
                for line in timeline:
                    report(line.rstrip())
                if is_ready:
                    return
                if self._box() is None:
                    raise DevClusterError(f"cluster {self.name}: the box ended while it was being brought up")
                failing = [name for name, state in self.components().items() if state["ends"] >= _MOST_ENDS]
                if failing:
                    raise DevClusterError(f"cluster {self.name}: {failing[0]} ended {_MOST_ENDS} times")
                if time.monotonic() > deadline:
                    raise DevClusterError(
                        f"cluster {self.name} is not ready after {_UP_SECONDS:.0f} s; the timeline says how far it came"
                    )
                time.sleep(0.05)

    def _tear_down(self) -> None:
        """Ends processes and removes what lies outside of the folder. Mounts, links and rules go with the namespaces."""
        for forward in self.forwards():
            processes.end(forward.process)
        box = self._box()
        if box:
            inner = processes.first_child(box)
            if inner:
                processes.end(inner)  # the kernel ends the rest of its pid namespace before it is gone
            processes.end(box)
        cgroups.remove_subtree(self._layout.cgroup, hierarchies=cgroups.machine_hierarchies())
        machine.restore_settings(self.name, folder=clusters_folder())

    def _clear_folder(self) -> None:
        """The folder itself stays: it is locked."""
        for path in self._layout.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _last_lines(self) -> str:
        parts = [("timeline", self._layout.timeline), *((path.stem, path) for path in sorted(self._layout.logs.glob("*.log")))]
        blocks = []
        for name, path in parts:
            lines = path.read_text(errors="replace").splitlines()[-_LAST_LINES:] if path.exists() else []
            blocks += [f"--- {name}", *(f"    {line[:400]}" for line in lines)]
        return "\n".join(blocks)

    # --- components and ports

    def _hold(self, component: str, *, held: bool, timeout_seconds: float) -> None:
        if component not in COMPONENT_NAMES:
            raise DevClusterError(f"no component {component!r}; there are {', '.join(COMPONENT_NAMES)}")
        pid_one = self._pid_one()
        marker = self._layout.held / component
        if held:
            marker.touch()
        else:
            marker.unlink(missing_ok=True)
        os.kill(pid_one.pid, signal.SIGUSR1)
        deadline = time.monotonic() + timeout_seconds
        while (state := self.components().get(component)) is None or state["held"] != held or (state["pid"] == 0) != held:
            if time.monotonic() > deadline:
                wanted = "down" if held else "up"
                raise DevClusterError(f"{component} is not {wanted} after {timeout_seconds:.0f} s: {state}; see its log")
            time.sleep(0.02)

    def _allocatable_gpus(self) -> int:
        node = json.loads(self.kubectl("get", "node", self.node_name, "-o", "json"))
        return int(node["status"]["allocatable"].get(GPU_RESOURCE, "0"))

    def _forward_api(self) -> None:
        """The API server's port, and the kubeconfig that names it."""
        port = last_port(self._layout, name=_API_FORWARD)
        forward = self._forward(_API_FORWARD, address="127.0.0.1", port=API_PORT, listen_port=port)
        write_kubeconfig(self.kubeconfig, server=f"https://127.0.0.1:{forward.listen_port}", client="admin", layout=self._layout)

    def _forward(self, name: str, *, address: str, port: int, listen_port: int) -> Forward:
        pid = self._pid_one().pid
        return open_forward(layout=self._layout, box_pid=pid, name=name, address=address, port=port, listen_port=listen_port)


def _output(command: Sequence[str], *, environment: Mapping[str, str], stdin: str | None, timeout_seconds: float | None) -> str:
    feed = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=timeout_seconds, **feed
        )
    except subprocess.TimeoutExpired as error:
        raise DevClusterError(f"no end after {timeout_seconds:.0f} s: {' '.join(command)}") from error
    if done.returncode:
        raise DevClusterError(f"exit code {done.returncode}: {' '.join(command)}\n{(done.stderr or done.stdout).strip()}")
    return str(done.stdout)
