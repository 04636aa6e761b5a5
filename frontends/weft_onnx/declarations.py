"""What a model declares of the lengths of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from weft.support.quoting import harmless

Dimension = int | str | None
"""A declared length: a number, the name of one that is open, or None for one without a name."""

_UNKNOWN = frozenset(
    {"any", "dynamic", "n/a", "nan", "none", "null", "undefined", "unk", "unknown"}
)
"""What exporters write in place of a name."""


def dimensions(kind: onnx.TypeProto) -> tuple[Dimension, ...] | None:
    """Return the declared lengths of a tensor; None if its rank is open.

    A negative number is an open length, and so is each word for "unknown", such as ``?``, which
    may be another length wherever it stands.
    """
    tensor = kind.tensor_type
    return tuple(map(_dimension, tensor.shape.dim)) if tensor.HasField("shape") else None


def _dimension(proto: onnx.TensorShapeProto.Dimension) -> Dimension:
    if proto.HasField("dim_value"):
        return proto.dim_value if proto.dim_value >= 0 else None
    name = proto.dim_param.strip()
    is_name = any(map(str.isalpha, name)) and name.casefold() not in _UNKNOWN
    return harmless(name) if is_name else None


def open_lengths(declared: Mapping[str, onnx.TypeProto]) -> Iterator[tuple[str, int, str]]:
    """Yield each open length: its input and axis, and its name, which several may share.

    One without a name is called by the input and the axis, as in ``x:2``.
    """
    for title, kind in declared.items():
        for axis, length in enumerate(dimensions(kind) or ()):
            if not isinstance(length, int):
                yield title, axis, length or f"{harmless(title)}:{axis}"
