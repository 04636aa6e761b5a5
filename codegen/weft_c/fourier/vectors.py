"""Vectors of parts of complex numbers: their accesses to memory, and their shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.dtypes import DType
from weft_c.fourier.butterflies import Complex
from weft_c.source.code import Code
from weft_c.source.functions import ctype


class Vectors:
    """Writes values of some lanes in memory and in registers.

    Attributes
    ----------
    code
        The function that they are part of.
    lanes
        The number of lanes, a power of 2.
    type
        The type of a value in C.
    """

    def __init__(self, code: Code, dtype: DType, lanes: int) -> None:
        self.code = code
        self.lanes = lanes
        self.element = ctype(dtype)
        self.type = f"{self.element}x{lanes}" if lanes > 1 else self.element
        if lanes > 1:
            attribute = f"__attribute__((aligned({dtype.itemsize})))"
            code.declare(f"typedef {self.type} near_{self.type} {attribute};")

    def load(self, address: str) -> str:
        """Return the values from an address on."""
        if self.lanes == 1:
            return f"*({address})"
        return f"*(GLOBAL const near_{self.type} *)({address})"

    def store(self, address: str, value: str) -> None:
        """Write the statement that stores values from an address on."""
        target = f"*(GLOBAL near_{self.type} *)" if self.lanes > 1 else "*"
        self.code.line(f"{target}({address}) = {value};")

    def define(self, value: str, hint: str = "v") -> str:
        """Define a variable."""
        return self.code.define(f"const {self.type}", hint, value)

    def load_pairs(self, address: str) -> Complex:
        """Return as many pairs as there are lanes, from an address on."""
        if self.lanes == 1:
            return Complex(self.define(f"({address})[0]"), self.define(f"({address})[1]"))
        x, y = self.define(self.load(address)), self.define(self.load(f"{address} + {self.lanes}"))
        lanes = range(self.lanes // 2)
        even = [(0, 2 * n) for n in lanes] + [(1, 2 * n) for n in lanes]
        odd = [(side, n + 1) for side, n in even]
        return Complex(*[self.define(self.shuffled(name, order, x, y))
                         for name, order in (("even", even), ("odd", odd))])  # fmt: skip

    def store_pairs(self, address: str, value: Complex) -> None:
        """Write the statements that store pairs from an address on."""
        for number, part in enumerate(self.interleaved(value)):
            self.store(f"{address} + {number * self.lanes}", part)

    def interleaved(self, values: Sequence[str]) -> list[str]:
        """Return 2^n vectors whose lanes in a row are the first lanes of all, the second, ...

        A step moves the highest bit of a lane's number among all lanes to its end.
        """
        found, half = list(values), len(values) // 2
        if self.lanes == 1:
            return found
        for _ in range(half.bit_length()):
            found = [
                self.define(self._zipped(side, found[n], found[n + half]))
                for n in range(half)
                for side in range(2)
            ]
        return found

    def _zipped(self, side: int, x: str, y: str) -> str:
        first = side * self.lanes // 2
        order = [(place, first + n) for n in range(self.lanes // 2) for place in (0, 1)]
        return self.shuffled("zip_high" if side else "zip_low", order, x, y)

    def gathered(self, values: Sequence[str]) -> str:
        """Return a vector of scalars."""
        return values[0] if self.lanes == 1 else f"VECTOR({self.type}, {', '.join(values)})"

    def lane(self, value: str, number: int) -> str:
        """Return a lane of a vector."""
        return value if self.lanes == 1 else f"LANE({value}, {number:x})"

    def shuffled(self, name: str, order: Sequence[tuple[int, int]], *values: str) -> str:
        """Return the call of a function that returns some lanes of its operands.

        `order` has for each lane the number of the operand, and the lane of that.
        """
        names = "xy"[: len(values)]
        lanes = ", ".join(f"LANE({names[operand]}, {lane:x})" for operand, lane in order)
        parameters = ", ".join(f"{self.type} {each}" for each in names)
        function = f"weft_{name}_{self.type}"
        self.code.add_helpers(
            f"FUNCTION {self.type} {function}({parameters}) {{\n"
            f"    return VECTOR({self.type}, {lanes});\n}}\n"
        )
        return f"{function}({', '.join(values)})"
