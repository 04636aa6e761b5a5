"""The tensors of a model: those in its file, and those in files beside it.

Every tensor is read here, wherever it stands: initializers and attributes, sparse ones, and those
of branches, bodies and functions. A model's bytes are not trusted, so nothing is allocated that
exceeds what they justify, and no file is opened outside of the model's folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from onnx import external_data_helper, helper, numpy_helper

from weft.support.memory import half_of_memory
from weft.support.quoting import harmless
from weft_onnx.errors import ModelError
from weft_onnx.nodes import numpy_dtype

MOST_BYTES = 1 << 40
"""The bytes of a tensor above which a declared shape is taken for an error."""

MOST_DIMENSIONS = 64
"""The most dimensions of an array of NumPy."""

SMALL = 1 << 26
"""The bytes that the sparse tensors of any model may take as arrays."""

GROWTH = 1000
"""How many times the bytes of the model its sparse tensors may take as arrays, if that is more."""

LONGEST_LOCATION = 1000
"""The characters of the location of external data."""


PACKED: dict[int, int] = {
    onnx.TensorProto.INT4: 2,
    onnx.TensorProto.UINT4: 2,
    onnx.TensorProto.FLOAT4E2M1: 2,
    onnx.TensorProto.INT2: 4,
    onnx.TensorProto.UINT2: 4,
}
"""The elements in a byte of a file, of types that are smaller than one."""


def messages(message: Any) -> Iterator[Any]:
    """Yield a message and all messages inside, in the order of the file."""
    waiting = [message]
    while waiting:
        found = waiting.pop()
        yield found
        inside: list[Any] = []
        for field in fields_of(found, FieldDescriptor.TYPE_MESSAGE):
            value = getattr(found, field.name)
            if not hasattr(value, "ListFields"):
                inside.extend(value)
            elif found.HasField(field.name):
                inside.append(value)
        waiting.extend(reversed(inside))


def fields_of(message: Any, kind: int) -> tuple[Any, ...]:
    """Return the fields of a kind that a message may have; those of bytes are never copied."""
    return _fields(message.DESCRIPTOR, kind)


@cache
def _fields(descriptor: Any, kind: int) -> tuple[Any, ...]:
    return tuple(field for field in descriptor.fields if field.type == kind)


class TensorReader:
    """Reads the tensors of a model.

    Parameters
    ----------
    model
        The model. Raises ModelError for a tensor anywhere in it whose shape does not fit its bytes
        or memory, and for external data that is not in the folder.
    folder
        Where its external data is; None for a model that must not have any.
    """

    def __init__(self, model: onnx.ModelProto, folder: Path | None) -> None:
        self._root = None if folder is None else folder.resolve()
        self._require_sound(model)

    def initializers(self, graph: onnx.GraphProto) -> dict[str, Any]:
        """Return the constants of a graph by name."""
        found = {each.name: self.array(each) for each in graph.initializer}
        for sparse in graph.sparse_initializer:
            found[sparse.values.name] = self.dense(sparse)
        return found

    def attribute(self, proto: onnx.AttributeProto) -> Any:
        """Return the value of an attribute: tensors as arrays, strings as text."""
        try:
            value = helper.get_attribute_value(proto)
        except ValueError as error:
            raise ModelError(f"attribute {harmless(proto.name)}: {error}") from None
        is_message = hasattr(value, "ListFields")
        if is_message or isinstance(value, bytes) or not hasattr(value, "__iter__"):
            return self._element(value)
        return [self._element(each) for each in value]

    def _element(self, value: Any) -> Any:
        match value:
            case bytes():
                return value.decode("utf-8", "replace")
            case onnx.TensorProto():
                return self.array(value)
            case onnx.SparseTensorProto():
                return self.dense(value)
        return value

    def dense(self, sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
        """Return a sparse tensor as an array; raises ModelError if it contradicts itself."""
        name, shape = harmless(sparse.values.name), tuple(sparse.dims)
        values, indices = self.array(sparse.values), self.array(sparse.indices)
        if values.ndim != 1 or indices.dtype != np.int64:
            raise ModelError(f"sparse tensor {name} has no list of values with indices of int64")
        if indices.shape == values.shape:
            lengths, places = (prod(shape),), indices[:, None]
        else:
            lengths, places = shape, indices
        if places.shape != (len(values), len(lengths)):
            raise ModelError(
                f"sparse tensor {name}: indices of shape {list(indices.shape)} do not fit "
                f"{len(values)} values in {len(shape)} dimensions"
            )
        if ((places < 0) | (places >= np.array(lengths, np.int64))).any():
            raise ModelError(f"sparse tensor {name} has an index outside of {list(shape)}")
        result = _zeros(name, shape, values.dtype)
        result.reshape(lengths)[tuple(places.T)] = values
        return result

    def array(self, proto: onnx.TensorProto) -> np.ndarray[Any, Any]:
        """Return the array of a tensor; raises ModelError if its bytes do not fit its shape."""
        name = harmless(proto.name)
        nbytes = _nbytes(proto, proto.dims, proto.data_type)
        if external_data_helper.uses_external_data(proto):
            raw = onnx.TensorProto(dims=proto.dims, data_type=proto.data_type)
            raw.raw_data = self._external(proto, -(-nbytes // PACKED.get(proto.data_type, 1)))
            proto = raw
        try:
            return numpy_helper.to_array(proto)
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(f"tensor {name} is corrupt: {error}") from None

    # Files

    def _external(self, proto: onnx.TensorProto, nbytes: int) -> bytes:
        """Return the bytes of a tensor in another file."""
        about: Mapping[str, str] = {each.key: each.value for each in proto.external_data}
        name, location = harmless(proto.name), about.get("location", "")
        said = harmless(repr(location[:80]))
        with open(self._opened(name, location), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            try:
                offset, length = int(about.get("offset") or 0), int(about.get("length") or nbytes)
            except ValueError:
                raise ModelError(f"tensor {name}: offset and length must be numbers") from None
            if offset < 0 or length < 0 or offset + length > size:
                raise ModelError(f"tensor {name}: {said} has no {length} bytes at {offset}")
            if length > min(nbytes, half_of_memory()):
                raise ModelError(f"tensor {name} takes {nbytes} bytes, not {length} of {said}")
            file.seek(offset)
            return file.read(length)

    def _opened(self, name: str, location: str) -> int:
        """Open a regular file of the model's folder, and return its descriptor."""
        said = f"tensor {name} is in {harmless(repr(location[:80]))}"
        if self._root is None:
            raise ModelError(f"{said}: load the model by its path, or with folder=")
        outside = ModelError(f"{said}, outside of the model's folder")
        absent = ModelError(f"{said}, which is not a file in the model's folder")
        if not location or "\0" in location or len(location) > LONGEST_LOCATION:
            raise absent
        if Path(location).is_absolute():
            raise outside
        try:
            path = (self._root / location).resolve()
            if self._root not in path.parents:
                raise outside
            # A device or a pipe is opened without waiting for it, and refused.
            flags = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
            handle = os.open(path, os.O_RDONLY | flags | getattr(os, "O_NOFOLLOW", 0))
        except (OSError, RuntimeError):  # a loop of links is a RuntimeError before Python 3.13
            raise absent from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise absent
        return handle

    # Checks

    def _require_sound(self, model: onnx.ModelProto) -> None:
        """Raise ModelError for a tensor that cannot be read, wherever it stands."""
        sparse: list[onnx.SparseTensorProto] = []
        for each in messages(model):
            if isinstance(each, onnx.TensorProto):
                _nbytes(each, each.dims, each.data_type)
                if external_data_helper.uses_external_data(each):
                    name = harmless(each.name)
                    about = {entry.key: entry.value for entry in each.external_data}
                    os.close(self._opened(name, about.get("location", "")))
            elif isinstance(each, onnx.SparseTensorProto):
                sparse.append(each)
        if sparse:  # the bytes of a model cost as much memory as the model
            _require_small(sparse, model.ByteSize())


