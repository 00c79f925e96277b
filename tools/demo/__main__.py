"""`make demo`: everything from nothing to residency in `kubectl get hsd`, on a cluster of its own or on yours."""

import argparse
import asyncio
import json
import statistics
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.timeline import Timeline
from tools.demo.context import ContextCluster
from tools.demo.own import NAME, OwnCluster
from tools.demo.traffic import Outcome, read_conversations, replay
from tools.demo.watching import Seen
from tools.images import build_images

_ROOT = Path(__file__).resolve().parents[2]
_EXAMPLE = _ROOT / "examples" / "embedded.yaml"
_TRAFFIC = _ROOT / "examples" / "agent-traffic.jsonl"
_CHART = _ROOT / "helm" / "hisparse-operator"
_OPERATOR_NAMESPACE = "hisparse-system"
_NAMESPACE = "default"
_HTTP_PORT = 8000
_AGENTS = 16
_LOOK_SECONDS = 3.0
_READY_SECONDS = 180.0
_DRAINED_SECONDS = 60.0


class Cluster(Protocol):
    """What the demo needs of a cluster."""

    def kubectl(self, *arguments: str, input: str = "") -> str: ...  # noqa: A002 - subprocess's name for it
    def helm(self, *arguments: str) -> str: ...
    def load(self, *archives: Path) -> None: ...
    def service_port(self, *, namespace: str, service: str, port: int) -> Any: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 only when the demo saw all that it promises."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo", description=__doc__)
    parser.add_argument("--context", default="", help="kubectl context of an existing cluster; default: a cluster of its own")
    parser.add_argument("--operator-image", default="", help="operator image that the existing cluster can pull")
    parser.add_argument("--engine-image", default="", help="embedded engine image that the existing cluster can pull")
    parser.add_argument("action", nargs="?", choices=("up", "down"), default="up")
    options = parser.parse_args(arguments)
    timeline = Timeline()
    try:
        if options.action == "down":
            _down(options.context, timeline)
            return 0
        faults = asyncio.run(_demo(options, timeline))
    except BootstrapError as error:
        sys.stderr.write(f"\ndemo: {error}\n")
        return 1
    print(f"\n{timeline.table()}\n")
    for fault in faults:
        sys.stderr.write(f"demo: {fault}\n")
    return 1 if faults else 0


async def _demo(options: argparse.Namespace, timeline: Timeline) -> list[str]:
    cluster = _cluster(options.context, timeline)
    operator_image, engine_image = _images(options, cluster, timeline)
    _install(cluster, timeline, operator_image=operator_image, engine_image=engine_image)
    name, model = _apply_example(cluster, timeline)
    print(_report_plan(_get(cluster, name)))
    conversations = read_conversations(_TRAFFIC)
    outcome, seen = Outcome(), Seen()
    turns = sum(len(conversation.turns) for conversation in conversations)
    with cluster.service_port(namespace=_NAMESPACE, service=name, port=_HTTP_PORT) as port:
        with timeline.step("traffic", f"{len(conversations)} agents' conversations, {turns} turns, {_AGENTS} at a time"):
            started = time.monotonic()
            sending = asyncio.create_task(
                replay(conversations, base_url=f"http://127.0.0.1:{port}", model=model, concurrency=_AGENTS, outcome=outcome)
            )
            await _watch(cluster, name, sending=sending, seen=seen)
            seconds = time.monotonic() - started
        _wait_drained(cluster, name, timeline=timeline, seen=seen)
        print(_report_end(_get(cluster, name), outcome=outcome, seen=seen, seconds=seconds))
        print(_next_steps(options.context, name=name, model=model, port=port))
    return seen.missing(asked=outcome.asked, answered=outcome.answered) + outcome.failures


def _cluster(context: str, timeline: Timeline) -> Cluster:
    if context:
        timeline.say(f"cluster: the existing one of context {context!r}")
        return ContextCluster(context)
    own = OwnCluster()
    with timeline.step("cluster", "a real one-node Kubernetes in namespaces of its own"):
        own.up()
    return own


