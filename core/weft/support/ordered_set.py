"""A set in insertion order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Generic, TypeVar

T = TypeVar("T")


class OrderedSet(MutableSet[T], Generic[T]):
    """A mutable set whose iteration, and `pop`, follow the order of insertion.

    >>> OrderedSet([3, 1, 3])
    OrderedSet([3, 1])
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: dict[T, None] = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: T) -> None:
        """Add an item at the end, or leave it where it is."""
        self._items[value] = None

    def discard(self, value: T) -> None:
        """Remove an item if it is there."""
        self._items.pop(value, None)

    def update(self, items: Iterable[T]) -> None:
        """Add several items in order."""
        for item in items:
            self._items[item] = None

    def __repr__(self) -> str:
        return f"OrderedSet({list(self._items)})"
