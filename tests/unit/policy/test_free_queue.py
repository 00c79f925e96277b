"""The queue against a plain list, through whatever sequence of operations."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hisparse_runtime.policy.free_queue import FreeQueue

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["pop", "append", "prepend", "remove"]), st.integers(0, 12), st.randoms()), max_size=150
)


def blocks(numbers: list[int]) -> NDArray[np.int32]:
    return np.array(numbers, dtype=np.int32)


@given(num_blocks=st.integers(1, 40), operations=OPERATIONS)
def test_order_is_that_of_a_list(num_blocks: int, operations: list[tuple[str, int, object]]) -> None:
    queue, model, out = FreeQueue(num_blocks), list(range(1, num_blocks)), list[int]()
    for name, size, chance in operations:
        if name == "pop":
            count = min(size, len(model))
            assert queue.pop(count).tolist() == model[:count]
            out += model[:count]
            del model[:count]
        elif name == "remove":
            chosen = chance.sample(model, min(size, len(model)))  # type: ignore[attr-defined]
            queue.remove(blocks(chosen))
            out += chosen
            model = [block for block in model if block not in chosen]
        else:
            moved = chance.sample(out, min(size, len(out)))  # type: ignore[attr-defined]
            out = [block for block in out if block not in moved]
            getattr(queue, name)(blocks(moved))
            model = model + moved if name == "append" else moved + model
        assert queue.num_free == len(model)
        assert queue.in_order().tolist() == model


def test_block_that_comes_and_goes_leaves_the_others_in_order_for_ever() -> None:
    queue = FreeQueue(10)
    for _ in range(1000):
        queue.remove(blocks([5]))
        queue.append(blocks([5]))
    assert queue.in_order().tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 5]


def test_first_block_is_found_behind_more_gaps_than_are_looked_at_once() -> None:
    queue = FreeQueue(500)
    queue.remove(np.arange(1, 400, dtype=np.int32))
    assert queue.pop(1).tolist() == [400]
    assert queue.pop(3).tolist() == [401, 402, 403]


def test_blocks_in_front_of_the_first_place_of_the_ring_are_found_and_taken_out() -> None:
    queue = FreeQueue(10)
    queue.pop(1)
    queue.remove(blocks([5, 6]))
    queue.prepend(blocks([1, 5, 6]))  # two of them at the ring's end, one at its start
    assert queue.pop(3).tolist() == [1, 5, 6]
    queue.prepend(blocks([1, 5, 6]))
    queue.remove(blocks([6]))
    assert queue.in_order().tolist() == [1, 5, 2, 3, 4, 7, 8, 9]