def _images(options: argparse.Namespace, cluster: Cluster, timeline: Timeline) -> tuple[str, str]:
    """References of the operator's and the engine's image, loaded where they must be."""
    if options.operator_image and options.engine_image:
        return options.operator_image, options.engine_image
    images = build_images(timeline)
    with timeline.step("load images"):
        cluster.load(*(image.archive for image in images.values()))
    return images["operator"].reference, images["embedded"].reference


def _install(cluster: Cluster, timeline: Timeline, *, operator_image: str, engine_image: str) -> None:
    repository, _, tag = operator_image.rpartition(":")
    with timeline.step("install", f"helm chart into namespace {_OPERATOR_NAMESPACE}"):
        try:
            cluster.helm(
                *("upgrade", "--install", "hisparse", str(_CHART), "--namespace", _OPERATOR_NAMESPACE, "--create-namespace"),
                *(
                    "--set",
                    f"image.repository={repository}",
                    "--set",
                    f"image.tag={tag}",
                    "--set",
                    f"engine.embeddedImage={engine_image}",
                ),
                *("--wait", "--timeout", "90s"),
            )
        except BootstrapError as error:
            pods = cluster.kubectl("-n", _OPERATOR_NAMESPACE, "get", "pods", "-o", "wide")
            logs = cluster.kubectl(
                "-n", _OPERATOR_NAMESPACE, "logs", "-l", "app.kubernetes.io/name=hisparse-operator", "--tail=20"
            )
            raise BootstrapError(f"{error}\n{pods}\n{logs}") from error


def _apply_example(cluster: Cluster, timeline: Timeline) -> tuple[str, str]:
    """Name and served model of the object, once it is Ready."""
    text = _EXAMPLE.read_text(encoding="utf-8")
    example = yaml.safe_load(text)
    name, model = example["metadata"]["name"], example["spec"]["model"]["name"]
    with timeline.step("apply", f"kubectl apply -f {_EXAMPLE.relative_to(_ROOT)}"):
        cluster.kubectl("-n", _NAMESPACE, "apply", "-f", "-", input=text)
        deadline = time.monotonic() + _READY_SECONDS
        while not _is_ready(resource := _get(cluster, name)):
            if time.monotonic() > deadline:
                raise BootstrapError(f"{name} is not Ready after {_READY_SECONDS:.0f} s:\n{_conditions(resource)}")
            time.sleep(0.5)
    print(cluster.kubectl("-n", _NAMESPACE, "get", "hsd,deployment,pods,service", "-l", "app.kubernetes.io/part-of=hisparse"))
    return name, model


async def _watch(cluster: Cluster, name: str, *, sending: "asyncio.Task[None]", seen: Seen) -> None:
    """Shows the object until all traffic is answered."""
    header = True
    while True:
        done, _ = await asyncio.wait([sending], timeout=_LOOK_SECONDS)
        seen.look(await asyncio.to_thread(_get, cluster, name))
        table = (await asyncio.to_thread(cluster.kubectl, "-n", _NAMESPACE, "get", "hsd", name, "-o", "wide")).splitlines()
        print("\n".join(table if header else table[1:]), flush=True)
        header = False
        if done:
            return sending.result()


def _wait_drained(cluster: Cluster, name: str, *, timeline: Timeline, seen: Seen) -> None:
    with timeline.step("drain", "until running requests hold nothing of the host pool"):
        deadline = time.monotonic() + _DRAINED_SECONDS
        while True:
            resource = _get(cluster, name)
            seen.look(resource)
            used = resource["status"]["residency"]["hostPool"]["usedBytes"]
            if used == 0:
                break
            if time.monotonic() > deadline:
                raise BootstrapError(f"the host pool still holds {used:,} bytes {_DRAINED_SECONDS:.0f} s after the last answer")
            time.sleep(1.0)
    print(cluster.kubectl("-n", _NAMESPACE, "get", "hsd", name, "-o", "wide"))


def _get(cluster: Cluster, name: str) -> dict[str, Any]:
    resource: dict[str, Any] = json.loads(cluster.kubectl("-n", _NAMESPACE, "get", "hsd", name, "-o", "json"))
    return resource


