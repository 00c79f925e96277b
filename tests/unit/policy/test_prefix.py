from hisparse_runtime.policy import extend_page_hashes


def hashes_of(tokens: list[int]) -> list[bytes]:
    hashes: list[bytes] = []
    extend_page_hashes(hashes, tokens, page_tokens=4)
    return hashes


def test_only_full_pages_are_named() -> None:
    assert [len(hashes_of(list(range(count)))) for count in (3, 4, 7, 8)] == [0, 1, 1, 2]


def test_hash_names_everything_up_to_the_page() -> None:
    first, second = hashes_of([1, 2, 3, 4, 5, 6, 7, 8])
    assert first != second
    assert hashes_of([1, 2, 3, 4, 9, 9, 9, 9])[0] == first
    assert hashes_of([9, 2, 3, 4, 5, 6, 7, 8])[1] != second


def test_extending_gives_the_same_hashes_as_starting_anew() -> None:
    hashes: list[bytes] = []
    extend_page_hashes(hashes, [1, 2, 3, 4], page_tokens=4)
    extend_page_hashes(hashes, [1, 2, 3, 4, 5, 6, 7, 8], page_tokens=4)
    assert hashes == hashes_of([1, 2, 3, 4, 5, 6, 7, 8])
