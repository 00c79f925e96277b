import pytest

from hisparse_runtime.policy import BlockPool, PoolExhaustedError


def make_pool(num_blocks: int) -> tuple[BlockPool, list[int]]:
    reused: list[int] = []
    return BlockPool(name="test", num_blocks=num_blocks, on_reuse=reused.append), reused


def test_null_block_is_never_handed_out() -> None:
    pool, _ = make_pool(4)
    assert pool.take(3) == [1, 2, 3]
    assert pool.num_free == 0


def test_taking_more_than_is_free_takes_nothing() -> None:
    pool, _ = make_pool(4)
    with pytest.raises(PoolExhaustedError, match="4 blocks asked for, 3 of 3 free"):
        pool.take(4)
    assert pool.num_free == 3


def test_kept_blocks_are_handed_out_last_and_oldest_first() -> None:
    pool, reused = make_pool(5)
    pool.take(4)
    for block in (2, 1):
        pool.release(block, keep=True)
    pool.release(3)
    assert pool.take(3) == [3, 2, 1]
    assert reused == [2, 1]


def test_touched_block_outlives_the_others() -> None:
    pool, reused = make_pool(3)
    pool.take(2)
    pool.release(1, keep=True)
    pool.release(2, keep=True)
    pool.touch(1)
    pool.take(1)
    assert reused == [2]


def test_retained_kept_block_is_held_again_and_free_after_its_last_holder() -> None:
    pool, reused = make_pool(2)
    pool.take(1)
    pool.release(1, keep=True)
    pool.retain(1)
    pool.retain(1)
    assert (pool.num_free, pool.num_kept, pool.references(1)) == (0, 0, 2)
    pool.release(1)
    assert pool.num_free == 0
    pool.release(1)
    assert pool.take(1) == [1]
    assert reused == []


def test_dropped_block_is_plain_free() -> None:
    pool, reused = make_pool(3)
    pool.take(2)
    pool.release(1, keep=True)
    pool.release(2, keep=True)
    pool.drop(2)
    assert pool.take(1) == [2]
    assert reused == []


def test_releasing_an_unheld_block_is_refused() -> None:
    pool, _ = make_pool(2)
    with pytest.raises(AssertionError, match="nobody holds it"):
        pool.release(1)
