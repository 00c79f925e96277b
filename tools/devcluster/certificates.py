"""Certificates and kubeconfigs of one cluster, made by openssl: a CA, and a certificate with an elliptic key for each part."""

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.devcluster.failure import DevClusterError
from tools.devcluster.layout import API_PORT, API_SERVICE_IP, NODE_IP, Layout

_VALID_DAYS = "365"


@dataclass(frozen=True, slots=True)
class Certificate:
    """`subject` is who the holder is for RBAC: CN the user, O the group."""

    name: str
    subject: str
    alternative_names: str = ""


def certificates_of(layout: Layout) -> list[Certificate]:
    services = "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
    return [
        # 127.0.0.1 serves the box itself and the forwarder's address outside of it
        Certificate("apiserver", "/CN=kube-apiserver", f"{services},DNS:localhost,IP:127.0.0.1,IP:{NODE_IP},IP:{API_SERVICE_IP}"),
        Certificate("apiserver-to-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client"),
        Certificate("admin", "/O=system:masters/CN=admin"),
        Certificate("controller-manager", "/CN=system:kube-controller-manager"),
        Certificate("scheduler", "/CN=system:kube-scheduler"),
        Certificate("proxy", "/CN=system:kube-proxy"),
        # The node authorizer knows a kubelet by exactly this form.
        Certificate("kubelet", f"/O=system:nodes/CN=system:node:{layout.node_name}", f"DNS:{layout.node_name},IP:{NODE_IP}"),
    ]


CLIENTS = ("admin", "controller-manager", "scheduler", "proxy", "kubelet")


def make_certificates(layout: Layout) -> None:
    """Fills `layout.pki`, with a kubeconfig for each client inside of the box."""
    layout.pki.mkdir(mode=0o700, parents=True)
    _make_authority(layout.pki)
    for certificate in certificates_of(layout):
        _sign(certificate, folder=layout.pki)
    for client in CLIENTS:
        write_kubeconfig(
            layout.pki / f"{client}.kubeconfig", server=f"https://127.0.0.1:{API_PORT}", client=client, layout=layout
        )


def write_kubeconfig(path: Path, *, server: str, client: str, layout: Layout) -> None:
    """Self-contained, so it can be copied; JSON is YAML."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": layout.name,
        "clusters": [
            {"name": layout.name, "cluster": {"server": server, "certificate-authority-data": _encoded(layout.pki / "ca.crt")}}
        ],
        "users": [
            {
                "name": f"{layout.name}-{client}",
                "user": {
                    "client-certificate-data": _encoded(layout.pki / f"{client}.crt"),
                    "client-key-data": _encoded(layout.pki / f"{client}.key"),
                },
            }
        ],
        "contexts": [{"name": layout.name, "context": {"cluster": layout.name, "user": f"{layout.name}-{client}"}}],
    }
    temporary = path.with_suffix(".new")
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(document, indent=2) + "\n")
    temporary.replace(path)


def _make_authority(folder: Path) -> None:
    _make_key(folder / "ca.key")
    _openssl(
        "req",
        "-x509",
        "-new",
        "-key",
        folder / "ca.key",
        "-subj",
        "/CN=devcluster-ca",
        "-days",
        _VALID_DAYS,
        "-out",
        folder / "ca.crt",
    )
    _make_key(folder / "service-accounts.key")
    _openssl("ec", "-in", folder / "service-accounts.key", "-pubout", "-out", folder / "service-accounts.pub")


def _sign(certificate: Certificate, *, folder: Path) -> None:
    key, request, extensions = (folder / f"{certificate.name}.{suffix}" for suffix in ("key", "csr", "ext"))
    lines = ["keyUsage=critical,digitalSignature", "extendedKeyUsage=serverAuth,clientAuth"]
    if certificate.alternative_names:
        lines.append(f"subjectAltName={certificate.alternative_names}")
    extensions.write_text("\n".join(lines) + "\n")
    _make_key(key)
    _openssl("req", "-new", "-key", key, "-subj", certificate.subject, "-out", request)
    authority = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial")
    contents = ("-in", request, "-extfile", extensions, "-days", _VALID_DAYS)
    _openssl("x509", "-req", *authority, *contents, "-out", folder / f"{certificate.name}.crt")
    request.unlink()
    extensions.unlink()


def _make_key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DevClusterError(f"openssl {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}")


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
