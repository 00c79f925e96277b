from pathlib import Path

import pytest

from tools.devcluster.cgroups import Hierarchies, make_subtree, read_hierarchies, remove_subtree
from tools.devcluster.failure import DevClusterError

V1 = """\
tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup /mnt/again cgroup rw,relatime,cpu,cpuacct 0 0
"""
HYBRID = V1 + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n"
V2 = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"


def test_v1_has_a_folder_in_every_hierarchy_and_each_controller_once() -> None:
    assert read_hierarchies(V1).folders("box") == [Path("/sys/fs/cgroup/cpu,cpuacct/box"), Path("/sys/fs/cgroup/systemd/box")]


def test_v2_has_one_folder() -> None:
    assert read_hierarchies(V2).folders("box") == [Path("/sys/fs/cgroup/box")]


def test_hybrid_needs_the_v1_folders_but_may_leave_one_in_the_v2_mount() -> None:
    hierarchies = read_hierarchies(HYBRID)
    assert Path("/sys/fs/cgroup/unified/box") not in hierarchies.folders("box")
    assert Path("/sys/fs/cgroup/unified/box") in hierarchies.possible_folders("box")


def test_a_new_cpuset_gets_the_processors_of_its_parent(tmp_path: Path) -> None:
    cpuset = tmp_path / "cpuset"
    (cpuset / "box").mkdir(parents=True)
    for file, content in (("cpuset.cpus", "0-1"), ("cpuset.mems", "0")):
        (cpuset / file).write_text(content)
        (cpuset / "box" / file).write_text("")
    make_subtree("box", hierarchies=Hierarchies(v1=(cpuset,), v2=None))
    assert (cpuset / "box" / "cpuset.cpus").read_text() == "0-1"
    assert (cpuset / "box" / "cpuset.mems").read_text() == "0"


def test_missing_v2_controllers_are_named(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    with pytest.raises(DevClusterError, match="lacks cpuset, pids"):
        make_subtree("box", hierarchies=Hierarchies(v1=(), v2=tmp_path))


def test_no_cgroup_mount_is_an_error_with_the_next_step() -> None:
    with pytest.raises(DevClusterError, match="mount -t cgroup2"):
        make_subtree("box", hierarchies=read_hierarchies("proc /proc proc rw 0 0\n"))


def test_removal_takes_the_whole_subtree_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "box" / "kubepods" / "pod1").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    remove_subtree("box", hierarchies=Hierarchies(v1=(tmp_path,), v2=None))
    remove_subtree("box", hierarchies=Hierarchies(v1=(tmp_path,), v2=None))
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_busy_cgroup_is_named_after_the_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "box" / "busy").mkdir(parents=True)
    (tmp_path / "box" / "busy" / "process").touch()  # rmdir refuses, as the kernel does for a cgroup with processes
    (tmp_path / "box" / "idle").mkdir()
    with pytest.raises(DevClusterError, match="still has processes"):
        remove_subtree("box", hierarchies=Hierarchies(v1=(tmp_path,), v2=None), timeout_seconds=0)
    assert not (tmp_path / "box" / "idle").exists()
