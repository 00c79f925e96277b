"""The coordinator, step by step, with pages of 4 tokens and regions of 2 blocks."""

from collections.abc import Sequence

import pytest

from hisparse_runtime.policy import (
    CopyDirection,
    IntegrityError,
    Limits,
    PageState,
    Residency,
    ResidencyClass,
    check_integrity,
    extend_page_hashes,
)


def make(*, device: int = 40, host: int = 40, offload: int = 40) -> Residency:
    return Residency(
        Limits(
            page_tokens=4,
            num_device_blocks=device,
            num_host_blocks=host,
            num_offload_blocks=offload,
            hot_rows=8,
            max_model_len=64,
            max_num_seqs=4,
            max_num_batched_tokens=8,
        )
    )


def hashes_of(tokens: Sequence[int]) -> list[bytes]:
    hashes: list[bytes] = []
    extend_page_hashes(hashes, tokens, page_tokens=4)
    return hashes


def compute(residency: Residency, request_id: str, *, num_tokens: int) -> None:
    """A step that computes the request up to `num_tokens`, and the acknowledgement of its copies."""
    assert residency.grow(request_id=request_id, num_tokens=num_tokens)
    residency.seal(request_id=request_id, num_computed_tokens=num_tokens)
    residency.acknowledge([write_back.transfer_id for write_back in residency.take_write_backs()])
    check_integrity(residency)


def admit(residency: Residency, request_id: str, *, num_tokens: int, first_token: int = 0) -> bool:
    tokens = list(range(first_token, first_token + num_tokens))
    return residency.admit(request_id=request_id, num_tokens=num_tokens, page_hashes=hashes_of(tokens))


def states(residency: Residency, request_id: str) -> list[PageState]:
    return residency.tables[request_id].states


def test_sealed_page_is_copied_at_once_and_clean_after_the_acknowledgement() -> None:
    residency = make()
    admit(residency, "a", num_tokens=6)
    residency.grow(request_id="a", num_tokens=6)
    residency.seal(request_id="a", num_computed_tokens=6)
    assert states(residency, "a") == [PageState.PENDING, PageState.DIRTY]
    (write_back,) = residency.take_write_backs()
    table = residency.tables["a"]
    assert (write_back.device_block, write_back.host_block) == (table.resident[0], table.host[0])
    residency.acknowledge([write_back.transfer_id])
    assert states(residency, "a") == [PageState.CLEAN_PINNED, PageState.DIRTY]
    check_integrity(residency)


def test_without_pressure_nothing_is_given_back() -> None:
    residency = make(device=100)
    admit(residency, "a", num_tokens=24)
    compute(residency, "a", num_tokens=24)
    residency.relieve(request_id="a", num_tokens=24)
    assert residency.tables["a"].hot == ()
    assert residency.tables["a"].residency is ResidencyClass.FULL


def test_under_pressure_clean_pages_but_the_last_two_are_unpinned_and_still_on_the_device() -> None:
    residency = make(device=14)
    admit(residency, "a", num_tokens=20)
    compute(residency, "a", num_tokens=20)
    residency.relieve(request_id="a", num_tokens=20)
    # 13 usable blocks: 5 resident, 5 indexer, 2 hot; the three unpinned ones count as free
    assert states(residency, "a") == [PageState.UNPINNED] * 3 + [PageState.CLEAN_PINNED] * 2
    assert residency.device.num_free == 13 - 5 - 5 - 2 + 3
    assert residency.tables["a"].residency is ResidencyClass.FULL
    check_integrity(residency)


def test_pool_takes_unpinned_pages_last_and_the_later_page_first() -> None:
    residency = make(device=14)
    admit(residency, "a", num_tokens=20)
    compute(residency, "a", num_tokens=20)
    residency.relieve(request_id="a", num_tokens=20)
    assert len(residency.device.take(1)) == 1
    before = residency.tables["a"].residency
    (lost,) = residency.device.take(1)
    assert states(residency, "a")[2] is PageState.HOST_ONLY
    assert residency.tables["a"].resident[2] == 0
    assert lost not in residency.tables["a"].resident
    assert [before, residency.tables["a"].residency] == [ResidencyClass.FULL, ResidencyClass.MIXED]


def test_short_request_takes_no_region_larger_than_what_it_could_give_back() -> None:
    residency = make(device=16)
    admit(residency, "a", num_tokens=16)
    compute(residency, "a", num_tokens=16)
    residency.relieve(request_id="a", num_tokens=16)
    assert residency.tables["a"].hot == ()


