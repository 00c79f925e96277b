"""Pages of released vLLM as reports. `pages/` has what its own scheduler and Prometheus code wrote, cut to a few families."""

from pathlib import Path
from typing import Any

import pytest

from hisparse_operator.telemetry import ResidencyReport
from hisparse_runtime.vllm.telemetry.residency import MAX_COUNT, MAX_PAGE_CHARACTERS, MetricsError, residency_of_metrics

PAGES = Path(__file__).parent / "pages"
VERSIONS = ("0.30", "0.31", "0.32", "0.33")
BLOCK_BYTES = 41_984
MINIMAL = 'vllm:num_requests_running{engine="0",model_name="glm"} 3.0\n'


def page(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text(encoding="utf-8")


def report(text: str, **sizes: int) -> dict[str, Any]:
    return residency_of_metrics(text, model="zai-org/GLM-5.3", version="0.33.0", uptime_seconds=12.3456, **sizes)


def test_with_hisparse_classes_pages_and_pools_are_those_of_the_connector() -> None:
    assert report(page("hisparse-0.33")) == {
        "schema": "hisparse.dev/residency/v1",
        "engine": {"type": "VLLM", "version": "0.33.0", "model": "zai-org/GLM-5.3", "uptime_seconds": 12.346},
        "requests": {"running": 3, "waiting": 4, "full": 1, "mixed": 1, "none": 1, "finished": 0},
        "pages": {"dirty": 3, "pending": 8, "clean_pinned": 1, "unpinned": 3, "host_only": 26},
        "host_pool": {"capacity_bytes": 159 * 83_968, "used_bytes": 39 * 83_968},
        "device_pool": {"capacity_bytes": 119 * BLOCK_BYTES, "used_bytes": 111 * BLOCK_BYTES},
        "offload": {"capacity_bytes": 0, "used_bytes": 0},
        "hot": {"regions_in_use": 3, "hits": 3150, "misses": 595, "host_to_device_bytes": 390_320},
        "mirror_bytes": 151 * 83_968,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_without_hisparse_all_that_runs_is_on_the_device(version: str) -> None:
    told = report(page(f"ordinary-{version}"), device_block_bytes=BLOCK_BYTES, offload_bytes=3_072_000)
    assert told["requests"] == {"running": 4, "waiting": 2, "full": 4, "mixed": 0, "none": 0, "finished": 0}
    assert told["host_pool"] == {"capacity_bytes": 0, "used_bytes": 0}
    assert not any(told["pages"].values())
    assert told["device_pool"] == {"capacity_bytes": 59 * BLOCK_BYTES, "used_bytes": 48 * BLOCK_BYTES}
    assert told["offload"] == {"capacity_bytes": 3_072_000, "used_bytes": 0}


def test_sizes_that_are_nowhere_count_as_nothing() -> None:
    told = report(page("ordinary-0.32"))
    assert (told["device_pool"]["capacity_bytes"], told["offload"]["capacity_bytes"]) == (0, 0)


def test_from_0_33_on_the_page_has_the_offload_tier_s_size() -> None:
    assert report(page("ordinary-0.33"))["offload"]["capacity_bytes"] == 3_072_000
    assert report(page("ordinary-0.33"), offload_bytes=1)["offload"]["capacity_bytes"] == 3_072_000


def test_a_pool_size_on_the_page_wins_over_the_planned_one() -> None:
    text = page("ordinary-0.32").replace('kv_cache_memory_bytes="None"', 'kv_cache_memory_bytes="6000"')
    assert report(text, device_block_bytes=BLOCK_BYTES)["device_pool"] == {"capacity_bytes": 5900, "used_bytes": 4800}


@pytest.mark.parametrize("name", ["hisparse-0.33", "ordinary-0.33"])
def test_engines_of_a_page_are_summed_up(name: str) -> None:
    one, both = report(page(name)), report(page(name) + page(name).replace('engine="0"', 'engine="1"'))
    for part in ("requests", "pages", "host_pool", "device_pool", "offload", "hot"):
        assert both[part] == {key: 2 * number for key, number in one[part].items()}, part
    assert both["mirror_bytes"] == 2 * one["mirror_bytes"]


def test_use_is_of_the_engine_s_own_pool() -> None:
    text = MINIMAL + "".join(
        f'vllm:cache_config_info{{engine="{engine}",num_gpu_blocks="{blocks}"}} 1.0\n'
        f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {used}\n'
        for engine, blocks, used in (("0", 101, 0.5), ("1", 11, 1.0))
    )
    assert report(text, device_block_bytes=10)["device_pool"] == {"capacity_bytes": 1100, "used_bytes": 600}


@pytest.mark.parametrize("name", ["hisparse-0.33", *(f"ordinary-{version}" for version in VERSIONS)])
def test_the_operator_reads_every_report(name: str) -> None:
    read = ResidencyReport.model_validate(report(page(name)))
    assert read.engine.type == "VLLM"
    assert read.requests.running == read.requests.full + read.requests.mixed + read.requests.none > 0


def test_hisparse_without_the_connector_is_an_error_and_not_a_guess() -> None:
    text = "".join(line for line in page("hisparse-0.33").splitlines(keepends=True) if not line.startswith("hisparse_"))
    with pytest.raises(MetricsError, match=r"next step: start vLLM with .*telemetry\.connector"):
        report(text)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "no vllm:num_requests_running among 0 characters"),
        ("<html>not found</html>", "no vllm:num_requests_running"),
        (f"{MINIMAL}vllm:num_requests_waiting{{ 1\n", "text format"),
        ("vllm:num_requests_running one\n", "text format"),
        ("x" * (MAX_PAGE_CHARACTERS + 1), f"more than {MAX_PAGE_CHARACTERS}"),
    ],
    ids=["empty", "another page", "open label", "no number", "too long"],
)
def test_what_is_no_page_of_vllm_is_refused(text: str, match: str) -> None:
    with pytest.raises(MetricsError, match=match):
        report(text)


@pytest.mark.parametrize(("value", "counted"), [("NaN", 0), ("-3", 0), ("+Inf", 0), ("1e300", MAX_COUNT), ("2.6", 3)])
def test_numbers_are_kept_within_what_the_operator_accepts(value: str, counted: int) -> None:
    told = report(f'vllm:num_requests_running{{engine="0"}} 1\nvllm:num_requests_waiting{{engine="0"}} {value}\n')
    assert told["requests"]["waiting"] == counted


@pytest.mark.parametrize("label", ["None", "many", "-1", "nan", "0", "1"])
def test_an_odd_number_of_blocks_is_a_pool_of_nothing(label: str) -> None:
    text = f'{MINIMAL}vllm:cache_config_info{{engine="0",num_gpu_blocks="{label}"}} 1\n'
    assert report(text, device_block_bytes=10)["device_pool"] == {"capacity_bytes": 0, "used_bytes": 0}
