"""Numbers that follow from unknown lengths: kernels read them from a table, which they load first.

The text of a kernel has a name in place of each of them, and so serves many lengths.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.guards import NUMBER, NUMBER_IN_TEXT, UnknownLengthError, with_numbers
from weft.plan.buffers import CONSTANT, Buffer

TABLE = TensorDescription((1,), dtypes.int64, (8,), 0, Buffer(CONSTANT, 0, -1))
"""What stands for the table of a program until its numbers are known."""

_SIZE = r"(?:\[[^\]]*\])"
_ARRAY = re.compile(
    rf" *(?:[\w ]+ )?\w+ \w+{_SIZE}*\[[^\]]*\b{NUMBER}\d+_[^\]]*\]{_SIZE}*(?= = {{|[,;])"
)
_LOADS = re.compile(rf"^    const i\d\d {NUMBER}.*$", re.MULTILINE)


def loads(body: str, table: str) -> str:
    """Return the line that loads the numbers of a body from a table; empty if it has none."""
    used = {found[0]: int(found[1]) for found in NUMBER_IN_TEXT.finditer(body)}
    kinds = {name: "i64" if name.endswith("L") else "i32" for name in used}
    parts = [
        f"const {kinds[name]} {name} = ({kinds[name]}){table}[{place}];"
        for name, place in used.items()
    ]
    return f"    {' '.join(parts)}\n" if parts else ""


def require_constant_sizes(body: str) -> None:
    """Raise UnknownLengthError for an array whose size is a number that a call tells."""
    for line in body.split("\n"):
        if NUMBER in line and (found := _ARRAY.match(line)):
            text = found[0].strip()
            raise UnknownLengthError(f"the size of an array depends on a length: {text}")


def readable(text: str, numbers: Sequence[int] | None) -> str:
    """Return a program with its numbers in place of their names, line by line."""
    return text if numbers is None else with_numbers(_LOADS.sub("", text), numbers)