def _is_ready(resource: dict[str, Any]) -> bool:
    """Ready, of the current generation, and with the first numbers on it."""
    status = resource.get("status", {})
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions", []))
    return ready and status.get("observedGeneration") == resource["metadata"]["generation"] and "residency" in status


def _conditions(resource: dict[str, Any]) -> str:
    lines = []
    for condition in resource.get("status", {}).get("conditions", []):
        head = f"  {condition['type']:<20}{condition['status']:<9}{condition['reason']}"
        lines += [head, *textwrap.wrap(condition["message"], 110, initial_indent="      ", subsequent_indent="      ")]
    return "\n".join(lines) or "  (no conditions yet: is the operator running?)"


def _report_plan(resource: dict[str, Any]) -> str:
    lines = [f"  {line}" for line in resource["status"]["plan"]["arithmetic"]]
    return "\n".join(
        ["The plan, with its arithmetic (status.plan.arithmetic):", *lines, "", "Conditions:", _conditions(resource), ""]
    )


def _report_end(resource: dict[str, Any], *, outcome: Outcome, seen: Seen, seconds: float) -> str:
    hot = resource["status"]["residency"]["hot"]
    latencies = sorted(outcome.latencies_seconds) or [0.0]
    tokens = f"{outcome.prompt_tokens:,} prompt tokens, {outcome.output_tokens:,} output tokens"
    used_mib = seen.host_used_bytes / 2**20
    rows = {
        "requests answered": f"{outcome.answered} of {outcome.asked} in {seconds:.1f} s ({tokens})",
        "latency": f"p50 {statistics.median(latencies):.2f} s, slowest {latencies[-1]:.2f} s",
        "host pool, most used": f"{seen.host_used_percent} % ({used_mib:.1f} MiB), now {resource['status']['summary']['used']}",
        "residency, at most": f"{seen.mixed} requests mixed, {seen.none} with their prefix on the host only",
        "host-only pages": f"{seen.host_only_pages:,} at most",
        "hot regions": f"{hot['hits']:,} hits, {hot['misses']:,} misses ({hot.get('hitPercent', 0)} % hits)",
        "age of the numbers": f"{seen.oldest_seconds:.0f} s at most, over {seen.looks} looks",
    }
    lines = [f"  {name:<23}{text}" for name, text in rows.items()]
    return "\n".join(["Conditions:", _conditions(resource), "", "What was seen:", *lines, ""])


def _next_steps(context: str, *, name: str, model: str, port: int) -> str:
    request = json.dumps({"model": model, "prompt": "Where does my KV live?", "max_tokens": 16})
    if context:
        kubectl, down = f"kubectl --context {context}", f"make demo-down CONTEXT={context}"
        curl = f"(first: {kubectl} port-forward service/{name} {_HTTP_PORT}) curl -s localhost:{_HTTP_PORT}/v1/completions"
    else:
        kubectl, down = f"python3 -m tools.devcluster --name {NAME} kubectl", "make demo-down"
        curl = f"curl -s http://127.0.0.1:{port}/v1/completions"
    return "\n".join(
        [
            "The cluster stays up. Next:",
            f"  {kubectl} get hsd -o wide",
            f"  {kubectl} describe hsd {name}",
            f"  {kubectl} explain hsd.spec",
            f"  {curl} -H 'Content-Type: application/json' -d '{request}'",
            f"  {down}",
        ]
    )


def _down(context: str, timeline: Timeline) -> None:
    if not context:
        with timeline.step("down", "cluster and everything in it"):
            OwnCluster().cluster.down()
        return
    cluster = ContextCluster(context)
    with timeline.step("down", f"example and operator of context {context!r}; the CRD stays, as other objects may depend on it"):
        cluster.kubectl("-n", _NAMESPACE, "delete", "--ignore-not-found", "-f", str(_EXAMPLE), "--wait")
        cluster.helm("uninstall", "hisparse", "--namespace", _OPERATOR_NAMESPACE, "--ignore-not-found", "--wait")


if __name__ == "__main__":
    sys.exit(main())
