"""Names of pages that depend on everything before them, and the index from name to block."""

from collections.abc import Sequence
from hashlib import blake2b

_DIGEST_BYTES = 16


def extend_page_hashes(hashes: list[bytes], tokens: Sequence[int], *, page_tokens: int) -> None:
    """Appends the hashes of pages that `tokens` fills and `hashes` does not name yet. Equal hash: equal tokens up to there."""
    for page in range(len(hashes), len(tokens) // page_tokens):
        digest = blake2b(hashes[-1] if hashes else b"", digest_size=_DIGEST_BYTES)
        for token in tokens[page * page_tokens : (page + 1) * page_tokens]:
            digest.update(token.to_bytes(4, "little"))
        hashes.append(digest.digest())


class PrefixIndex:
    """hash <-> block of one pool. A block has one hash, a hash one block."""

    def __init__(self) -> None:
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}

    def find(self, page_hash: bytes) -> int | None:
        return self._block_of.get(page_hash)

    def publish(self, page_hash: bytes, block: int) -> bool:
        """True if `block` is now what `page_hash` names; False if another block already is."""
        known = self._block_of.setdefault(page_hash, block)
        if known == block:
            self._hash_of[block] = page_hash
        return known == block

    def forget(self, block: int) -> None:
        """The block is handed out for another content."""
        del self._block_of[self._hash_of.pop(block)]

    def names(self, block: int) -> bool:
        return block in self._hash_of

    def blocks(self) -> set[int]:
        return set(self._hash_of)
