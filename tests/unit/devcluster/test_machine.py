from pathlib import Path

import pytest

from tools.devcluster import DEBIAN_PACKAGES, machine
from tools.devcluster.failure import DevClusterError
from tools.devcluster.machine import file_system_of, keep_settings, restore_settings

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /home tmpfs rw 0 0
/dev/vdb /home/me/with\\040space xfs rw 0 0
overlay /data overlay rw 0 0
/dev/vdc /data ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/cache", "ext4"),
        ("/home/me", "tmpfs"),
        ("/home/me/with space/cache", "xfs"),
        ("/homes", "ext4"),
        ("/data/x", "ext4"),
    ],
)
def test_file_system_is_that_of_the_last_longest_mount_point(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), mounts=MOUNTS) == kind


def test_missing_programs_are_one_error_with_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PACKAGE_OF_PROGRAM", {"sh": "dash", "no-such-a": "package-a", "no-such-b": "package-b"})
    monkeypatch.setattr(machine, "cni_folder", lambda: Path("/opt/cni/bin"))
    with pytest.raises(DevClusterError) as caught:
        machine.check_programs()
    assert "no-such-a, no-such-b" in str(caught.value)
    assert str(caught.value).endswith("apt-get install --no-install-recommends package-a package-b")


def test_package_list_covers_programs_and_network_plugins() -> None:
    assert {"containerd", "runc", "containernetworking-plugins", "nftables", "util-linux"} <= set(DEBIAN_PACKAGES)


@pytest.mark.parametrize("folder", ["/run/user/0/x", "/var/lib/x", "/var/log/x"])
def test_state_below_a_mount_of_the_box_is_refused(folder: str) -> None:
    with pytest.raises(DevClusterError, match="XDG_CACHE_HOME"):
        machine.check_disk(Path(folder))


@pytest.fixture
def sysctls(tmp_path: Path) -> Path:
    root = tmp_path / "sys"
    for key, value in (("vm/overcommit_memory", "0"), ("kernel/panic", "1")):
        (root / key).parent.mkdir(parents=True)
        (root / key).write_text(f"{value}\n")
    return root


def test_settings_come_back_with_the_last_cluster_only(tmp_path: Path, sysctls: Path) -> None:
    folder = tmp_path / "clusters"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    keep_settings("a", folder=folder, root=sysctls)
    (sysctls / "vm/overcommit_memory").write_text("1\n")  # the kubelet of a
    keep_settings("b", folder=folder, root=sysctls)

    restore_settings("a", folder=folder, root=sysctls)
    assert (sysctls / "vm/overcommit_memory").read_text() == "1\n"

    restore_settings("b", folder=folder, root=sysctls)
    assert (sysctls / "vm/overcommit_memory").read_text().strip() == "0"
    assert (sysctls / "kernel/panic").read_text() == "1\n"
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_a_user_whose_folder_is_gone_does_not_keep_the_settings_from_coming_back(tmp_path: Path, sysctls: Path) -> None:
    folder = tmp_path / "clusters"
    (folder / "a").mkdir(parents=True)
    keep_settings("removed-by-hand", folder=folder, root=sysctls)
    keep_settings("a", folder=folder, root=sysctls)
    (sysctls / "kernel/panic").write_text("10\n")
    restore_settings("a", folder=folder, root=sysctls)
    assert (sysctls / "kernel/panic").read_text() == "1"


def test_settings_of_an_earlier_boot_are_void(tmp_path: Path, sysctls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "clusters"
    (folder / "a").mkdir(parents=True)
    monkeypatch.setattr(machine, "_boot_id", lambda: "before")
    keep_settings("a", folder=folder, root=sysctls)
    monkeypatch.setattr(machine, "_boot_id", lambda: "after")
    (sysctls / "kernel/panic").write_text("7\n")
    restore_settings("a", folder=folder, root=sysctls)
    assert (sysctls / "kernel/panic").read_text() == "7\n"
    assert [path.name for path in folder.iterdir()] == ["a"]
