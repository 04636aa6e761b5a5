"""Tensors of a model's file, and of files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper

from weft.support.quoting import harmless
from weft_onnx.errors import ModelError

MOST_BYTES = 1 << 40
"""The bytes of a tensor above which a declared shape is taken for an error."""


def initializers(graph: onnx.GraphProto, folder: Path | None) -> dict[str, Any]:
    """Return the constants of a graph by name; external data lies in a folder."""
    found = {each.name: array_of(each, folder) for each in graph.initializer}
    for sparse in graph.sparse_initializer:
        found[sparse.values.name] = dense(sparse)
    return found


def dense(sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    """Return a sparse tensor as an array."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    shape = tuple(sparse.dims)
    _require_size(sparse.values.name, shape, values.itemsize)
    result = np.zeros(shape, values.dtype)
    places = np.unravel_index(indices, shape) if indices.ndim == 1 else tuple(indices.T)
    result[places] = values
    return result


def array_of(proto: onnx.TensorProto, folder: Path | None) -> np.ndarray[Any, Any]:
    """Return the array of a tensor.

    Raises ModelError for a shape that does not fit the bytes or memory, and for external data that
    does not lie in the model's folder.
    """
    name = harmless(proto.name)
    if proto.data_type == onnx.TensorProto.UNDEFINED or any(n < 0 for n in proto.dims):
        raise ModelError(f"tensor {name} has no type, or a negative length: {list(proto.dims)}")
    try:
        itemsize = helper.tensor_dtype_to_np_dtype(proto.data_type).itemsize
    except KeyError:
        raise ModelError(f"tensor {name} has the unknown type {proto.data_type}") from None
    _require_size(proto.name, tuple(proto.dims), itemsize)
    if external_data_helper.uses_external_data(proto):
        return _external(proto, folder)
    try:
        return numpy_helper.to_array(proto)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"tensor {name} is corrupt: {error}") from None


def _require_size(name: str, shape: tuple[int, ...], itemsize: int) -> None:
    nbytes = prod(shape) * itemsize
    if nbytes > MOST_BYTES:
        raise ModelError(f"tensor {harmless(name)} of shape {list(shape)} takes {nbytes} bytes")


def _external(proto: onnx.TensorProto, folder: Path | None) -> np.ndarray[Any, Any]:
    about: Mapping[str, str] = {each.key: each.value for each in proto.external_data}
    name, location = harmless(proto.name), about.get("location", "")
    if folder is None:
        raise ModelError(f"tensor {name} is in the file {location!r}: load the model by its path")
    root = folder.resolve()
    path = (root / location).resolve()
    if not location or Path(location).is_absolute() or root not in path.parents:
        raise ModelError(f"tensor {name} is in {location!r}, outside of the model's folder")
    if not path.is_file() or (root / location).is_symlink():
        raise ModelError(
            f"tensor {name} is in {location!r}, which is no file in the model's folder"
        )
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(proto.data_type))
    shape = tuple(proto.dims)
    wanted = prod(shape) * dtype.itemsize
    try:
        offset, length = int(about.get("offset", 0)), int(about.get("length", wanted))
    except ValueError:
        raise ModelError(f"tensor {name}: offset and length must be numbers") from None
    if offset < 0 or length < 0 or offset + length > path.stat().st_size:
        raise ModelError(f"tensor {name}: {location!r} has no {length} bytes at {offset}")
    raw = onnx.TensorProto()
    raw.CopyFrom(proto)
    del raw.external_data[:]
    raw.data_location = onnx.TensorProto.DEFAULT
    with path.open("rb") as file:
        file.seek(offset)
        raw.raw_data = file.read(length)
    return array_of(raw, None)
