"""Arrays by name in the safetensors format, by the library of that name.

The format has no complex128: such an array is stored as float64 with an axis of real and imaginary
part, and its name is in the metadata.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.errors import MissingPackage
from weft.ir import dtypes
from weft.ir.dtypes import Array

_PAIRS = "complex128"
"""The key of the metadata under which the names of complex128 arrays are listed."""

_NAMES = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip
"""The dtypes of the format that weft has."""


def library() -> Any:
    """Return the safetensors package; raises MissingPackage, which says how to install it."""
    try:
        import safetensors.numpy
    except ImportError as error:
        problem = "files of states and constants need the safetensors package: "
        raise MissingPackage(f"{problem}pip install 'weftc[safetensors]'") from error
    return safetensors


def content_of(arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a file of arrays and of texts by name.

    Raises MissingPackage without the safetensors package.
    """
    import json  # which a program that only computes does not need; so in other functions

    pairs, stored = [], {}
    for name, array in arrays.items():
        whole = np.ascontiguousarray(array).reshape(array.shape)
        if array.dtype == np.complex128:
            pairs.append(name)
            whole = np.stack([whole.real, whole.imag], -1)
        stored[name] = whole
    texts = {**(metadata or {}), **({_PAIRS: json.dumps(pairs)} if pairs else {})}
    content: bytes = library().numpy.save(stored, metadata=texts or None)
    return content


def arrays_in(content: bytes) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays and the texts in the content of a file, both by name.

    Raises ValueError for malformed content, and for a dtype that weft does not have;
    MissingPackage without the safetensors package.
    """
    import json

    package = library()
    try:
        tensors = package.deserialize(content)
    except package.SafetensorError as error:
        raise ValueError(f"it is not a safetensors file: {error}") from None
    size = int.from_bytes(content[:8], "little")
    texts = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
    arrays = {name: _array(name, **stored) for name, stored in tensors}
    for name in json.loads(texts.pop(_PAIRS, "[]")):
        pair = arrays[name]
        if pair.dtype != np.float64 or pair.shape[-1:] != (2,):
            raise ValueError(f"{name} holds no pairs of real and imaginary parts")
        arrays[name] = pair.view(np.complex128).reshape(pair.shape[:-1])
    return arrays, texts


def _array(name: str, dtype: str, shape: Any, data: bytes) -> Array:
    if dtype not in _NAMES:
        raise ValueError(f"{name} has the dtype {dtype}, which weft does not have")
    flat = np.frombuffer(data, dtypes.as_dtype(_NAMES[dtype]))
    return (flat if sys.byteorder == "little" else flat.byteswap()).reshape(shape)
