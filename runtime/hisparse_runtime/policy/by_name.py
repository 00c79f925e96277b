"""A dictionary from names of pages, in many parts: one as long as a pool would hold up a step by milliseconds as it grows."""

from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ByName(Generic[Value]):
    """Parts are chosen by the first byte of a name, which is a digest: they are about equally long."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: tuple[dict[bytes, Value], ...] = tuple({} for _ in range(256))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def part(self, name: bytes) -> dict[bytes, Value]:
        """The dictionary in which this name is, or would be."""
        return self._parts[name[0]]

    def items(self) -> Iterator[tuple[bytes, Value]]:
        return chain.from_iterable(part.items() for part in self._parts)
