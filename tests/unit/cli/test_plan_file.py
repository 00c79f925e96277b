"""`hisparse plan -f`: the operator's own reading of a HiSparseDeployment."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import NodeFacts
from hisparse_operator.planning import plan as operator_plan
from tests.unit.cli.plan_runs import GLM_DEPLOYMENT, plan, plan_json

_EXAMPLES = Path(__file__).parents[3] / "examples"
_EMBEDDED = _EXAMPLES / "embedded.yaml"
_GIB = 1 << 30


@pytest.fixture
def glm(tmp_path: Path) -> Path:
    path = tmp_path / "glm.yaml"
    path.write_text(GLM_DEPLOYMENT)
    return path


def _changed(path: Path, **spec: Any) -> Path:
    """The deployment with other values: `engine__maxModelLen=...`."""
    body = yaml.safe_load(GLM_DEPLOYMENT)
    for name, value in spec.items():
        *folders, field = name.split("__")
        place = body["spec"]
        for folder in folders:
            place = place.setdefault(folder, {})
        place[field] = value
    path.write_text(yaml.safe_dump(body))
    return path


def test_the_vllm_example_has_a_plan_within_its_bound() -> None:
    answer = plan_json("-f", _EXAMPLES / "vllm.yaml")
    assert answer["errors"] == []
    assert answer["pod"]["memory_bytes"] <= 640 << 30
    assert answer["concurrency"]["limited_by"] == "gpu"


def test_a_file_and_the_same_flags_give_the_same_plan(glm: Path) -> None:
    flags = ("--model", "zai-org/GLM-5.3", "--gpu", "H200", "--kv-cache-dtype", "fp8", "--max-model-len", "142000")
    assert plan_json("-f", glm) == plan_json(*flags)
    bounded = ("--node-memory", "300Gi")
    assert plan_json("-f", glm, *bounded) == plan_json(*flags, *bounded)


def test_the_plan_is_the_operators(glm: Path) -> None:
    body = yaml.safe_load(glm.read_text())
    body["metadata"] |= {"namespace": "shop", "uid": "u", "generation": 1}
    spec = HiSparseDeployment.parse(body).spec
    node = NodeFacts(
        name="gpu-0",
        ready=True,
        unschedulable=False,
        labels=(),
        taints=(),
        allocatable_memory_bytes=400 * _GIB,
        allocatable_gpus=8,
    )
    theirs = operator_plan(spec, deployment="shop/glm", nodes=[node], pods=[])
    ours = plan_json("-f", glm, "--node-memory", "400Gi")
    assert ours["host"]["pool_bytes"] == theirs.host_pool_bytes
    assert ours["offload"]["cpu_bytes_to_use"] == theirs.cpu_bytes_to_use
    assert ours["pod"]["shm_bytes"] == theirs.shm_bytes
    assert ours["pod"]["memory_bytes"] == theirs.memory_bytes
    assert ours["pod"]["startup_seconds"] == theirs.startup_seconds
    assert theirs.concurrency is not None
    assert ours["concurrency"]["steady"] == theirs.concurrency.steady
    assert ours["warnings"] == list(theirs.warnings)


def test_a_bound_in_the_file_holds_and_a_smaller_one_on_the_command_line_too(tmp_path: Path) -> None:
    path = _changed(tmp_path / "glm.yaml", hostMemory__max="300Gi")
    assert plan_json("-f", path)["pod"]["memory_bytes"] <= 300 * _GIB
    assert plan_json("-f", path, "--node-memory", "256Gi")["pod"]["memory_bytes"] <= 256 * _GIB
    assert plan_json("-f", path, "--node-memory", "2Ti") == plan_json("-f", path)


def test_a_bound_beyond_any_machine_is_none(tmp_path: Path) -> None:
    path = _changed(tmp_path / "glm.yaml", hostMemory__max="99999999999999999999Ei")
    assert plan_json("-f", path)["concurrency"]["limited_by"] == "gpu"


def test_the_embedded_example_gets_what_the_operator_gives_it() -> None:
    answer = plan_json("-f", _EMBEDDED)
    assert answer["asked"]["engine"] == "Embedded"
    assert answer["geometry"]["row_bytes"] == (32 + 16) * 4
    assert answer["gpu"] == {
        "bytes_per_block": 2 * 16 * 192,  # the indexer's page of 4 x 16 x 64 bytes, in whole layer pages
        "num_blocks": (8 << 20) // (2 * 16 * 192),
        "kv_bytes": 8 << 20,
        "is_estimated": False,
        "overhead_bytes": None,
    }
    assert answer["hot"]["rows"] == 128
    assert answer["host"]["min_blocks"] == 4096 // 16 + 2
    assert answer["pod"]["memory_bytes"] == 352 << 20  # hostMemory.max of the file
    assert answer["concurrency"] is None
    assert "one of" not in plan("-f", _EMBEDDED).stderr


def test_without_any_bound_the_smallest_embedded_pod_is_planned_and_said_so(tmp_path: Path) -> None:
    body = yaml.safe_load(_EMBEDDED.read_text())
    del body["spec"]["hostMemory"]
    path = tmp_path / "embedded.yaml"
    path.write_text(yaml.safe_dump(body))
    answer = plan_json("-f", path)
    assert answer["pod"]["memory_bytes"] <= 352 << 20
    assert answer["host"]["num_blocks"] >= answer["host"]["min_blocks"]
    assert any(warning.startswith("the smallest pod") for warning in answer["warnings"])
    larger = plan_json("-f", path, "--node-memory", "1Gi")
    assert larger["pod"]["memory_bytes"] <= _GIB
    assert larger["host"]["num_blocks"] > answer["host"]["num_blocks"]


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"model__name": "Llama-9"}, "InvalidModelConfig", "has no preset"),
        ({"engine__vllm__gpu": "MI300X"}, "InvalidSpec", "engine.vllm.gpu MI300X: released vLLM refuses"),
        ({"engine__vllm__version": "0.99"}, "InvalidSpec", "sizes are known for"),
        ({"engine__vllm__extraArgs": ["--kv-transfer-config={}"]}, "InvalidSpec", "is decided by the memory plan"),
        ({"engine__deviceBufferSize": 1024}, "InvalidSpec", "engine.deviceBufferSize 1,024"),
        ({"hiSparse__hostPoolGiB": 1}, "InsufficientHostMemory", "raise hiSparse.hostPoolGiB to at least"),
        ({"engine__gpuKVCache": "1Gi"}, "InsufficientDeviceMemory", "raise engine.gpuKVCache to at least"),
        ({"hiSparse__mode": "Off"}, "ModeOff", "only HiSparse is planned here: set it to On"),
    ],
)
def test_what_the_operator_would_refuse_is_refused_in_the_words_of_the_file(
    spec: dict[str, Any], reason: str, message: str, tmp_path: Path
) -> None:
    run = plan("-f", _changed(tmp_path / "glm.yaml", **spec), "-o", "json")
    assert run.exit_code == 2
    assert run.json["errors"][0]["reason"] == reason
    assert message in run.json["errors"][0]["message"]


def test_a_refused_file_still_has_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "glm.yaml"
    wrong_arguments = plan("-f", _changed(path, engine__vllm__extraArgs=["-ac.x=1"]), "-o", "json").json
    assert wrong_arguments["geometry"]["row_bytes"] == 656
    wrong_gpu = plan("-f", _changed(path, engine__vllm__gpu="MI300X"), "-o", "json").json
    assert (wrong_gpu["geometry"]["num_layers"], wrong_gpu["geometry"]["row_bytes"]) == (78, None)
    assert plan("-f", _changed(path, model__name="Llama-9"), "-o", "json").json["geometry"] is None


def test_an_embedded_engine_that_cannot_run_is_refused_with_its_geometry(tmp_path: Path) -> None:
    body = yaml.safe_load(_EMBEDDED.read_text())
    body["spec"]["engine"]["gpuKVCache"] = "1Mi"
    path = tmp_path / "embedded.yaml"
    path.write_text(yaml.safe_dump(body))
    run = plan("-f", path, "-o", "json")
    assert run.exit_code == 2
    assert run.json["errors"][0]["reason"] == "InsufficientDeviceMemory"
    assert run.json["geometry"]["num_layers"] == 4
    body["spec"]["model"]["config"] = {"num_hidden_layers": 4}
    path.write_text(yaml.safe_dump(body))
    assert plan("-f", path, "-o", "json").json["errors"][0]["reason"] == "InvalidModelConfig"


def test_one_deployment_is_found_among_other_objects_and_on_standard_input(glm: Path) -> None:
    several = "kind: ConfigMap\napiVersion: v1\n---\n" + GLM_DEPLOYMENT
    run = plan("-f", "-", "-o", "json", stdin=several)
    assert run.json == plan_json("-f", glm)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("kind: Deployment\n", "holds 0 objects of kind HiSparseDeployment: one is needed"),
        (GLM_DEPLOYMENT + "---\n" + GLM_DEPLOYMENT, "holds 2 objects"),
        (GLM_DEPLOYMENT.replace("v1alpha1", "v9"), "apiVersion is 'hisparse.dev/v9', hisparse.dev/v1alpha1 is needed"),
        (GLM_DEPLOYMENT.replace("maxModelLen: 142000", "maxModelLen: 0"), "spec.engine.maxModelLen: Input should be greater"),
        (GLM_DEPLOYMENT.replace("gpu: H200", "gqu: H200"), "spec.engine.vllm.gqu: Extra inputs are not permitted"),
        ("kind: HiSparseDeployment\napiVersion: hisparse.dev/v1alpha1\nspec: []\n", "spec.model: Field required"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_by_field(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    run = plan("-f", path)
    assert (run.exit_code, run.stdout) == (2, "")
    assert message in run.message


def test_a_file_and_flags_of_the_model_exclude_each_other(glm: Path) -> None:
    run = plan("-f", glm, "--gpu", "B200", "--host-pool-gib", "100")
    assert run.exit_code == 2
    assert "leave out --gpu, --host-pool-gib: a HiSparseDeployment file holds what is planned" in run.message


def test_a_missing_file_is_told() -> None:
    assert "cannot read nowhere.yaml: No such file" in plan("-f", "nowhere.yaml").message


def test_concurrency_of_the_embedded_engine_is_not_planned() -> None:
    assert "are for engine type VLLM" in plan("-f", _EMBEDDED, "--compare", "1K,2K").message
