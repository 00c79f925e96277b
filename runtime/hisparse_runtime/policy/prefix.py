"""Names of pages that depend on everything before them, and the index from a name to the blocks that hold it."""

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct

from hisparse_runtime.policy.by_name import ByName

_DIGEST_BYTES = 16


class PageNames:
    """Names of the full pages of a growing list of tokens, worked out when they are asked for.

    Equal names: equal tokens up to the end of the page. The list may only grow.
    """

    __slots__ = ("_names", "_pack", "_page_tokens", "_tokens")

    def __init__(self, tokens: Sequence[int], *, page_tokens: int) -> None:
        self._tokens = tokens
        self._page_tokens = page_tokens
        self._pack = Struct(f"{page_tokens}q").pack
        self._names: list[bytes] = []

    @property
    def num_full(self) -> int:
        """Pages that have a name: every token of theirs is known."""
        return len(self._tokens) // self._page_tokens

    def __getitem__(self, page: int) -> bytes:
        return self.between(page, page + 1)[0]

    def between(self, start: int, stop: int) -> list[bytes]:
        """Of the pages from `start` up to `stop`, which are full."""
        names, size = self._names, self._page_tokens
        for first in range(len(names) * size, stop * size, size):
            text = self._pack(*self._tokens[first : first + size])
            names.append(blake2b(text, key=names[-1] if names else b"", digest_size=_DIGEST_BYTES).digest())
        return names[start:stop]


class PrefixIndex:
    """name -> blocks of one pool with that content, the one named first in front; block -> its name.

    Requests that compute the same page side by side each have a block of it: tables are never rewritten to share one.
    """

    __slots__ = ("_blocks", "_names")

    def __init__(self, num_blocks: int) -> None:
        self._blocks: ByName[int | list[int]] = ByName()
        self._names: list[bytes | None] = [None] * num_blocks

    def __len__(self) -> int:
        """Different contents."""
        return len(self._blocks)

    def find(self, name: bytes) -> int | None:
        found = self._blocks.parts[name[0]].get(name)
        return found[0] if isinstance(found, list) else found

    def name_of(self, block: int) -> bytes | None:
        return self._names[block]

    def add(self, names: list[bytes], blocks: list[int]) -> None:
        """From now on each of `blocks` has the content of that name."""
        parts, name_of = self._blocks.parts, self._names
        for name, block in zip(names, blocks, strict=True):
            name_of[block] = name
            found = parts[name[0]]
            others = found.setdefault(name, block)
            if isinstance(others, list):
                others.append(block)
            elif others != block:
                found[name] = [others, block]

    def forget(self, blocks: list[int]) -> None:
        """They are handed out for another content."""
        parts, name_of = self._blocks.parts, self._names
        for block in blocks:
            name = name_of[block]
            assert name is not None, f"block {block} has no name"
            name_of[block] = None
            found = parts[name[0]]
            others = found[name]
            if isinstance(others, list):
                others.remove(block)
                if len(others) == 1:
                    found[name] = others[0]
            else:
                del found[name]

    def named_blocks(self) -> dict[int, bytes]:
        return {block: name for block, name in enumerate(self._names) if name is not None}
