"""What kind of machine this is, and what to do on one that cannot carry a Kubernetes of its own."""

import os
import sys

from tools.bootstrap.failure import BootstrapError


def is_linux() -> bool:
    return sys.platform.startswith("linux")


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def description() -> str:
    """`darwin`, or `linux as uid 1000`."""
    return f"linux as uid {os.geteuid()}" if is_linux() else sys.platform


def check_demo() -> None:
    if is_linux() and is_root():
        return
    again = "run it with sudo, or " if is_linux() else ""
    raise BootstrapError(
        f"the demo's own Kubernetes needs Linux and root (namespaces, mounts, cgroups); this is {description()}.\n"
        f"Next step: {again}use a cluster that you have:\n"
        "    make demo CONTEXT=<kubectl context>      (`kubectl config get-contexts` lists them)"
    )
