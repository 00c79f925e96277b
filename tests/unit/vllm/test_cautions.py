"""What vLLM takes, and its user should know."""

import pytest

from hisparse_runtime.geometry import VLLM_VERSIONS
from hisparse_runtime.vllm.explain.branch import explain_branch
from hisparse_runtime.vllm.known_bugs import Features, bugs_met
from tests.unit.vllm.lines import HISPARSE, NIXL, OFFLOADING, SERVE, explained, multi, transfer


def messages(*options: str, code: str, version: str = "0.33") -> list[str]:
    found = explained(*options, version=version)
    return [caution.message for caution in found.cautions if caution.code == code]


def test_a_line_without_hisparse_has_nothing_to_mind() -> None:
    assert explained(*transfer(OFFLOADING)).cautions == ()


def test_vllms_own_warning_about_the_connector_is_called_harmless() -> None:
    (text,) = messages(*transfer(HISPARSE), code="HarmlessWarning")
    assert "HiSparse host-resident KV is configured with connector HiSparseConnector" in text
    assert messages(*transfer(multi(HISPARSE, NIXL)), code="HarmlessWarning") == []


def test_indexer_keys_want_a_tier_of_their_own() -> None:
    assert len(messages(*transfer(multi(HISPARSE, NIXL)), code="NoOffload")) == 1
    assert messages(*transfer(multi(HISPARSE, OFFLOADING)), code="NoOffload") == []


def test_hisparse_should_be_asked_first() -> None:
    (text,) = messages(*transfer(multi(OFFLOADING, HISPARSE)), code="HisparseNotFirst")
    assert "OffloadingConnector is in front" in text


def test_keys_that_the_connector_does_not_read_are_named() -> None:
    extra = {"host_pool_gib": 384, "device_buffer_size": 4096}
    (text,) = messages(*transfer(HISPARSE | {"kv_connector_extra_config": extra}), code="IgnoredKeys")
    assert "device_buffer_size of its kv_connector_extra_config has no effect" in text


def test_an_engine_with_hisparse_cannot_send() -> None:
    producer = NIXL | {"kv_role": "kv_producer"}
    (text,) = messages(*transfer(multi(HISPARSE, producer)), code="HisparseProducer")
    assert "does not yet support a mixed-memory producer" in text


def test_rows_that_fill_up_a_page_are_counted() -> None:
    (text,) = messages(*transfer(HISPARSE), "-ac.hisparse_config.device_buffer_size=4100", code="PaddingRows")
    assert text == "device_buffer_size 4,100 leaves 60 rows of each hot group unused: use 4,160"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("-dp", "2"), "host_pool_gib 384 is pinned 2 times (2 data-parallel replicas): 768.00 GiB of host memory"),
        (("-pcp", "2"), "pinned 16 times (16 ranks that cannot share it): 6,144.00 GiB"),
        (
            ("--distributed-executor-backend", "ray", "-dp", "2"),
            "pinned 16 times (2 data-parallel replicas x 8 ranks that cannot",
        ),
    ],
)
def test_a_pool_is_multiplied_by_replicas_and_by_ranks_that_cannot_share_it(options: tuple[str, ...], text: str) -> None:
    (found,) = messages(*transfer(HISPARSE), *options, code="PoolCopies")
    assert text in found


def test_a_shared_pool_is_there_once() -> None:
    assert messages(*transfer(HISPARSE), code="PoolCopies") == []


def test_options_without_effect_are_named() -> None:
    (text,) = messages(*transfer(NIXL), *transfer(HISPARSE), code="Overridden")
    assert "repeated options count once, the last one" in text
    (text,) = messages(*transfer(HISPARSE), "--kv-transfer-config.kv_role=kv_both", code="Overridden")
    assert "dotted options replace the JSON of the same option" in text


def test_what_makes_other_sizes_is_not_judged() -> None:
    (text,) = messages(*transfer(HISPARSE), "--num-gpu-blocks-override", "9", code="SizesNotJudged")
    assert text.startswith("--num-gpu-blocks-override")


