"""vLLM takes every command that we render, and refuses what we say it refuses, where and in the words that we say.

Its answers are committed; a random sample of them is asked anew.
"""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hisparse_runtime.capacity import FLAG_NAMES, concurrency, gib_bytes
from hisparse_runtime.vllm.arguments import Role
from tests.contract.arguments_cases import written_cases
from tests.contract.arguments_data import WORKS, Row, asked, explained, load_rows
from tests.contract.arguments_lines import Case
from tests.contract.arguments_options_file import OPTIONS_FILE, merged, text_of
from tests.contract.arguments_oracle import ask_about, options_of
from tests.contract.arguments_rendered import Rendered, rendered
from tests.contract.make_arguments_data import NUM_AT_A_TIME
from tests.contract.oracle import Answer
from tools.upstream import VERSIONS

NUM_ASKED = 12  # of each version
PROCESS_SECONDS = 240.0
RENDERED = "rendered-"
# What no CPU can provoke: a worker's side, a model that is not there, a resolver without a GPU.
UNPROVOKED = {"DeepSeekV4", "NixlPush", "ResolverMemory"}
LEAST_REFUSED = {"argparse": 55, "config": 45, "model": 15, "planning": 30, "workers": 15}


@pytest.mark.parametrize("version", VERSIONS)
def test_data_answers_exactly_the_command_lines_of_today(version: str) -> None:
    """A stale file fails here: next step is `python -m tests.contract.make_arguments_data`."""
    assert [row.case for row in load_rows(version)] == asked(version)
    assert all(row.answer["vllm"].startswith(f"{version}.") for row in load_rows(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_rendered_command_starts_and_has_the_planned_numbers(version: str) -> None:
    answers = {row.case["id"]: row.answer for row in load_rows(version)}
    wrong = {}
    for entry in rendered(version):
        answer = answers[entry.case["id"]]
        if "started" not in answer:
            wrong[entry.case["id"]] = answer["refused"]
        elif differences := _differences(entry, answer["started"]):
            wrong[entry.case["id"]] = differences
    assert not wrong


@pytest.mark.parametrize("version", VERSIONS)
def test_no_rendered_command_is_rejected_by_our_own_rules(version: str) -> None:
    rejected = {entry.case["id"]: explained(entry.case, version).rejections for entry in rendered(version)}
    assert not {name: rejections for name, rejections in rejected.items() if rejections}


@pytest.mark.parametrize("version", VERSIONS)
def test_rejections_are_foretold_with_their_stage_and_in_vllms_words(version: str) -> None:
    rows = [row for row in load_rows(version) if not row.case["id"].startswith((RENDERED, WORKS))]
    wrong = {row.case["id"]: problem for row in rows if (problem := _problem(row, version))}
    assert not wrong
    stages = Counter(row.answer["refused"]["stage"] for row in rows if "refused" in row.answer)
    assert all(stages[stage] >= least for stage, least in LEAST_REFUSED.items()), stages
    assert len(rows) - stages.total() >= 100


@pytest.mark.parametrize("version", VERSIONS)
def test_every_command_that_is_said_to_work_does(version: str) -> None:
    """With what it asks for: HiSparse is still there unless the model has no use for it."""
    rows = [row for row in load_rows(version) if row.case["id"].startswith(WORKS)]
    assert len(rows) >= 200
    assert not {row.case["id"]: row.answer["refused"] for row in rows if "refused" in row.answer}
    lost = {row.case["id"] for row in rows if not row.answer["started"]["hisparse"]}
    given = {row.case["id"]: row.case for row in load_rows(version)}
    assert not {name for name in lost if _asks_for_hisparse(given[name.removeprefix(WORKS)], version)}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_started_engine_has_what_the_summary_says(version: str) -> None:
    for row in load_rows(version):
        if "started" in row.answer:
            found = dict(explained(row.case, version).summary)
            started = row.answer["started"]
            assert (found["HiSparse"] != "off") == started["hisparse"], row.case["id"]
            if isinstance(started["host_pool_gib"], float):
                assert found["HiSparse"].startswith(f"host pool {started['host_pool_gib']:g} GiB"), row.case["id"]
            names = [f"{connector['name']} ({connector['role']})" for connector in started["connectors"]]
            if "--kv-offloading-size" not in row.case["words"]:
                assert found["connectors"] == (", ".join(names) or "none"), row.case["id"]


@pytest.mark.parametrize("version", VERSIONS)
def test_vllms_warnings_are_foretold(version: str) -> None:
    pairs = {
        "HiSparse host-resident KV is configured with connector": "HarmlessWarning",
        "unused padding rows per hot group": "PaddingRows",
    }
    for row in load_rows(version):
        if "started" in row.answer:
            cautions = {caution.code for caution in explained(row.case, version).cautions}
            warned = {code for text, code in pairs.items() if any(text in line for line in row.answer["warnings"])}
            assert warned == cautions & set(pairs.values()), row.case["id"]


def test_every_rule_is_provoked_in_some_release() -> None:
    provoked = {
        rejection.code
        for version in VERSIONS
        for case in written_cases(version)
        for rejection in explained(case, version).rejections
    }
    assert len(provoked) >= 70
    assert not provoked & UNPROVOKED


@pytest.fixture(scope="module")
def asked_anew(sample_seed: int) -> Iterator[dict[str, Future[tuple[list[Row], list[Answer]]]]]:
    """What each version is saying to its sample; a few at a time, since each process keeps a core busy."""
    pool = ThreadPoolExecutor(max_workers=NUM_AT_A_TIME)
    yield {version: pool.submit(_ask_sample, version, sample_seed) for version in VERSIONS}
    pool.shutdown(cancel_futures=True)


@pytest.mark.contract
@pytest.mark.timeout(2 * PROCESS_SECONDS + 60)
@pytest.mark.parametrize("version", VERSIONS)
def test_vllm_answers_as_committed(version: str, asked_anew: Any, sample_seed: int) -> None:
    rows, answers = asked_anew[version].result()
    differing = {
        row.case["id"]: (row.answer, said) for row, said in zip(rows, answers, strict=True) if _core(row.answer) != _core(said)
    }
    assert not differing, f"seed {sample_seed}; next step: python -m tests.contract.make_arguments_data {version}"


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.timeout(2 * PROCESS_SECONDS + 60)
def test_the_table_of_options_is_vllms_own() -> None:
    with ThreadPoolExecutor(max_workers=NUM_AT_A_TIME) as pool:
        tables = pool.map(lambda version: options_of(version, timeout_seconds=PROCESS_SECONDS), VERSIONS)
        found = merged(dict(zip(VERSIONS, tables, strict=True)))
    assert OPTIONS_FILE.read_text(encoding="utf-8") == text_of(found)


def _ask_sample(version: str, seed: int) -> tuple[list[Row], list[Answer]]:
    sample = random.Random(seed).sample(load_rows(version), NUM_ASKED)  # noqa: S311  repeatable, not secret
    return sample, ask_about(version, [row.case for row in sample], timeout_seconds=PROCESS_SECONDS)


def _core(answer: Answer) -> Any:
    """A line's outcome; warnings and the order of sets in texts may differ."""
    return answer["started"] if "started" in answer else answer["refused"]["stage"]


def _problem(row: Row, version: str) -> str:
    """What we foretell is not what vLLM does; empty where it is."""
    rejections, refused = explained(row.case, version).rejections, row.answer.get("refused")
    if refused is None:
        return "" if not rejections else f"starts, and we say {rejections[0].code}: {rejections[0].message}"
    if not rejections:
        return f"we say nothing of {refused}"
    stage = rejections[0].stage
    if stage != refused["stage"]:
        return f"{rejections[0].code} at {stage}, vLLM: {refused}"
    said = [rejection.says for rejection in rejections if rejection.stage is stage]
    return "" if any(text in refused["text"] for text in said) else f"{said}, vLLM: {refused}"


def _asks_for_hisparse(case: Case, version: str) -> bool:
    """But for a model that has no use for it, and a connector whose name is not where it belongs."""
    codes = {rejection.code for rejection in explained(case, version).rejections}
    return "HiSparse" in " ".join(case["words"]) and not codes & {
        "NotSparse",
        "LinearAttention",
        "NamelessConnector",
        "UnknownKey",
    }


def _differences(entry: Rendered, started: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    expected = _expected(entry)
    return {name: (value, started.get(name)) for name, value in expected.items() if not _is_equal(started.get(name), value)}


def _is_equal(one: Any, other: Any) -> bool:
    return bool(one == pytest.approx(other, rel=1e-12)) if isinstance(other, float) else bool(one == other)


def _expected(entry: Rendered) -> dict[str, Any]:
    plan, arguments = entry.plan, entry.arguments
    settings, sizes = arguments.settings, plan.sizes
    has_hisparse = arguments.host_pool_gib is not None
    expected: dict[str, Any] = {
        "tensor_parallel_size": settings.tensor_parallel_size,
        "data_parallel_size": settings.data_parallel_size,
        "prefill_context_parallel_size": settings.prefill_context_parallel_size,
        "expert_parallel": arguments.expert_parallel,
        "max_model_len": sizes.max_model_len,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "max_num_seqs": settings.max_num_seqs,
        "async_scheduling": settings.async_scheduling,
        "kv_cache_dtype": settings.kv_cache_dtype,
        "num_speculative_tokens": settings.num_speculative_tokens,
        "gpu_memory_utilization": arguments.gpu_memory_utilization or 0.92,
        "kv_cache_memory_bytes": arguments.kv_cache_memory_bytes,
        "hisparse": has_hisparse,
        "host_pool_gib": arguments.host_pool_gib,
        "scheduler_reserve_full_isl": True,
        "hybrid_kv_cache_manager": True,
        "connectors": _expected_connectors(entry),
        "served_model_name": None if arguments.served_model_name is None else [arguments.served_model_name],
        "host": arguments.host,
        "port": arguments.port or 8000,
        "shutdown_timeout": arguments.shutdown_seconds or 0,
        "worker_shutdown_timeout": arguments.worker_shutdown_seconds,
    }
    if not has_hisparse:
        return expected
    host = sizes.host_pool(gib_bytes(arguments.host_pool_gib or 0), names=FLAG_NAMES)
    now = concurrency(sizes, host_blocks=host.num_blocks, tokens=sizes.max_model_len)
    return expected | {
        "device_buffer_size_given": settings.device_buffer_size,
        "device_buffer_size": sizes.hot.rows,
        "num_gpu_blocks": sizes.device.num_blocks,
        "host_num_blocks": host.num_blocks,
        "host_block_stride": host.stride_bytes,
        "shared_host_pool": settings.shares_host_pool,
        "hot_blocks_per_request": sizes.hot.blocks_per_request,
        "generic_concurrency": now.generic,
    }


def _expected_connectors(entry: Rendered) -> list[dict[str, Any]]:
    arguments = entry.arguments
    found = []
    if arguments.host_pool_gib is not None:
        found.append({"name": "HiSparseConnector", "role": "kv_both", "extra": {"host_pool_gib": arguments.host_pool_gib}})
    if arguments.role is not Role.SERVE:
        found.append({"name": "NixlConnector", "role": "kv_both", "extra": {}})
    if arguments.cpu_bytes_to_use:
        extra = {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": arguments.cpu_bytes_to_use}
        found.append({"name": "OffloadingConnector", "role": "kv_both", "extra": extra})
    return found
