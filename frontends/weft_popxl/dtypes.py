"""PopXL's dtypes: named objects around those of NumPy."""

from __future__ import annotations

import builtins
from typing import Any, ClassVar

import numpy as np

from weft import dtypes
from weft_popxl.errors import refuse_type, refuse_value

_WEFT = {builtins.bool: "bool", builtins.int: "int32", builtins.float: "float32"}


class dtype:  # noqa: N801
    """The dtype of tensors, `popxl.float32` and its like; there is one object for each.

    Attributes
    ----------
    name
        As NumPy calls it.
    """

    name: str
    _all: ClassVar[dict[str, dtype]] = {}

    def __init__(self, *args: Any) -> None:
        refuse_type("dtypes are not constructed: use popxl.float32 and its like, or dtype.as_dtype")

    @classmethod
    def _made(cls, name: str) -> dtype:
        made = cls._all[name] = object.__new__(cls)
        made.name = name
        return made

    @classmethod
    def as_dtype(cls, value: Any) -> dtype:
        """Return the dtype for one of NumPy, torch or Python, an array, or a name.

        Raises ValueError for what names no dtype.

        >>> dtype.as_dtype(np.float32), dtype.as_dtype("int8"), dtype.as_dtype(float)
        (popxl.float32, popxl.int8, popxl.float32)
        """
        if isinstance(value, dtype):
            return value
        if isinstance(value, builtins.type) and value in _WEFT:
            return cls._all[_WEFT[value]]
        name = str(value).removeprefix("torch.") if "torch." in str(value) else value
        try:
            found = np.dtype(name.dtype if isinstance(name, np.ndarray) else name).name
        except (TypeError, ValueError):
            found = str(name)
        if value is None or found not in cls._all:
            refuse_value(f"{value!r} is no dtype: use one of {', '.join(cls._all)}")
        return cls._all[found]

    def as_numpy(self) -> np.dtype[Any]:
        """Return NumPy's dtype."""
        return dtypes.as_dtype(self.name)

    @property
    def is_float(self) -> builtins.bool:
        """Whether it is a float."""
        return dtypes.is_float(self.as_numpy())

    @property
    def is_int(self) -> builtins.bool:
        """Whether it is an integer; bool is none."""
        return dtypes.is_integer(self.as_numpy())

    @property
    def is_signed(self) -> builtins.bool:
        """Whether it has negative values."""
        return self.as_numpy().kind in "if"

    @property
    def itemsize(self) -> builtins.int:
        """Bytes of an element."""
        return self.as_numpy().itemsize

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype.as_dtype, (self.name,)

    def __repr__(self) -> str:
        return f"popxl.{self.name}"


bool = dtype._made("bool")
int8 = dtype._made("int8")
int16 = dtype._made("int16")
int32 = dtype._made("int32")
int64 = dtype._made("int64")
uint8 = dtype._made("uint8")
uint16 = dtype._made("uint16")
uint32 = dtype._made("uint32")
uint64 = dtype._made("uint64")
float16 = dtype._made("float16")
float32 = dtype._made("float32")
float64 = dtype._made("float64")


def narrowed(found: dtype) -> dtype:
    """Return the dtype of 32 bits in the place of one of 64."""
    return dtype.as_dtype(found.name.replace("64", "32"))
