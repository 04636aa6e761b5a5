"""Where the complex numbers of transforms are: in arrays of pairs, or in memory between stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from weft_c.fourier.butterflies import Complex
from weft_c.fourier.vectors import Vectors
from weft_c.lowering import Array


class Place(Protocol):
    """Where complex numbers are loaded from and stored to, by the number of an element."""

    def load(self, vectors: Vectors, e: str) -> Complex:
        """Return the elements of a vector, the first of which is `e`."""

    def store(self, vectors: Vectors, e: str, value: Complex) -> None:
        """Write the statements that store the elements of a vector."""


class Parts:
    """Real parts, and imaginary parts at a distance.

    Attributes
    ----------
    at
        The address of an element's real part.
    distance
        That of the imaginary part from it.
    """

    def __init__(self, at: Callable[[str], str], distance: int) -> None:
        self.at = at
        self.distance = distance

    def address(self, e: str, part: int) -> str:
        """Return the address of a part of an element."""
        return f"{self.at(e)} + {self.distance}" if part else self.at(e)

    def load(self, vectors: Vectors, e: str) -> Complex:
        """Return the elements of a vector."""
        return Complex(*[vectors.define(vectors.load(self.address(e, part))) for part in range(2)])

    def store(self, vectors: Vectors, e: str, value: Complex) -> None:
        """Write the statements that store the elements of a vector."""
        for part in range(2):
            vectors.store(self.address(e, part), value[part])


class Pairs:
    """Pairs side by side: of neighboring elements, or of an element of neighboring rows."""

    def __init__(self, pointer: str, stride: int) -> None:
        self.pointer = pointer
        self.stride = stride

    def load(self, vectors: Vectors, e: str) -> Complex:
        """Return the elements of a vector."""
        return vectors.load_pairs(f"{self.pointer} + ({e}) * {self.stride}")

    def store(self, vectors: Vectors, e: str, value: Complex) -> None:
        """Write the statements that store the elements of a vector."""
        vectors.store_pairs(f"{self.pointer} + ({e}) * {self.stride}", value)


class Elements:
    """Pairs anywhere.

    Attributes
    ----------
    array
        The array.
    at
        The indices of a pair, given the element and the lane.
    """

    def __init__(self, array: Array, at: Callable[[str, int], tuple[str, ...]]) -> None:
        self.array = array
        self.at = at

    def load(self, vectors: Vectors, e: str) -> Complex:
        """Return the elements of a vector."""
        parts = [
            [self.array.get(*self.at(e, lane), part) for lane in range(vectors.lanes)]
            for part in range(2)
        ]
        return Complex(*[vectors.define(vectors.gathered(part)) for part in parts])

    def store(self, vectors: Vectors, e: str, value: Complex) -> None:
        """Write the statements that store the elements of a vector."""
        for part in range(2):
            for lane in range(vectors.lanes):
                number = vectors.lane(value[part], lane)
                vectors.code.line(self.array.set(number, *self.at(e, lane), part))


class Swapped:
    """Numbers whose real part is the second one: with these an inverse is a transform."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def load(self, vectors: Vectors, e: str) -> Complex:
        """Return the elements of a vector."""
        return Complex(*reversed(self.place.load(vectors, e)))

    def store(self, vectors: Vectors, e: str, value: Complex) -> None:
        """Write the statements that store the elements of a vector."""
        self.place.store(vectors, e, Complex(*reversed(value)))