def test_finished_prefix_is_found_again_on_the_host_with_a_hot_region() -> None:
    residency = make()
    admit(residency, "a", num_tokens=10)
    compute(residency, "a", num_tokens=10)
    blocks, indexers = list(residency.tables["a"].host), list(residency.tables["a"].indexer)
    residency.release(request_id="a", page_hashes=hashes_of(range(10)))
    stores = residency.take_indexer_copies()
    assert [(copy.direction, copy.device_block) for copy in stores] == [(CopyDirection.STORE, block) for block in indexers[1::-1]]
    assert (residency.host.num_held, residency.host.num_kept, residency.device.num_held) == (0, 2, 0)

    assert admit(residency, "b", num_tokens=10)
    table = residency.tables["b"]
    assert (table.host, table.resident, table.num_hit_pages) == (blocks[:2], [0, 0], 2)
    assert len(table.hot) == 2
    assert table.residency is ResidencyClass.NONE
    loads = residency.take_indexer_copies()
    assert [(copy.direction, copy.device_block) for copy in loads] == [(CopyDirection.LOAD, block) for block in table.indexer]
    assert [copy.offload_block for copy in loads] == [copy.offload_block for copy in reversed(stores)]
    check_integrity(residency)


def test_last_token_of_a_cached_prompt_is_left_to_compute() -> None:
    residency = make()
    admit(residency, "a", num_tokens=8)
    compute(residency, "a", num_tokens=8)
    residency.release(request_id="a", page_hashes=hashes_of(range(8)))
    admit(residency, "b", num_tokens=8)
    assert residency.tables["b"].num_hit_pages == 1


def test_hit_ends_where_the_offload_tier_ends() -> None:
    residency = make(offload=2)
    admit(residency, "a", num_tokens=12)
    compute(residency, "a", num_tokens=12)
    residency.release(request_id="a", page_hashes=hashes_of(range(12)))
    assert residency.host.num_kept == 3
    admit(residency, "b", num_tokens=13)
    assert residency.tables["b"].num_hit_pages == 1, "the only offload block holds the head of the prefix"
    check_integrity(residency)


def test_two_requests_share_a_cached_prefix() -> None:
    residency = make()
    admit(residency, "a", num_tokens=8)
    compute(residency, "a", num_tokens=8)
    residency.release(request_id="a", page_hashes=hashes_of(range(8)))
    for request_id in ("b", "c"):
        assert admit(residency, request_id, num_tokens=9)
    (block, second) = residency.tables["b"].host
    assert residency.tables["c"].host == [block, second]
    assert residency.host.references(block) == 2
    check_integrity(residency)
    residency.release(request_id="b", page_hashes=hashes_of(range(8)))
    assert residency.host.references(block) == 1
    check_integrity(residency)


def test_request_that_ends_with_a_copy_under_way_holds_its_blocks_until_the_acknowledgement() -> None:
    residency = make()
    admit(residency, "a", num_tokens=4)
    residency.grow(request_id="a", num_tokens=4)
    residency.seal(request_id="a", num_computed_tokens=4)
    (write_back,) = residency.take_write_backs()
    residency.release(request_id="a", page_hashes=hashes_of(range(4)))
    assert "a" not in residency.tables
    assert (residency.host.num_held, residency.device.num_held) == (1, 2)
    check_integrity(residency)
    residency.acknowledge([write_back.transfer_id])
    assert (residency.host.num_held, residency.host.num_kept, residency.device.num_held) == (0, 1, 0)
    check_integrity(residency)


def test_full_host_pool_refuses_admission_and_growth() -> None:
    residency = make(host=6)
    assert admit(residency, "a", num_tokens=12)
    compute(residency, "a", num_tokens=12)
    assert not admit(residency, "b", num_tokens=12, first_token=100)
    assert admit(residency, "b", num_tokens=8, first_token=100)
    compute(residency, "b", num_tokens=8)
    assert not residency.grow(request_id="a", num_tokens=13)
    assert residency.tables["a"].num_pages == 3
    check_integrity(residency)


def test_cached_prefixes_give_way_to_running_requests() -> None:
    residency = make(host=6)
    admit(residency, "a", num_tokens=12)
    compute(residency, "a", num_tokens=12)
    residency.release(request_id="a", page_hashes=hashes_of(range(12)))
    assert admit(residency, "b", num_tokens=16, first_token=100)
    compute(residency, "b", num_tokens=16)
    assert residency.host.num_kept == 1
    check_integrity(residency)


def test_admission_refused_for_device_blocks_is_pressure_for_running_requests() -> None:
    residency = make(device=38)
    admit(residency, "a", num_tokens=32)
    compute(residency, "a", num_tokens=32)
    residency.relieve(request_id="a", num_tokens=32)
    assert residency.tables["a"].hot == ()
    # 21 blocks are free; 16 indexer pages, a window of 5 and a hot region of 2 are 23
    assert not admit(residency, "b", num_tokens=64, first_token=100)
    residency.relieve(request_id="a", num_tokens=32)
    assert len(residency.tables["a"].hot) == 2
    assert states(residency, "a").count(PageState.UNPINNED) == 6
    assert admit(residency, "b", num_tokens=64, first_token=100)


def test_recount_finds_a_lost_reference() -> None:
    residency = make()
    admit(residency, "a", num_tokens=4)
    compute(residency, "a", num_tokens=4)
    residency.host.release(residency.tables["a"].host[0])
    with pytest.raises(IntegrityError, match="host block 1: 1 holders, 0 references"):
        check_integrity(residency)