def _require_small(tensors: Iterable[onnx.SparseTensorProto], size: int) -> None:
    """Raise ModelError for sparse tensors that are too large for a model of `size` bytes."""
    most, grown = min(max(SMALL, GROWTH * size), half_of_memory()), 0
    for each in tensors:
        grown += _nbytes(each.values, each.dims, each.values.data_type)
        if grown > most:
            raise ModelError(
                f"sparse tensor {harmless(each.values.name)} of shape {list(each.dims)}: the "
                f"sparse tensors take {grown} bytes as arrays, of which {most} are allowed for a "
                f"model of {size} bytes"
            )


def _nbytes(proto: onnx.TensorProto, dims: Any, data_type: int) -> int:
    """Return the bytes of an array; raises ModelError for a shape or type that no array has."""
    name, shape = harmless(proto.name), list(dims)
    if data_type == onnx.TensorProto.UNDEFINED or any(n < 0 for n in shape):
        raise ModelError(f"tensor {name} has no type, or a negative length: {shape[:99]}")
    if len(shape) > MOST_DIMENSIONS:
        raise ModelError(f"tensor {name} has {len(shape)} dimensions")
    nbytes: int = prod(shape) * numpy_dtype(data_type, f"tensor {name}").itemsize
    if nbytes > MOST_BYTES:
        raise ModelError(f"tensor {name} of shape {shape} takes {nbytes} bytes")
    return nbytes


def _zeros(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    try:
        return np.zeros(shape, dtype)
    except (ValueError, MemoryError) as error:
        raise ModelError(f"tensor {name} of shape {list(shape)}: {error}") from None
