from pathlib import Path

import pytest

from tools.devcluster.binaries import PROGRAMS, assets_of, link_programs, linker_flags, source_key, versions_of
from tools.devcluster.golang import parse_version

GO_MOD = """\
module example/kube

go 1.26.0

require (
\thelm.sh/helm/v4 v4.3.1
\tk8s.io/kubernetes v1.37.2
)

require (
\tgithub.com/other/module v0.1.0 // indirect
)
"""


def test_versions_are_those_of_direct_requirements_only() -> None:
    assert versions_of(GO_MOD) == {"helm.sh/helm/v4": "v4.3.1", "k8s.io/kubernetes": "v1.37.2"}


def test_linker_flags_carry_the_versions_of_the_module_file() -> None:
    flags = linker_flags(GO_MOD)
    assert "-X k8s.io/component-base/version.gitVersion=v1.37.2" in flags
    assert "-X k8s.io/component-base/version.gitMinor=37" in flags
    assert "-X helm.sh/helm/v4/internal/version.version=v4.3.1" in flags


def test_the_committed_module_file_names_every_version_that_is_needed() -> None:
    go_mod = Path("tools/devcluster/kube/go.mod").read_text()
    assert linker_flags(go_mod)[0].endswith("gitVersion=v1.37.2")


@pytest.mark.parametrize(
    ("files", "salt"),
    [
        ({"main.go": b"b", "go.mod": b""}, "amd64"),
        ({"main.go": b"a", "go.mod": b"x"}, "amd64"),
        ({"main.go": b"a", "go.mod": b""}, "arm64"),
        ({"main.goa": b"", "go.mod": b""}, "amd64"),
    ],
)
def test_key_changes_with_any_source_and_with_the_architecture(files: dict[str, bytes], salt: str) -> None:
    assert source_key(files, salt=salt) != source_key({"main.go": b"a", "go.mod": b""}, salt="amd64")


def test_key_does_not_depend_on_the_order_of_the_sources() -> None:
    assert source_key({"a": b"1", "b": b"2"}, salt="") == source_key({"b": b"2", "a": b"1"}, salt="")


def test_only_programs_that_can_run_are_taken_from_kubebuilder_assets(tmp_path: Path) -> None:
    for name, mode in (("etcd", 0o755), ("kubectl", 0o644), ("unrelated", 0o755)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    assert assets_of({"KUBEBUILDER_ASSETS": str(tmp_path)}) == {"etcd": tmp_path / "etcd"}
    assert assets_of({}) == {}


def test_links_keep_the_name_that_chooses_the_program(tmp_path: Path) -> None:
    one_binary = tmp_path / "kube"
    one_binary.touch()
    link_programs(dict.fromkeys(PROGRAMS, one_binary), folder=tmp_path / "bin")
    link_programs(dict.fromkeys(PROGRAMS, one_binary), folder=tmp_path / "bin")
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == sorted(PROGRAMS)
    assert (tmp_path / "bin" / "kubelet").resolve() == one_binary


@pytest.mark.parametrize(
    ("text", "version"),
    [("go version go1.26.8 linux/amd64", (1, 26)), ("go version go1.9 linux/arm64", (1, 9)), ("gopher", None)],
)
def test_version_of_go_is_read_from_its_own_words(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version
