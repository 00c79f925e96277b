"""Pages of 4 tokens: page 0 is resident in block 5, pages 1 and 2 are on the host in blocks 7 and 3, hot are blocks 10 and 12."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hisparse_runtime.kernels import HotRows, Resolution, ResolveError, resolve

RESIDENT, HOST, HOT_BLOCKS = [5, 0, 0], [2, 7, 3], [10, 12]


def ints(values: list[int]) -> NDArray[np.int64]:
    return np.asarray(values, dtype=np.int64)


def run(positions: list[int], hot: HotRows | None, *, resident: list[int] = RESIDENT) -> Resolution:
    return resolve(ints(positions), resident=ints(resident), host=ints(HOST), hot_blocks=ints(HOT_BLOCKS), hot=hot, page_tokens=4)


def test_resident_rows_are_read_in_place_and_leave_the_region_alone() -> None:
    hot = HotRows(4)
    resolution = run([0, 3], hot)
    assert resolution.device_rows.tolist() == [20, 23]
    assert (resolution.num_hits, resolution.num_misses) == (0, 0)
    assert hot.order.tolist() == [0, 1, 2, 3]


def test_misses_take_the_oldest_slots_in_order_of_the_selection() -> None:
    hot = HotRows(5)
    resolution = run([1, 4, 9], hot)
    # host rows 7 x 4 + 0 and 3 x 4 + 1 go to slots 0 and 1 of block 10
    assert resolution.miss_host_rows.tolist() == [28, 13]
    assert resolution.miss_device_rows.tolist() == [40, 41]
    assert resolution.device_rows.tolist() == [21, 40, 41]
    assert hot.order.tolist() == [2, 3, 4, 0, 1]


def test_hits_become_the_newest_and_are_not_copied_again() -> None:
    hot = HotRows(5)
    run([4, 5, 6], hot)
    resolution = run([4, 8], hot)
    assert resolution.num_hits == 1
    assert resolution.miss_host_rows.tolist() == [12]
    # slot 3 is the last of block 10
    assert resolution.device_rows.tolist() == [40, 43]
    # not selected: 4 (never used), 1, 2; then the miss, then the hit
    assert hot.order.tolist() == [4, 1, 2, 3, 0]


def test_second_page_of_the_region_is_its_second_block() -> None:
    hot = HotRows(8)
    resolution = run([4, 5, 6, 7, 8], hot)
    assert resolution.device_rows.tolist() == [40, 41, 42, 43, 48]


def test_row_used_longest_ago_is_evicted_first() -> None:
    hot = HotRows(2)
    run([4], hot)
    run([5], hot)
    run([4], hot)
    run([6], hot)
    assert sorted(hot.host_rows.tolist()) == [28, 30]


def test_selection_as_large_as_the_region_fits() -> None:
    hot = HotRows(3)
    run([4, 5, 6], hot)
    resolution = run([6, 7, 8], hot)
    assert (resolution.num_hits, resolution.num_misses) == (1, 2)
    assert len(set(resolution.device_rows.tolist())) == 3


def test_scrubbed_rows_are_copied_again() -> None:
    hot = HotRows(4)
    run([4, 8], hot)
    hot.scrub(ints([7]), page_tokens=4)
    resolution = run([4, 8], hot)
    assert resolution.miss_host_rows.tolist() == [28]
    assert resolution.num_hits == 1


def test_empty_slots_are_no_rows_of_block_minus_one() -> None:
    hot = HotRows(2)
    hot.scrub(ints([-1, 0]), page_tokens=4)
    assert hot.host_rows.tolist() == [-1, -1]


def test_region_smaller_than_the_selection_is_an_error() -> None:
    with pytest.raises(ResolveError, match="3 selected rows are on the host only, the hot region has 2 rows"):
        run([4, 5, 6], HotRows(2))
    with pytest.raises(ResolveError, match="the hot region has 0 rows"):
        run([4], None)


def test_page_that_is_nowhere_is_an_error() -> None:
    with pytest.raises(ResolveError, match="position 5 is neither on the device nor on the host"):
        resolve(ints([5]), resident=ints([1, 0]), host=ints([1, 0]), hot_blocks=ints([9]), hot=HotRows(4), page_tokens=4)


def test_random_selections_agree_with_an_ordered_dictionary() -> None:
    generator = np.random.default_rng(5)
    hot, num_rows = HotRows(8), 8
    model: dict[int, None] = {}
    resident = [0, 0, 0]
    for _ in range(200):
        positions = sorted(generator.choice(12, size=int(generator.integers(1, 9)), replace=False).tolist())
        keys = [HOST[position // 4] * 4 + position % 4 for position in positions]
        hits = [key for key in keys if key in model]
        resolution = run(positions, hot, resident=resident)
        assert resolution.num_hits == len(hits)
        assert resolution.miss_host_rows.tolist() == [key for key in keys if key not in hits]
        order_before = list(model)
        for key in keys:
            model.pop(key, None)
        for key in order_before:
            if len(model) + len(keys) > num_rows:
                model.pop(key, None)
        model.update(dict.fromkeys(key for key in keys if key not in hits))
        model.update(dict.fromkeys(key for key in order_before if key in hits))
        assert set(hot.host_rows[hot.host_rows >= 0].tolist()) == set(model)
        held = {int(row): slot for slot, row in enumerate(hot.host_rows)}
        slots = resolution.device_rows // 4 * 4
        assert all(slot in (40, 48) for slot in slots)
        for key, row in zip(keys, resolution.device_rows.tolist(), strict=True):
            assert HOT_BLOCKS[held[key] // 4] * 4 + held[key] % 4 == row
