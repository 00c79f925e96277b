"""The command line: one sub-command for each method of DevCluster."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from tools.bootstrap.failure import BootstrapError
from tools.devcluster.binaries import program_paths
from tools.devcluster.cluster import DevCluster, print_line
from tools.devcluster.configuration import COMPONENT_NAMES
from tools.devcluster.failure import DevClusterError
from tools.devcluster.machine import check_platform
from tools.devcluster.pause_image import pause_archive

_PASS_THROUGH = ("kubectl", "helm", "exec")
_SUMMARY_LINES = 10


def main(words: Sequence[str]) -> int:
    """The exit code; 1 with a message for everything that a person can put right."""
    own, passed = split_words(words)
    arguments = _parser().parse_args(own)
    try:
        return _run(arguments, passed)
    except BootstrapError as error:
        sys.stderr.write(f"devcluster: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("devcluster: interrupted\n")
        return 130


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those for the program behind kubectl, helm or exec, which may hold options that look like ours."""
    index = 0
    while index < len(words):
        if words[index] in _PASS_THROUGH:
            return list(words[: index + 1]), list(words[index + 1 :])
        index += 2 if words[index] == "--name" else 1
    return list(words), []


def _run(arguments: argparse.Namespace, passed: list[str]) -> int:
    cluster = DevCluster(name=arguments.name)
    if arguments.action in _PASS_THROUGH:
        _become(cluster, arguments.action, passed)
    action: Callable[[DevCluster, argparse.Namespace], int | None] = arguments.run
    return action(cluster, arguments) or 0


def _become(cluster: DevCluster, action: str, passed: list[str]) -> NoReturn:
    """This process turns into the program: a terminal, signals and the exit code go straight through."""
    if action == "exec":
        if not passed:
            raise DevClusterError("exec needs a command, for example: exec ip address")
        command, environment = cluster.inner_command(passed), dict(os.environ)
    else:
        command, environment = cluster.command(action, *passed), cluster.environment()
    os.execvpe(command[0], command, environment)  # noqa: S606  no shell is wanted


def _up(cluster: DevCluster, _: argparse.Namespace) -> None:
    cluster.up()


def _down(cluster: DevCluster, _: argparse.Namespace) -> None:
    begin_seconds = time.monotonic()
    was_there = cluster.down()
    print_line(
        f"cluster {cluster.name} is gone ({time.monotonic() - begin_seconds:.1f} s)"
        if was_there
        else f"cluster {cluster.name} is not up"
    )


def _status(cluster: DevCluster, _: argparse.Namespace) -> int:
    if not cluster.is_up():
        left = "; its box has died or is being brought up, see logs" if cluster.folder.exists() else ""
        print_line(f"cluster {cluster.name} is not up{left}")
        return 1
    print_line(f"cluster {cluster.name} is up; KUBECONFIG={cluster.kubeconfig}")
    for name, state in cluster.components().items():
        shown = "held down" if state["held"] else f"pid {state['pid']} in the box" if state["pid"] else "starting again"
        ends = f", ended {state['ends']} times" if state["ends"] else ""
        print_line(f"  {name:<20} {shown}{ends}")
    for forward in cluster.forwards():
        print_line(f"  127.0.0.1:{forward.listen_port:<10} {forward.name} ({forward.address}:{forward.port})")
    return 0


def _load(cluster: DevCluster, arguments: argparse.Namespace) -> None:
    for archive in arguments.archive:
        begin_seconds = time.monotonic()
        references = cluster.load(archive)
        print_line(f"[{time.monotonic() - begin_seconds:6.1f} s] loaded {', '.join(references)}")


def _gpus(cluster: DevCluster, arguments: argparse.Namespace) -> None:
    cluster.set_gpus(arguments.count)
    print_line(f"node {cluster.node_name} offers {arguments.count} GPUs")


def _forward(cluster: DevCluster, arguments: argparse.Namespace) -> None:
    service, _, namespace = arguments.service.partition(".")
    port = cluster.forward(service=service, namespace=namespace or "default", port=arguments.port, listen_port=arguments.listen)
    print_line(f"127.0.0.1:{port}")


def _stop(cluster: DevCluster, arguments: argparse.Namespace) -> None:
    cluster.stop_component(arguments.component)


def _start(cluster: DevCluster, arguments: argparse.Namespace) -> None:
    cluster.start_component(arguments.component)


def _logs(cluster: DevCluster, arguments: argparse.Namespace) -> None:
    if arguments.component:
        sys.stdout.write(cluster.log_file(arguments.component).read_text(errors="replace"))
        return
    names = cluster.log_names()
    if not names:
        raise DevClusterError(f"cluster {cluster.name} has no logs: it is not up")
    for name in names:
        lines = cluster.log_file(name).read_text(errors="replace").splitlines()[-_SUMMARY_LINES:]
        print_line("\n".join([f"--- {name}", *lines]))


def _build(_: DevCluster, __: argparse.Namespace) -> None:
    check_platform()
    begin_seconds = time.monotonic()

    def report(text: str) -> None:
        print_line(f"[{time.monotonic() - begin_seconds:6.1f} s] {text}")

    for name, path in program_paths(report=report).items():
        report(f"{name}: {path}")
    report(f"pause image: {pause_archive(report=report)}")


def _parser() -> argparse.ArgumentParser:
    text = "which cluster (default: demo); several can be up at once"
    name = argparse.ArgumentParser(add_help=False)
    name.add_argument(
        "--name", default=argparse.SUPPRESS, help=text
    )  # no default: it would cover a --name in front of the sub-command
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.devcluster", description="A real one-node Kubernetes in namespaces of its own, from binaries."
    )
    parser.add_argument("--name", default="demo", help=text)
    actions = parser.add_subparsers(dest="action", required=True, metavar="SUBCOMMAND")

    def add(
        action: str, help_text: str, run: Callable[[DevCluster, argparse.Namespace], int | None] | None = None
    ) -> argparse.ArgumentParser:
        added = actions.add_parser(action, help=help_text, description=help_text, parents=[name])
        added.set_defaults(run=run)
        return added

    add("up", "bring the cluster up; does nothing when it is up", _up)
    add("down", "end it and remove every trace", _down)
    add("status", "say what runs; exit code 1 when it is not up", _status)
    add("kubectl", "kubectl ARGS...: kubectl on this cluster (put --name before kubectl)")
    add("helm", "helm ARGS...: helm on this cluster (put --name before helm)")
    add("exec", "exec CMD...: run a program inside of the box, where pods and Services have their addresses")
    add("load", "import image archives into the node", _load).add_argument("archive", nargs="+", help="an OCI or docker archive")
    gpus = add("gpus", "simulate GPUs on the node", _gpus)
    gpus.add_argument("count", type=int, help="how many nvidia.com/gpu the node offers")
    logs = add("logs", "print the log of a component, or the end of all logs", _logs)
    logs.add_argument("component", nargs="?", help=f"{', '.join(COMPONENT_NAMES)}, box or forwarder")
    forward = add("forward", "make a Service reachable on 127.0.0.1 until down; prints the address", _forward)
    forward.add_argument("service", help="SERVICE or SERVICE.NAMESPACE")
    forward.add_argument("port", help="number or name of the Service's port")
    forward.add_argument("--listen", type=int, default=0, metavar="PORT", help="port of 127.0.0.1 (default: a free one)")
    add("stop", "kill a component and keep it down", _stop).add_argument("component", choices=COMPONENT_NAMES)
    add("start", "let a stopped component run again", _start).add_argument("component", choices=COMPONENT_NAMES)
    add("build", "build and cache the binaries only", _build)
    return parser
