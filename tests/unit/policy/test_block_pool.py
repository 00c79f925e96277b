import numpy as np
import pytest
from numpy.typing import NDArray

from hisparse_runtime.policy.block_pool import BlockPool, PoolExhaustedError
from hisparse_runtime.policy.prefix import PageNames


def ids(*blocks: int) -> NDArray[np.int32]:
    return np.array(blocks, dtype=np.int32)


def order(pool: BlockPool) -> list[int]:
    return [int(block) for block in pool.queue.in_order()]


def test_null_block_is_never_handed_out() -> None:
    pool = BlockPool(name="device", num_blocks=5)
    assert sorted(pool.take(4).tolist()) == [1, 2, 3, 4]
    assert (pool.num_free, pool.num_held, pool.num_usable) == (0, 4, 4)


def test_too_many_blocks_are_refused_with_the_numbers_and_none_is_taken() -> None:
    pool = BlockPool(name="host", num_blocks=4)
    pool.take(1)
    with pytest.raises(PoolExhaustedError, match="host pool: 3 blocks asked for, 2 of 3 are free"):
        pool.take(3)
    assert pool.num_free == 2


def test_blocks_without_a_name_are_handed_out_next_and_those_with_one_last() -> None:
    pool = BlockPool(name="device", num_blocks=7)
    taken = pool.take(4)
    pool.publish([b"first", b"second"], taken[:2].tolist())
    pool.release(taken[::-1])
    assert order(pool) == [4, 3, 5, 6, 2, 1]
    assert pool.num_cached == 2


def test_blocks_that_somebody_still_reads_are_handed_out_last() -> None:
    pool = BlockPool(name="device", num_blocks=5)
    taken = pool.take(2)
    pool.release_to_tail(taken)
    assert order(pool) == [3, 4, 1, 2]


def test_held_block_leaves_the_free_ones_and_needs_as_many_releases() -> None:
    pool = BlockPool(name="host", num_blocks=4)
    names = PageNames(list(range(4)), page_tokens=4)
    block = pool.take(1)
    pool.publish(names.between(0, 1), block.tolist())
    pool.release(block)
    assert pool.count_free(block) == 1
    pool.hold(block)
    pool.hold(block)
    assert (pool.count_free(block), pool.num_free, pool.num_cached) == (0, 2, 0)
    pool.release(block)
    assert pool.num_free == 2
    pool.release(block)
    assert pool.num_free == 3
    assert pool.find(names, max_pages=1).tolist() == block.tolist()


def test_name_is_gone_when_its_block_is_handed_out() -> None:
    taken: list[int] = []
    pool = BlockPool(name="host", num_blocks=3, on_taken=lambda blocks: taken.extend(blocks.tolist()))
    names = PageNames(list(range(8)), page_tokens=4)
    blocks = pool.take(2)
    pool.publish(names.between(0, 2), blocks.tolist())
    pool.release(blocks[::-1])
    assert pool.find(names, max_pages=2).tolist() == [1, 2]
    assert pool.take(1).tolist() == [2]  # the tail of the prefix goes first
    assert pool.find(names, max_pages=2).tolist() == [1]
    assert taken == [1, 2, 2]


def test_release_of_a_free_block_is_an_error() -> None:
    pool = BlockPool(name="device", num_blocks=3)
    with pytest.raises(AssertionError, match="nobody holds one of the released blocks"):
        pool.release(ids(1))
