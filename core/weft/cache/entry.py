"""Cache entries: compiled programs as text, numbers and arrays, without pickles."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from weft.ir import dtypes

ALIGNMENT = 64
_LENGTH = struct.Struct("<Q")


@dataclass
class CacheEntry:
    """A document of JSON, and arrays that it refers to by number."""

    document: Any
    arrays: list[Any]

    def content(self) -> bytes:
        """Return the bytes: the length of the document, the document, then each array."""
        import json

        descriptions, blocks, end = [], [], 0
        for array in self.arrays:
            raw = np.ascontiguousarray(array).tobytes()
            descriptions.append([array.dtype.name, array.shape, end])
            blocks.append(raw.ljust(_aligned(len(raw)), b"\0"))
            end += len(blocks[-1])
        text = json.dumps([self.document, descriptions], separators=(",", ":")).encode()
        head = _LENGTH.pack(len(text)) + text
        return b"".join([head.ljust(_aligned(len(head)), b"\0"), *blocks])

    @staticmethod
    def from_content(content: bytes) -> CacheEntry:
        """Return the entry in bytes, with arrays as read-only views of them.

        Raises ValueError, or another error of reading, for malformed bytes.
        """
        import json

        (size,) = _LENGTH.unpack_from(content)
        document, descriptions = json.loads(content[_LENGTH.size : _LENGTH.size + size])
        start = _aligned(_LENGTH.size + size)
        arrays = []
        for name, shape, offset in descriptions:
            flat = np.frombuffer(content, dtypes.as_dtype(name), prod(shape), start + offset)
            arrays.append(flat.reshape(shape))
        return CacheEntry(document, arrays)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
