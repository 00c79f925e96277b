"""What the chart installs, rendered by helm: rights, names, the pod's contract with the operator, refusals."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.conftest import CHART, REPOSITORY, Render

CRD = REPOSITORY / "crds" / "hisparsedeployments.yaml"


def kinds(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] == kind]


def rights(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of every rule."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def operator_role(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (role,) = [item for item in kinds(objects, "ClusterRole") if item["metadata"]["name"] == "system:demo-hisparse-operator"]
    return role


CAPACITY = {("", resource, verb) for resource in ("nodes", "pods") for verb in ("list", "watch")}
OBJECTS = {
    *(("hisparse.dev", "hisparsedeployments", verb) for verb in ("get", "list", "watch")),
    ("hisparse.dev", "hisparsedeployments/status", "patch"),
    *(("apps", "deployments", verb) for verb in ("get", "list", "watch", "create", "patch")),
    *(("", resource, verb) for resource in ("configmaps", "services") for verb in ("get", "create", "patch")),
    *(("", "events", verb) for verb in ("create", "patch")),
}


def test_operator_has_exactly_the_rights_it_uses(render: Render) -> None:
    assert rights(operator_role(render())) == CAPACITY | OBJECTS


def test_watched_namespaces_get_roles_and_only_capacity_stays_cluster_wide(render: Render) -> None:
    objects = render("watchNamespaces={team-a,team-b}")
    assert rights(operator_role(objects)) == CAPACITY
    roles = kinds(objects, "Role")
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    assert all(rights(role) == OBJECTS for role in roles)
    account = {"kind": "ServiceAccount", "name": "demo-hisparse-operator", "namespace": "system"}
    bindings = [*kinds(objects, "RoleBinding"), *kinds(objects, "ClusterRoleBinding")]
    assert [binding["subjects"] for binding in bindings] == [[account]] * 3


@pytest.mark.parametrize("sets", [(), ("watchNamespaces={team-a}",), ("rbac.ownerReferencesPermissionEnforcement=true",)])
def test_no_role_has_wildcards_secrets_or_a_way_into_pods(render: Render, sets: tuple[str, ...]) -> None:
    objects = render(*sets)
    granted = {right for kind in ("ClusterRole", "Role") for role in kinds(objects, kind) for right in rights(role)}
    assert granted
    for group, resource, verb in granted:
        assert "*" not in (group, resource, verb)
        assert resource not in {"secrets", "pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token"}
        assert verb not in {"escalate", "bind", "impersonate"}


def test_strict_owner_references_add_one_right(render: Render) -> None:
    with_rule = rights(operator_role(render("rbac.ownerReferencesPermissionEnforcement=true")))
    assert with_rule - CAPACITY - OBJECTS == {("hisparse.dev", "hisparsedeployments/finalizers", "update")}


def test_view_reads_edit_and_admin_write(render: Render) -> None:
    roles = kinds(render(), "ClusterRole")
    verbs = {
        name: {verb for _, resource, verb in rights(role) if resource == "hisparsedeployments"}
        for role in roles
        for name in ("view", "edit", "admin")
        if role["metadata"]["labels"].get(f"rbac.authorization.k8s.io/aggregate-to-{name}") == "true"
    }
    reading = {"get", "list", "watch"}
    writing = reading | {"create", "update", "patch", "delete", "deletecollection"}
    assert verbs == {"view": reading, "edit": writing, "admin": writing}


def test_installed_crd_is_the_generated_one_and_is_kept(render: Render) -> None:
    (crd,) = kinds(render(), "CustomResourceDefinition")
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == yaml.safe_load(CRD.read_text(encoding="utf-8"))


def test_charts_copy_of_the_crd_is_current() -> None:
    assert (CHART / "files" / CRD.name).read_bytes() == CRD.read_bytes(), "next step: make crds"


def test_crd_can_be_left_out_or_go_with_the_release(render: Render) -> None:
    assert not kinds(render("crds.install=false"), "CustomResourceDefinition")
    (crd,) = kinds(render("crds.keep=false"), "CustomResourceDefinition")
    assert "annotations" not in crd["metadata"]


def test_pod_runs_as_nobody_with_nothing_writable_but_tmp(render: Render) -> None:
    (deployment,) = kinds(render(), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108  the pod's own
    assert container["resources"] == {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}


def test_one_operator_at_a_time_with_probes_and_time_to_end(render: Render) -> None:
    (deployment,) = kinds(render(), "Deployment")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] == 45
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]


def test_values_reach_the_operator_as_its_environment(render: Render) -> None:
    objects = render(
        "watchNamespaces={b,a}", "logLevel=DEBUG", "scrapeSeconds=7", "engine.embeddedImage=registry.example/engine:7"
    )
    (deployment,) = kinds(objects, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {item["name"]: item.get("value") for item in container["env"]}
    assert environment == {
        "POD_NAMESPACE": None,
        "HISPARSE_EMBEDDED_IMAGE": "registry.example/engine:7",
        "HISPARSE_VLLM_IMAGE": "hisparse-runtime:0.1.0-vllm{version}",
        "HISPARSE_WATCH_NAMESPACES": "b,a",
        "HISPARSE_LOG_LEVEL": "DEBUG",
        "HISPARSE_SCRAPE_SECONDS": "7",
    }


@pytest.mark.parametrize(
    ("sets", "image"),
    [
        ((), "hisparse-operator:0.1.0"),
        (("image.repository=registry.example/op", "image.tag=abc"), "registry.example/op:abc"),
        (("image.tag=abc", f"image.digest=sha256:{'0' * 64}"), f"hisparse-operator@sha256:{'0' * 64}"),
    ],
)
def test_digest_wins_over_tag_and_tag_over_the_charts_version(render: Render, sets: tuple[str, ...], image: str) -> None:
    (deployment,) = kinds(render(*sets), "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image


def test_two_releases_share_no_object_but_the_crd(render: Render) -> None:
    def names(release: str, namespace: str) -> set[tuple[str, str, str]]:
        objects = render("crds.install=false", "watchNamespaces={shared}", release=release, namespace=namespace)
        return {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in objects}

    assert not names("one", "system") & names("two", "system")
    assert not names("one", "system") & names("one", "other")


def test_metrics_service_selects_the_operators_pod(render: Render) -> None:
    objects = render()
    (service,) = kinds(objects, "Service")
    (deployment,) = kinds(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["spec"]["ports"] == [{"name": "http", "port": 8080, "targetPort": "http"}]


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        ("watchNamespace={a}", "watchNamespace"),
        ("image.reposit=x", "reposit"),
        ("logLevel=TRACE", "logLevel"),
        ("scrapeSeconds=0", "scrapeSeconds"),
        ("watchNamespaces={Team_A}", "watchNamespaces"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("serviceAccount.create=false", "serviceAccount"),
        ("engine.vllmImage=", "vllmImage"),
    ],
)
def test_schema_refuses_wrong_values_and_names_them(render: Render, sets: str, named: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        render(sets)
    assert named in str(refusal.value.stderr)


def test_kubernetes_older_than_the_crds_rules_is_refused(helm: Path) -> None:
    command = [str(helm), "template", "demo", str(CHART), "--kube-version", "1.29.9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "1.30" in done.stderr
