"""PopXL's dtypes: named objects that wrap NumPy's."""

from __future__ import annotations

import builtins
import importlib
from typing import Any, ClassVar

import numpy as np

from weft.ir import dtypes
from weft_popxl.errors import NotInstalled, refuse_type, refuse_value

_PYTHON = {builtins.bool: "bool", builtins.int: "int64", builtins.float: "float32"}


class dtype:  # noqa: N801
    """The dtype of tensors, such as `popxl.float32`; each is a singleton.

    Attributes
    ----------
    name
        The name in NumPy.
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
    def as_dtype(cls, type_value: Any) -> dtype:
        """Return the dtype of a NumPy, torch or Python type, an array, or a name.

        Raises ValueError if there is none.

        >>> dtype.as_dtype(np.float32), dtype.as_dtype("int8"), dtype.as_dtype(float)
        (popxl.float32, popxl.int8, popxl.float32)
        """
        value = type_value
        if isinstance(value, dtype):
            return value
        if not isinstance(value, builtins.type) and hasattr(value, "dtype"):
            return cls.as_dtype(value.dtype)
        if isinstance(value, builtins.type) and value in _PYTHON:
            return cls._all[_PYTHON[value]]
        name = str(value).removeprefix("torch.") if "torch." in str(value) else value
        try:
            found = np.dtype(name).name
        except (TypeError, ValueError):
            found = str(name)
        if value is None or found not in cls._all:
            refuse_value(f"{value!r} is not a dtype: use one of {', '.join(cls._all)}")
        return cls._all[found]

    @classmethod
    def from_name(cls, name: str) -> dtype:
        """Return the dtype with a `name`; raises ValueError if there is none."""
        if not isinstance(name, str) or name not in cls._all:
            refuse_value(f"{name!r} is not a dtype's name: there are {', '.join(cls._all)}")
        return cls._all[name]

    def as_torch(self) -> Any:
        """Return the dtype in PyTorch.

        Raises ModuleNotFoundError if PyTorch is not installed, TypeError if it lacks the dtype.
        """
        try:
            torch = importlib.import_module("torch")
        except ModuleNotFoundError as error:
            raise NotInstalled(
                "as_torch needs PyTorch, which is not installed: pip install torch"
            ) from error
        found = getattr(torch, self.name, None)
        if found is None:
            refuse_type(f"PyTorch has no dtype {self.name}")
        return found

    def as_numpy(self) -> np.dtype[Any]:
        """Return the dtype in NumPy."""
        return dtypes.as_dtype(self.name)

    @property
    def is_float(self) -> builtins.bool:
        """Whether it is a float."""
        return dtypes.is_float(self.as_numpy())

    @property
    def is_floating_point(self) -> builtins.bool:
        """Whether it is a float."""
        return self.is_float

    @property
    def is_complex(self) -> builtins.bool:
        """Whether it is complex, which none of these dtypes is."""
        return self.as_numpy().kind == "c"

    @property
    def is_int(self) -> builtins.bool:
        """Whether it is an integer dtype; bool is not."""
        return dtypes.is_integer(self.as_numpy())

    @property
    def is_signed(self) -> builtins.bool:
        """Whether it has negative values."""
        return self.as_numpy().kind in "if"

    @property
    def itemsize(self) -> builtins.int:
        """The size of an element in bytes."""
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
half, float, double = float16, float32, float64


def narrowed(found: dtype) -> dtype:
    """Return the 32-bit dtype in place of a 64-bit one."""
    return dtype.as_dtype(found.name.replace("64", "32"))
