"""Tokens are the same wherever the rows live, however a prompt is cut and whoever runs beside it."""

from collections.abc import Callable

import pytest

from hisparse_runtime.engine.model_config import read_model_config
from hisparse_runtime.policy import ResidencyClass
from tests.unit.engine.bare_engine import CONFIG, BareEngine, make_options, make_prompts

MakeEngine = Callable[..., BareEngine]
LENGTHS = {"a": 200, "b": 90, "c": 310, "d": 17, "e": 256, "f": 128}
OUTPUT = 40


def run_all(engine: BareEngine, prompts: dict[str, list[int]]) -> dict[str, list[int]]:
    for name, prompt in prompts.items():
        engine.add(name, prompt, output=OUTPUT)
    return engine.run()


@pytest.fixture(scope="module")
def prompts() -> dict[str, list[int]]:
    return make_prompts(1, LENGTHS)


@pytest.fixture(scope="module")
def alone(prompts: dict[str, list[int]]) -> dict[str, list[int]]:
    """Every request on an engine of its own, whole prompt in one step, everything resident."""
    outputs: dict[str, list[int]] = {}
    for name, prompt in prompts.items():
        engine = BareEngine(read_model_config(CONFIG), make_options(max_num_batched_tokens=512))
        engine.add(name, prompt, output=OUTPUT)
        outputs |= engine.run()
        assert (engine.most_host_only, engine.counters.misses) == (0, 0)
    # A model that says the same to everybody would prove nothing.
    assert len({tuple(tokens) for tokens in outputs.values()}) == len(outputs)
    assert all(len(set(tokens)) > 5 for tokens in outputs.values())
    return outputs


def test_batch_with_everything_resident(
    make_engine: MakeEngine, prompts: dict[str, list[int]], alone: dict[str, list[int]]
) -> None:
    engine = make_engine()
    assert run_all(engine, prompts) == alone
    assert engine.most_host_only == 0


@pytest.mark.parametrize("budget", [16, 37, 128])
def test_batch_with_most_pages_on_the_host(
    make_engine: MakeEngine, prompts: dict[str, list[int]], alone: dict[str, list[int]], budget: int
) -> None:
    engine = make_engine(device_blocks=80, max_num_batched_tokens=budget)
    assert run_all(engine, prompts) == alone
    assert engine.most_host_only > 20
    assert engine.counters.misses > 500
    assert engine.counters.hits > 50
    assert engine.counters.host_to_device_bytes == engine.counters.misses * 24 * 4


def test_smallest_hot_region(make_engine: MakeEngine, prompts: dict[str, list[int]], alone: dict[str, list[int]]) -> None:
    engine = make_engine(device_blocks=80, device_buffer_size=16)
    assert run_all(engine, prompts) == alone
    assert engine.counters.misses > 500


def test_preemption_by_a_full_host_pool(
    make_engine: MakeEngine, prompts: dict[str, list[int]], alone: dict[str, list[int]]
) -> None:
    # 45 usable host pages: the first four prompts need 41 and grow to 50
    engine = make_engine(host_blocks=46, max_num_batched_tokens=256)
    assert run_all(engine, prompts) == alone
    assert engine.scheduler.counters.preemptions > 0


def test_turns_that_find_their_prefix_on_the_host(make_engine: MakeEngine) -> None:
    def converse(engine: BareEngine, *, keeps_cache: bool) -> list[list[int]]:
        conversation = list(make_prompts(3, {"start": 150})["start"])
        answers = []
        for turn in range(4):
            engine.add(f"turn{turn}", conversation, output=20)
            answer = engine.run()[f"turn{turn}"]
            answers.append(answer)
            conversation += answer + make_prompts(10 + turn, {"next": 21})["next"]
        assert (engine.scheduler.counters.prefix_hit_tokens > 300) is keeps_cache
        return answers

    cached, fresh = make_engine(), make_engine(offload_bytes=0)
    assert converse(cached, keeps_cache=True) == converse(fresh, keeps_cache=False)
    assert cached.counters.misses > 100


def test_concurrent_requests_share_a_cached_prefix(make_engine: MakeEngine) -> None:
    prefix = make_prompts(5, {"prefix": 160})["prefix"]
    tails = make_prompts(6, {"x": 20, "y": 5, "z": 33})
    fresh = make_engine(offload_bytes=0)
    cached = make_engine(device_blocks=80)
    for engine in (fresh, cached):
        engine.add("first", prefix, output=4)
        engine.run()
        for name, tail in tails.items():
            engine.add(name, prefix + tail, output=30)
    cached.step()
    assert cached.report().running == 3
    assert cached.run() == fresh.run()
    assert cached.scheduler.counters.prefix_hit_tokens == 3 * 160


def test_request_with_a_cached_prefix_begins_with_nothing_on_the_device(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompt = make_prompts(7, {"p": 64})["p"]
    engine.add("first", prompt, output=1)
    engine.run()
    engine.add("again", [*prompt, 1], output=5)
    engine.step()
    assert engine.report().residency[ResidencyClass.NONE] == 1
    engine.run()


def test_report_equals_a_recount(make_engine: MakeEngine, prompts: dict[str, list[int]]) -> None:
    engine = make_engine(device_blocks=80)
    seen = []

    def recount() -> None:
        report = engine.report()
        tables = [engine.scheduler.residency.tables[request.request_id] for request in engine.scheduler.running]
        assert sum(report.residency.values()) == report.running == len(tables)
        assert sum(report.pages.values()) == sum(len(table.host) for table in tables)
        full = sum(all(table.resident) for table in tables)
        none = sum(not all(table.resident) and not any(table.resident[: table.num_sealed]) for table in tables)
        assert (report.residency[ResidencyClass.FULL], report.residency[ResidencyClass.NONE]) == (full, none)
        held_host = {block for table in tables for block in table.host}
        leaving = engine.scheduler.residency.leaving.values()
        held_host |= {block for each in leaving for block in each.table.host}
        assert report.host_pool.used_bytes == len(held_host) * 3072
        assert report.regions_in_use == sum(bool(table.hot) for table in tables)
        seen.append(report)

    for name, prompt in prompts.items():
        engine.add(name, prompt, output=OUTPUT)
    engine.run(on_step=recount)
    assert max(report.residency[ResidencyClass.MIXED] for report in seen) > 1
    assert (seen[-1].running, seen[-1].finished) == (0, len(prompts))
    assert (seen[-1].device_pool.used_bytes, seen[-1].host_pool.used_bytes) == (0, 0)
    assert seen[-1].mirror_bytes == 3072 * sum((length + OUTPUT - 1) // 16 for length in LENGTHS.values())
