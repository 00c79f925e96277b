"""Tokens are the same wherever the rows live, however a prompt is cut and whoever runs beside it."""

from collections.abc import Callable

import numpy as np
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
    assert engine.scheduler.counts.preemptions > 0


def test_turns_that_find_their_prefix_on_the_host(make_engine: MakeEngine) -> None:
    """Strangers between the turns take the device pool: indexer pages come back from the offload tier, latents row by row."""
    conversation = list(make_prompts(3, {"start": 150})["start"])
    cached = make_engine(device_blocks=100)
    for turn in range(4):
        fresh = make_engine()
        fresh.add("turn", conversation, output=20)
        answer = fresh.run()["turn"]
        cached.add(f"turn{turn}", conversation, output=20)
        assert cached.run()[f"turn{turn}"] == answer
        conversation += answer + make_prompts(10 + turn, {"next": 21})["next"]
        cached.add(f"stranger{turn}", make_prompts(20 + turn, {"stranger": 400})["stranger"], output=2)
        cached.run()
    assert cached.scheduler.counts.prefix_hit_tokens > 500
    assert cached.counters.misses > 100


def test_prefix_is_computed_again_without_an_offload_tier(make_engine: MakeEngine) -> None:
    """The host has the latents, but sparse attention needs all indexer keys, and those are gone."""
    prompt = make_prompts(3, {"start": 150})["start"]
    engine = make_engine(device_blocks=80, offload_bytes=0)
    engine.add("first", prompt, output=5)
    engine.run()
    engine.add("stranger", make_prompts(20, {"stranger": 450})["stranger"], output=2)
    engine.run()
    engine.add("again", prompt, output=5)
    outputs = engine.run()
    assert outputs["again"] == outputs["first"]
    assert engine.scheduler.counts.prefix_hit_tokens == 0


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
    assert cached.scheduler.counts.prefix_hit_tokens == 3 * 160


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
        report, pools = engine.report(), engine.memory.pools
        tables = list(pools.tables.values())
        assert report.running == len(engine.scheduler.running)
        assert sum(report.residency.values()) == len(tables)
        assert sum(report.pages.values()) == sum(table.num_pages for table in tables)
        full = sum(bool(table.frames.all()) for table in tables)
        none = sum(not table.frames.all() and not table.frames[: table.num_pages][table.valid].any() for table in tables)
        assert report.residency[ResidencyClass.FULL] == full
        assert report.residency[ResidencyClass.NONE] <= none
        assert report.host_pool.used_bytes == int(np.count_nonzero(pools.host.holders)) * 3072
        assert report.regions_in_use == sum(table.hot is not None for table in tables)
        seen.append(report)

    for name, prompt in prompts.items():
        engine.add(name, prompt, output=OUTPUT)
    engine.run(on_step=recount)
    assert max(report.residency[ResidencyClass.MIXED] for report in seen) > 1
    assert (seen[-1].running, seen[-1].finished) == (0, len(prompts))
    assert (seen[-1].device_pool.used_bytes, seen[-1].host_pool.used_bytes) == (0, 0)
    assert seen[-1].mirror_bytes == 3072 * sum((length + OUTPUT - 1) // 16 for length in LENGTHS.values())
