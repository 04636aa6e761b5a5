"""Butterflies: the C code of transforms of a few numbers in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi, sin, sqrt
from typing import NamedTuple

from weft.ir.dtypes import DType
from weft_c.source.code import Code
from weft_c.source.values import literal


class Complex(NamedTuple):
    """The names of variables with the parts of complex numbers, scalars or vectors."""

    real: str
    imag: str


class Butterfly:
    """Writes transforms of complex numbers of one type.

    Attributes
    ----------
    code
        The function that they are part of.
    dtype
        The dtype of the parts.
    type
        The type of the parts in C.
    """

    def __init__(self, code: Code, dtype: DType, kind: str) -> None:
        self.code = code
        self.dtype = dtype
        self.type = kind

    def define(self, real: str, imag: str) -> Complex:
        """Define a complex number."""
        kind = f"const {self.type}"
        return Complex(self.code.define(kind, "a", real), self.code.define(kind, "b", imag))

    def transform(self, x: Sequence[Complex]) -> list[Complex]:
        """Return the transform: of even and odd elements, or by the sum of the formula."""
        count = len(x)
        if count == 1:
            return list(x)
        if count % 2:
            return self._odd(x)
        even, odd = self.transform(x[::2]), self.transform(x[1::2])
        turned = [self._turned(each, k, count) for k, each in enumerate(odd)]
        sums = [self.sum(a, b) for a, b in zip(even, turned, strict=True)]
        return sums + [self.difference(a, b) for a, b in zip(even, turned, strict=True)]

    def sum(self, x: Complex, y: Complex) -> Complex:
        """Return x + y."""
        return self.define(f"{x.real} + {y.real}", f"{x.imag} + {y.imag}")

    def difference(self, x: Complex, y: Complex) -> Complex:
        """Return x - y."""
        return self.define(f"{x.real} - {y.real}", f"{x.imag} - {y.imag}")

    def product(self, x: Complex, y: Complex) -> Complex:
        """Return x y."""
        return self.define(
            f"{x.real} * {y.real} - {x.imag} * {y.imag}",
            f"{x.real} * {y.imag} + {x.imag} * {y.real}",
        )

    def _turned(self, x: Complex, k: int, count: int) -> Complex:
        """Return x exp(-2πi k / count), for k below half of the count."""
        if k == 0:
            return x
        if 4 * k == count:
            return self.define(x.imag, f"-{x.real}")
        if 8 * k == count:
            root = self._number(sqrt(0.5))
            return self.define(f"{root} * ({x.real} + {x.imag})", f"{root} * ({x.imag} - {x.real})")
        if 8 * k == 3 * count:
            root = self._number(sqrt(0.5))
            return self.define(
                f"{root} * ({x.imag} - {x.real})", f"-{root} * ({x.real} + {x.imag})"
            )
        angle = 2 * pi * k / count
        return self.product(x, Complex(self._number(cos(angle)), self._number(-sin(angle))))

    def _odd(self, x: Sequence[Complex]) -> list[Complex]:
        """Return the transform of an odd number of elements, from sums and differences of pairs."""
        count = len(x)
        half = range(1, count // 2 + 1)
        sums = [self.sum(x[j], x[count - j]) for j in half]
        differences = [self.difference(x[j], x[count - j]) for j in half]
        found: list[Complex] = [self._weighted(x[0], sums, lambda j: 1.0)] * count
        for k in half:

            def angle(j: int, k: int = k) -> float:
                return 2 * pi * (j * k % count) / count

            middle = self._weighted(x[0], sums, lambda j: cos(angle(j)))
            around = self._weighted(None, differences, lambda j: sin(angle(j)))
            found[k] = self.define(
                f"{middle.real} + {around.imag}", f"{middle.imag} - {around.real}"
            )
            found[count - k] = self.define(
                f"{middle.real} - {around.imag}", f"{middle.imag} + {around.real}"
            )
        return found

    def _weighted(
        self, first: Complex | None, terms: Sequence[Complex], weight: Callable[[int], float]
    ) -> Complex:
        parts = []
        for part in range(2):
            texts = [] if first is None else [first[part]]
            for j, term in enumerate(terms, 1):
                factor = weight(j)
                texts.append(
                    term[part] if factor == 1 else f"{self._number(factor)} * {term[part]}"
                )
            parts.append(" + ".join(texts))
        return self.define(*parts)

    def _number(self, value: float) -> str:
        text = literal(value, self.dtype)
        return f"({text})" if value < 0 else text
