"""Checkpoints of llama2.c, "version 0": seven numbers, then every weight as float32.

The format is that of https://github.com/karpathy/llama2.c (MIT license). All numbers are
little-endian. A matrix has a row for each feature that it makes, so that it is multiplied by its
transpose.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from llama2.files import FormatError, truncated, write

Array = np.ndarray[Any, Any]

HEADER = struct.Struct("<7i")
LATER_VERSIONS = 0x616B3432
"""What a checkpoint of another version of the format begins with."""


class Config(NamedTuple):
    """The sizes of a decoder, in the order of a checkpoint's header.

    `shared` says that the matrix of logits is the table of embeddings; the header tells it by the
    sign of the vocabulary's size.
    """

    dim: int
    hidden_dim: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    longest: int
    shared: bool = True

    @property
    def depth(self) -> int:
        """The features of a head."""
        return self.dim // self.heads

    @property
    def kv_dim(self) -> int:
        """The features of all keys of a token, and of all its values."""
        return self.depth * self.kv_heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array of weights, in the order of the file."""
        layers, dim, hidden, half = self.layers, self.dim, self.hidden_dim, self.depth // 2
        shapes: dict[str, tuple[int, ...]] = {
            "embedding": (self.vocabulary, dim),
            "attention_norm": (layers, dim),
            "wq": (layers, dim, dim),
            "wk": (layers, self.kv_dim, dim),
            "wv": (layers, self.kv_dim, dim),
            "wo": (layers, dim, dim),
            "dense_norm": (layers, dim),
            "w1": (layers, hidden, dim),
            "w2": (layers, dim, hidden),
            "w3": (layers, hidden, dim),
            "final_norm": (dim,),
            "cos": (self.longest, half),
            "sin": (self.longest, half),
        }
        return shapes if self.shared else shapes | {"classifier": (self.vocabulary, dim)}

    def problem(self) -> str | None:
        """Return what is wrong with the sizes, or None."""
        for name, value in zip(self._fields[:7], self[:7], strict=True):
            if value < 1:
                return f"{name} is {value}, which must be at least 1"
        if self.dim % (2 * self.heads):
            return f"dim {self.dim} does not split into {self.heads} heads of even depth"
        if self.heads % self.kv_heads:
            return f"{self.heads} heads cannot share {self.kv_heads} heads of keys evenly"
        return None


def rotation(longest: int, depth: int, base: float = 10000.0) -> tuple[Array, Array]:
    """Return cosines and sines of each position's angles, as a checkpoint holds them.

    Pair i at position p is rotated by ``p * base ** (-2 i / depth)``.
    """
    rates = base ** (-np.arange(0, depth, 2) / depth)
    angles = np.arange(longest)[:, None] * rates
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def read_checkpoint(path: Path) -> tuple[Config, dict[str, Array]]:
    """Return the sizes in a checkpoint and its weights, which stay in the file until they are used.

    Raises FormatError if the header makes no sense, or if the file is shorter or longer than it
    says.
    """
    with path.open("rb") as file:
        header = file.read(HEADER.size)
    size = path.stat().st_size
    if len(header) < HEADER.size:
        raise truncated(path, f"a header of {HEADER.size} bytes", HEADER.size - len(header))
    config = _config(path, HEADER.unpack(header))
    shapes = config.shapes()
    expected = HEADER.size + 4 * sum(map(prod, shapes.values()))
    if size < expected:
        name = _place(shapes, size)
        raise truncated(path, f"{expected} bytes by its header", expected - size, name)
    if size > expected:
        raise FormatError(f"{path} has {size} bytes, {size - expected} more than its header says")
    numbers = np.memmap(path, "<f4", "r", HEADER.size)
    return config, _split(numbers, shapes)


def _config(path: Path, header: tuple[int, ...]) -> Config:
    if header[0] == LATER_VERSIONS:
        raise FormatError(f"{path} is a checkpoint of version {header[1]}, only 0 can be read")
    *sizes, vocabulary, longest = header
    dim, hidden_dim, layers, heads, kv_heads = sizes
    config = Config(
        dim, hidden_dim, layers, heads, kv_heads, abs(vocabulary), longest, vocabulary > 0
    )
    problem = config.problem()
    if problem:
        raise FormatError(f"{path} is not a checkpoint of llama2.c: {problem}")
    return config


def _place(shapes: Mapping[str, tuple[int, ...]], size: int) -> str:
    """Return the first array that does not lie whole within so many bytes."""
    end = HEADER.size
    for name, shape in shapes.items():
        end += 4 * prod(shape)
        if end > size:
            return name
    raise AssertionError("no array ends beyond the file")


def _split(numbers: Array, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    weights, start = {}, 0
    for name, shape in shapes.items():
        weights[name] = numbers[start : start + prod(shape)].reshape(shape)
        start += prod(shape)
    return weights


def write_checkpoint(path: Path, config: Config, weights: Mapping[str, Array]) -> None:
    """Write a checkpoint, whole or not at all.

    Raises FormatError if the sizes make no sense, or a shape is not the one that they ask for.
    """
    problem = config.problem()
    if problem:
        raise FormatError(f"{path} cannot be written: {problem}")
    shapes = config.shapes()
    for name in {**shapes, **weights}:
        wanted, found = shapes.get(name), np.shape(weights[name]) if name in weights else None
        if wanted != found:
            raise FormatError(f"{path} cannot be written: {name} is {found}, expected {wanted}")
    vocabulary = config.vocabulary if config.shared else -config.vocabulary
    header = HEADER.pack(*config[:5], vocabulary, config.longest)
    parts = (np.ascontiguousarray(weights[name], "<f4").tobytes() for name in shapes)
    write(path, b"".join((header, *parts)))