def test_a_secret_does_not_belong_into_a_command_line() -> None:
    (text,) = messages("--api-key", "canary", code="SecretInCommand")
    assert "VLLM_API_KEY" in text
    assert "canary" not in text


def test_offloading_size_without_hisparse_replaces_the_connectors_there() -> None:
    (text,) = messages(*transfer(NIXL), "--kv-offloading-size", "64", code="OffloadingSizeReplaces")
    assert "in the place of every connector" in text


def test_a_file_of_options_is_not_looked_at() -> None:
    assert len(messages("--config", "serve.yaml", code="ConfigFile")) == 1


@pytest.mark.parametrize(
    ("options", "version", "issues"),
    [
        ((), "0.33", []),
        ((), "0.32", ["#42632"]),
        (("-cc.cudagraph_mode=FULL",), "0.31", ["#56158", "#57930", "e82b80099a", "shared event", "#42632"]),
        (("-cc.cudagraph_mode=PIECEWISE",), "0.31", ["#57930", "e82b80099a", "shared event", "#42632"]),
    ],
)
def test_bugs_of_a_release_are_named_where_the_line_meets_them(options: tuple[str, ...], version: str, issues: list[str]) -> None:
    found = messages(*transfer(multi(HISPARSE, OFFLOADING)), *options, code="KnownBug", version=version)
    assert len(found) == len(issues)
    for text, issue in zip(found, issues, strict=True):
        assert issue in text


@pytest.mark.parametrize("broken", [(), ("--nope",)])
def test_what_corrupts_output_is_taken_out_though_the_release_takes_it(broken: tuple[str, ...]) -> None:
    found = explained(*transfer(multi(HISPARSE, OFFLOADING)), "-cc.cudagraph_mode=FULL", *broken, version="0.31")
    assert found.is_accepted == (not broken)
    assert found.working == (*SERVE, *transfer(multi(HISPARSE, OFFLOADING)))
    assert found.changes[-1] == "removed cudagraph_mode"


def test_every_bug_is_met_by_some_way_to_run_its_releases_and_gone_in_the_next() -> None:
    everything = Features(
        has_full_graphs=True, has_speculation=True, has_nixl=True, has_cache_metrics=True, is_tensor_parallel=True
    )
    met = {name: {bug.name for bug in bugs_met(version, everything)} for name, version in VLLM_VERSIONS.items()}
    assert met["0.33"] < met["0.32"] < met["0.31"] < met["0.30"]
    assert len(met["0.30"]) == 16
    assert bugs_met(VLLM_VERSIONS["0.33"], Features()) == ()


def test_few_groups_do_not_keep_the_scheduler_busy() -> None:
    old = VLLM_VERSIONS["0.31"]
    assert "vllm #57930" in {bug.name for bug in bugs_met(old, Features(num_resident_groups=20))}
    assert "vllm #57930" not in {bug.name for bug in bugs_met(old, Features(num_resident_groups=6))}


def test_advice_says_where_a_bug_ends() -> None:
    advice = {bug.name: bug.advice for bug in bugs_met(VLLM_VERSIONS["0.30"], Features(has_nixl=True))}
    assert advice["vllm #57457"] == "fixed in 0.31"
    assert advice["vllm #53781"] == "fixed in 0.33"
    assert advice["vllm #56699"] == "open in 0.33"


def test_of_the_branch_only_the_dialect_is_judged() -> None:
    old = ("--attention-config", '{"hisparse_config":{"host_pool_gib":384}}')
    found = explain_branch((*SERVE, *old, *transfer(OFFLOADING)))
    assert found.is_accepted
    assert [caution.code for caution in found.cautions] == ["BranchNotChecked"]
    assert dict(found.summary)["HiSparse"] == "host pool 384 GiB for each replica"
    found = explain_branch((*SERVE, *transfer(HISPARSE)))
    assert [caution.code for caution in found.cautions] == ["BranchNotChecked", "ConnectorDialect"]
