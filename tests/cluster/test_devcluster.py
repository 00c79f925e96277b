"""The test cluster itself: the others stand on what is proven here."""

import json
import os
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.kit import Cluster, wait_until
from tools.devcluster import DevCluster, DevClusterError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# The pause image holds one file, so the server is the machine's own Python, mounted from the node.
_FOLDERS = {name: path for name, path in {"usr": "/usr", "lib": "/usr/lib", "lib64": "/usr/lib64"}.items() if Path(path).exists()}
_TEXT = "served from a pod"
_SERVER = f"""
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{_TEXT}")

HTTPServer(("", 8000), Handler).serve_forever()
"""


def web_pod() -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "web",
                    "image": "localhost/pause:local",
                    "imagePullPolicy": "Never",
                    "command": ["/usr/bin/python3", "-c", _SERVER],
                    "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
                    "volumeMounts": [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in _FOLDERS],
                }
            ],
            "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in _FOLDERS.items()],
        },
    }


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    """A namespace with a ready web server and its Service `web`, port 80."""
    cluster.apply(namespace, web_pod())
    service = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8000}]}
    cluster.apply(namespace, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": service})
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    return namespace


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
        return str(response.read().decode())


def test_a_service_is_reached_from_outside_through_a_forwarded_port(cluster: Cluster, web: str) -> None:
    port = cluster.box.forward(service="web", namespace=web, port="http")
    assert get(port) == _TEXT
    assert cluster.box.forward(service="web", namespace=web, port=80) == port
    with pytest.raises(DevClusterError, match=r"has no port 81; it has 80 \(http\)"):
        cluster.box.forward(service="web", namespace=web, port=81)


def test_a_program_in_the_box_reaches_pods_and_services_by_their_addresses(cluster: Cluster, web: str) -> None:
    addresses = [
        cluster.get(web, "pod", "web")["status"]["podIP"] + ":8000",
        cluster.get(web, "service", "web")["spec"]["clusterIP"] + ":80",
    ]
    for address in addresses:
        program = f"import urllib.request as u; print(u.urlopen('http://{address}/', timeout=30).read().decode())"
        assert cluster.box.exec(["/usr/bin/python3", "-c", program]) == f"{_TEXT}\n"


def test_the_kubeconfig_works_for_any_client_on_the_machine(cluster: Cluster) -> None:
    document = json.loads(cluster.box.kubeconfig.read_text())
    assert document["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
    answer = cluster.box.kubectl("version", "-o", "json")
    assert json.loads(answer)["serverVersion"]["gitVersion"] == "v1.37.2"
    with pytest.raises(DevClusterError, match="release: not found"):
        cluster.box.helm("status", "nothing-of-this-name")


def test_a_stopped_api_server_refuses_connections_and_pods_do_not_notice(cluster: Cluster, web: str) -> None:
    port = cluster.box.forward(service="web", namespace=web, port=80)
    before = cluster.get(web, "pod", "web")["status"]["containerStatuses"][0]
    cluster.box.stop_component("apiserver")
    try:
        with pytest.raises(DevClusterError, match=r"reset by peer|refused"):
            cluster.box.kubectl("get", "nodes")
        program = "import socket; print(socket.socket().connect_ex(('127.0.0.1', 443)))"
        assert cluster.box.exec(["/usr/bin/python3", "-c", program]) == "111\n"  # ECONNREFUSED
        assert get(port) == _TEXT
        assert cluster.box.components()["apiserver"]["pid"] == 0
    finally:
        cluster.box.start_component("apiserver")
        wait_until(lambda: answers(cluster), seconds=60, what=lambda: cluster.box.log_file("apiserver").read_text()[-3000:])
    after = cluster.get(web, "pod", "web")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


def answers(cluster: Cluster) -> bool:
    try:
        return cluster.box.kubectl("get", "--raw", "/readyz") == "ok"
    except DevClusterError:
        return False


def test_simulated_gpus_are_counted_by_the_scheduler(cluster: Cluster, namespace: str) -> None:
    cluster.box.set_gpus(2)
    try:
        for name, gpus in (("fits", "2"), ("waits", "1")):
            container = {"name": "pause", "image": "localhost/pause:local", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
            cluster.apply(
                namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
            )
            if name == "fits":
                cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/fits", "--timeout=60s")
        wait_until(
            lambda: "Insufficient nvidia.com/gpu" in cluster.kubectl("-n", namespace, "describe", "pod", "waits"),
            seconds=30,
            what=lambda: cluster.kubectl("-n", namespace, "describe", "pod", "waits"),
        )
    finally:
        cluster.box.set_gpus(8)


def test_a_second_cluster_stands_beside_the_first_and_leaves_nothing_behind(cluster: Cluster) -> None:
    links, mounts = machine_links(), Path("/proc/self/mounts").read_text().count("kubelet")
    second = DevCluster(name=f"beside-{os.getpid()}")
    lines: list[str] = []
    try:
        second.up(report=lines.append)
        second.up(report=lines.append)
        assert lines[-1].endswith("is already up")
        ours = cluster.box.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
        theirs = second.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
        assert ours != theirs
        assert machine_links() == links
        port = api_port(second)
    finally:
        assert second.down()
    assert not second.folder.exists()
    assert not second.down()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/hisparse-{second.name}"))
    assert str(second.folder) not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert machine_links() == links
    assert Path("/proc/self/mounts").read_text().count("kubelet") == mounts
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) != 0
    assert answers(cluster)


def api_port(box: DevCluster) -> int:
    server = json.loads(box.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return int(server.rpartition(":")[2])


def machine_links() -> list[str]:
    return [name for _, name in socket.if_nameindex()]
