"""`python3 -m tools.bootstrap GOAL`: makes the machine ready for a make target, and says what took how long."""

import argparse
import sys

from tools.bootstrap.environment import make_environment
from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.machine import check_demo, description, is_linux, is_root
from tools.bootstrap.packages import install_packages
from tools.bootstrap.timeline import Timeline

WORTH_A_TABLE_SECONDS = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tools.bootstrap", description="Makes the machine ready for a make target.")
    parser.add_argument("goal", choices=["demo", "test", "lint", "images", "venv"])
    parser.add_argument("--context", default="", help="demo on this kubectl context: no package is installed")
    arguments = parser.parse_args()
    timeline = Timeline()
    try:
        prepare(arguments.goal, context=arguments.context, timeline=timeline)
    except BootstrapError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; what was finished is kept, so the next call goes on from here", file=sys.stderr)
        return 130
    if timeline.elapsed_seconds > WORTH_A_TABLE_SECONDS:
        print(timeline.table())
    return 0


def prepare(goal: str, *, context: str, timeline: Timeline) -> None:
    """Packages, the virtual environment, the cluster's binaries: each where the goal needs it and it is not there."""
    own_cluster = goal in {"demo", "test"} and not context
    if goal == "demo" and own_cluster:
        check_demo()
    if goal == "test" and not (is_linux() and is_root()):
        timeline.say(f"tests on a Kubernetes of their own are skipped: they need Linux and root, this is {description()}")
    if is_linux() and is_root():
        install_packages(cluster=own_cluster, images=own_cluster or goal == "images", timeline=timeline)
    make_environment(timeline=timeline)
    if goal == "test":
        # Late, as below: it asks for locks that the other goals do without.
        from tools.upstream import prepare as prepare_upstream  # noqa: PLC0415

        prepare_upstream(timeline=timeline)
    if own_cluster and is_linux():
        # Late, and not at the top: the package is imported on Linux only.
        from tools.devcluster.binaries import program_paths  # noqa: PLC0415

        with timeline.step("binaries", "Kubernetes, etcd, kubectl, helm"):
            program_paths(report=timeline.say)


if __name__ == "__main__":
    sys.exit(main())
