import os
from pathlib import Path

import pytest

from tools.devcluster import DevCluster, DevClusterError
from tools.devcluster.cli import main, split_words


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "own", "passed"),
    [
        ("kubectl get pods --name x", "kubectl", "get pods --name x"),
        ("--name blue helm --help", "--name blue helm", "--help"),
        ("--name exec up", "--name exec up", ""),
        ("load exec.tar", "load exec.tar", ""),
        ("exec kubectl -n a get pods", "exec", "kubectl -n a get pods"),
    ],
)
def test_words_after_a_program_belong_to_that_program(words: str, own: str, passed: str) -> None:
    assert split_words(words.split()) == (own.split(), passed.split())


@pytest.mark.parametrize("words", ["--name blue status", "status --name blue"])
def test_the_name_may_stand_before_or_after_the_sub_command(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 1
    assert capsys.readouterr().out == "cluster blue is not up\n"


@pytest.mark.parametrize("words", ["kubectl get pods", "exec true", "helm list", "gpus 3", "forward web 80", "stop apiserver"])
def test_using_a_cluster_that_is_not_up_says_how_to_bring_it_up(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--name", "blue", *words.split()]) == 1
    assert "cluster blue is not up; run up first (python3 -m tools.devcluster --name blue up)" in capsys.readouterr().err


def test_an_impossible_number_of_gpus_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--", "-1"]) == 1
    assert "-1 GPUs" in capsys.readouterr().err


def test_an_unknown_component_is_answered_with_those_there_are() -> None:
    with pytest.raises(DevClusterError, match="etcd, containerd, apiserver"):
        DevCluster(name="blue").stop_component("api")


def test_a_cluster_whose_box_has_died_is_not_up() -> None:
    cluster = DevCluster(name="blue")
    cluster.folder.mkdir(parents=True)
    # The pid is alive, but it is this test's and not the box's.
    (cluster.folder / "box.json").write_text(f'{{"pid": {os.getpid()}, "start_ticks": 1, "boot_id": "earlier"}}')
    (cluster.folder / "ready").touch()
    assert not cluster.is_up()
    with pytest.raises(DevClusterError, match="has died"):
        cluster.kubectl("get", "nodes")


@pytest.mark.skipif(os.geteuid() != 0, reason="down needs root")
def test_down_of_nothing_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--name", "blue", "down"]) == 0
    assert capsys.readouterr().out == "cluster blue is not up\n"
