"""A dictionary from names of pages, in many parts: one as long as a pool would hold up a step by milliseconds as it grows."""

from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ByName(Generic[Value]):
    """The entry of a name, if there is one, is in `parts[name[0]]`. A name is a digest: the parts are about equally long."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: tuple[dict[bytes, Value], ...] = tuple({} for _ in range(256))

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def items(self) -> Iterator[tuple[bytes, Value]]:
        return chain.from_iterable(part.items() for part in self.parts)
