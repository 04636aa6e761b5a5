"""Entry points: the kernels of a program as a driver sees them, of one or several functions.

Drivers such as PoCL compile and link each kernel separately, at a fixed cost of 25 ms, and cache a
library for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft_c.source.code import Code

if TYPE_CHECKING:
    from weft_c.dialect import Dialect
    from weft_c.source.functions import Function


@dataclass(frozen=True)
class EntryPoint:
    """A kernel with one function, or with several as cases that its first argument selects.

    Attributes
    ----------
    functions
        The functions, by name.
    """

    functions: Mapping[str, Function]

    @property
    def has_cases(self) -> bool:
        """Whether there are several functions, so that the first argument is a case index."""
        return len(self.functions) > 1

    @property
    def name(self) -> str:
        """The kernel's name, unique in a program; that of the function if it is the only one."""
        first = next(iter(self.functions))
        return f"{first}_and_{len(self.functions) - 1}_others" if self.has_cases else first

    def case(self, name: str) -> int:
        """Return the case index of a function."""
        return list(self.functions).index(name)

    def text(self, dialect: Dialect) -> str:
        """Return the kernel that dispatches to one of several functions.

        Their group has one work item, so its local index is 0. It is added because PoCL splits
        loops that all work items of a group reach, and its 7.1 aborts where it does so in cases.
        """
        most = max(len(each.parameters) for each in self.functions.values())
        pointers = [f"GLOBAL void *p{number}" for number in range(most)]
        code = Code()
        with code.block("switch (number + LOCAL_ID)"):
            for name, function in self.functions.items():
                passed = ", ".join(f"p{number}" for number in range(len(function.parameters)))
                code.line(f"case {self.case(name)}: {name}({passed}); break;")
        head = dialect.kernel_head(self.name, ["const i32 number", *pointers], 1)
        return f"{head} {{\n{code}\n}}\n"


def make_entry_points(functions: Mapping[str, Function], cases: int) -> Iterator[EntryPoint]:
    """Yield kernels: up to `cases` serial functions in each, other functions one by one."""
    serial = [name for name, function in functions.items() if function.group == 1]
    for start in range(0, len(serial), cases):
        yield EntryPoint({name: functions[name] for name in serial[start : start + cases]})
    for name, function in functions.items():
        if function.group != 1:
            yield EntryPoint({name: function})
