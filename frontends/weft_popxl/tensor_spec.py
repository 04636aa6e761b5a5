"""TensorSpec: the description of a tensor that is an input of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft_popxl import dtypes
from weft_popxl.arguments import wholes


@dataclass(frozen=True)
class TensorSpec(Mapping[str, Any]):
    """The description of an input for `create_graph`.

    It is also a mapping of `shape`, `dtype` and `meta_shape`: ``graph_input(**spec, name="x")``.

    Attributes
    ----------
    shape, dtype
        Of the input.
    meta_shape
        The shape before replicas share a tensor, without effect.
    by_ref
        Whether in-place changes of the input apply to the caller's tensor.
    """

    shape: tuple[int, ...]
    dtype: dtypes.dtype
    meta_shape: tuple[int, ...] = ()
    by_ref: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", checked_shape(self.shape))
        object.__setattr__(self, "dtype", dtypes.dtype.as_dtype(self.dtype))
        object.__setattr__(self, "meta_shape", checked_shape(self.meta_shape))

    def to_dict(self) -> dict[str, Any]:
        """Return the description as a mapping."""
        return {"shape": self.shape, "dtype": self.dtype, "meta_shape": self.meta_shape}

    def to_tuple(self) -> tuple[Any, ...]:
        """Return shape, dtype and meta_shape."""
        return tuple(self.to_dict().values())

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple; raises TypeError for invalid ones, ValueError for lengths < 0."""
    return tuple(wholes("a length of a shape", shape, least=0))
