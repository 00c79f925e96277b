import json
import subprocess
from pathlib import Path

import pytest

from tools.devcluster.api_probe import ApiProbe
from tools.devcluster.certificates import make_certificates
from tools.devcluster.configuration import COMPONENT_NAMES, components, kubelet_configuration, write_configuration
from tools.devcluster.failure import DevClusterError
from tools.devcluster.layout import Layout, layout_of


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """With certificates and configuration as `up` makes them."""
    made = Layout(name="blue", folder=tmp_path_factory.mktemp("clusters"))
    make_certificates(made)
    write_configuration(made, cni_plugins=Path("/usr/lib/cni"))
    return made


def test_the_names_that_stop_and_start_take_are_those_of_the_components(layout: Layout) -> None:
    assert tuple(component.name for component in components(layout)) == COMPONENT_NAMES


def test_what_the_api_server_needs_does_not_wait_for_it(layout: Layout) -> None:
    early = {component.name for component in components(layout) if not component.needs_api}
    assert early == {"etcd", "containerd", "apiserver"}


def test_pods_of_two_clusters_live_in_different_cgroups(layout: Layout) -> None:
    other = Layout(name="green", folder=layout.folder)
    assert kubelet_configuration(layout)["cgroupRoot"] == "/hisparse-blue"
    assert kubelet_configuration(other)["cgroupRoot"] == "/hisparse-green"


def test_every_file_that_a_command_names_is_written(layout: Layout) -> None:
    for component in components(layout):
        for word in component.command[1:]:
            path = word.partition("=")[2] or word
            if path.startswith((str(layout.pki), str(layout.configuration))):
                assert Path(path).is_file(), f"{component.name}: {word}"


def test_a_kubelet_is_who_the_node_authorizer_expects(layout: Layout) -> None:
    subject = subprocess.run(
        ["openssl", "x509", "-in", layout.pki / "kubelet.crt", "-noout", "-subject", "-nameopt", "multiline"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "= system:nodes" in subject
    assert "= system:node:blue-node" in subject


def test_certificates_are_signed_by_the_clusters_own_authority_and_valid_for_the_forwarded_address(layout: Layout) -> None:
    verify = ["openssl", "verify", "-CAfile", f"{layout.pki}/ca.crt", "-verify_ip", "127.0.0.1", f"{layout.pki}/apiserver.crt"]
    assert subprocess.run(verify, capture_output=True, text=True, check=True).stdout.strip().endswith("OK")


def test_keys_are_readable_for_their_owner_only(layout: Layout) -> None:
    assert layout.pki.stat().st_mode & 0o077 == 0
    assert layout.inner_kubeconfig.stat().st_mode & 0o077 == 0
    assert json.loads(layout.inner_kubeconfig.read_text())["current-context"] == "blue"


def test_a_server_that_does_not_answer_is_not_ready(layout: Layout, tmp_path: Path) -> None:
    document = json.loads(layout.inner_kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"  # nobody listens on port 1
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    probe = ApiProbe.of_kubeconfig(tmp_path / "kubeconfig")
    assert not probe.is_ready()
    assert not probe.is_node_ready("blue-node")


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "..", "-a", "a-", "a" * 41, "a b"])
def test_a_name_that_is_no_host_name_is_refused(name: str) -> None:
    with pytest.raises(DevClusterError, match="lower case letters"):
        layout_of(name)
