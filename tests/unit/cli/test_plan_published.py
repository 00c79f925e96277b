"""`hisparse plan --as-published`: the published calculator's own figures."""

import pytest

from tests.unit.cli.plan_runs import plan, plan_json

# As the published page shows them for 8 x H200, TP 8, FP8: tokens, ordinary, HiSparse, least host GiB, MiB per request.
_TABLE = """\
8,192      48  71   25     373    255     351
32,768     12  56   77   1,491    322   1,404
65,536      6  44  121   2,981    412   2,808
81,920      4  39  134   3,727    457   3,510
131,072     3  30  165   5,963    592   5,616
142,000     2  29  173   6,460    622   6,085
262,144     1  19  209  11,925    952  11,232
524,288     0  10  220  23,850  1,672  22,464
1,048,576   0   5  220  47,700  3,112  44,928
"""


def test_the_published_table_to_the_last_digit() -> None:
    rows = [line.split() for line in _TABLE.splitlines()]
    run = plan("--as-published", "--compare", ",".join(row[0].replace(",", "") for row in rows))
    assert run.exit_code == 0
    found = [line.split() for line in run.stdout.splitlines() if line.startswith("H200")]
    assert [[line[1], *line[3:]] for line in found] == rows
    assert {line[2] for line in found} == {"17.8"}


@pytest.mark.parametrize(
    ("arguments", "ordinary", "hisparse"),
    [
        (("--device-buffer-size", "10240"), 4, 22),
        (("--device-buffer-size", "10240", "--max-model-len", "64K"), 6, 24),
        (("--device-buffer-size", "10240", "--max-model-len", "1M"), 0, 5),
        (("--kv-cache-dtype", "bfloat16"), 2, 24),
        (("--kv-cache-dtype", "bfloat16", "--max-model-len", "1M"), 0, 3),
        (("--gpu", "B200"), 14, 114),
        (("--gpu", "B200", "--max-model-len", "1M"), 1, 16),
        (("--gpu", "B300"), 39, 322),
        (("--gpu", "B300", "--max-model-len", "1M"), 3, 47),
        (("--data-parallel-size", "16", "--tensor-parallel-size", "1", "--node-memory", "8Ti"), 176, 1552),
    ],
)
def test_other_settings_of_the_page(arguments: tuple[str, ...], ordinary: int, hisparse: int) -> None:
    result = plan_json("--as-published", *arguments)["result"]
    assert (result["total_ordinary"], result["total_hisparse"]) == (ordinary, hisparse)


def test_what_is_not_given_stays_at_the_pages_default() -> None:
    inputs = plan_json("--as-published", "--model", "zai-org/GLM-5.3")["inputs"]
    assert (inputs["sequence_tokens"], inputs["max_num_seqs"], inputs["tensor_parallel_size"]) == (81_920, 1_024, 8)


def test_memory_is_given_in_the_units_of_the_page() -> None:
    inputs = plan_json(
        "--as-published",
        "--host-pool-gib",
        "384",
        "--cpu-bytes-to-use",
        "137438953472",
        "--node-memory",
        "2Ti",
        "--gpu-kv-gib",
        "17.8",
    )["inputs"]
    assert (inputs["host_pool_gib"], inputs["offload_gib"], inputs["ram_gib"], inputs["kv_gib"]) == (384, 128, 2048, 17.8)


def test_gpus_are_compared_in_a_list() -> None:
    answers = plan_json("--as-published", "--compare", "H200,B200,B300")
    assert [answer["result"]["total_hisparse"] for answer in answers] == [39, 114, 322]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpu", "MI300X"), "the published calculator knows H200, B200, B300"),
        (("--max-model-len", "4096"), "sequence_tokens is 4096: the published calculator takes whole numbers from 8,192"),
        (("--max-model-len", "auto"), "the published calculator fits no context: give a number"),
        (("--kv-cache-dtype", "nvfp4_ds_mla"), "the published calculator knows fp8, bfloat16"),
        (("--model", "deepseek-v3.2"), "the published calculator is about GLM-5.3 only"),
        (("--host-pool-gib", "100.5"), "--host-pool-gib is 100.5 GiB: the published calculator takes whole GiB"),
        (("--num-speculative-tokens", "3"), "leave out --num-speculative-tokens: the published calculator has no place for it"),
        (("--plot", "x.png"), "leave out --plot"),
    ],
)
def test_what_the_page_cannot_take_is_told(arguments: tuple[str, ...], message: str) -> None:
    run = plan("--as-published", *arguments)
    assert (run.exit_code, run.stdout) == (2, "")
    assert message in run.message


def test_weights_that_leave_no_room_are_told() -> None:
    assert "weights and reserve take" in plan("--as-published", "--tensor-parallel-size", "4").stdout
