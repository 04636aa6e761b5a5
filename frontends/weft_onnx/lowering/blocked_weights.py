"""Weights of few bits in blocks, each with a scale."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.ir.dtypes import Array
from weft.nn.quantization import WORD, words_of
from weft_onnx.nodes import MICROSOFT, Node, cast, lowers
from weft_onnx.values import Tensor


def unpacked(x: Array, bits: int) -> Array:
    """Return numbers of few bits, of which bytes hold several, the lowest bits first."""
    if bits == 8:
        return x
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (x[..., None] >> shifts) & np.uint8(2**bits - 1)
    return parts.reshape(*x.shape[:-1], -1)


def dequantized_blocks(
    codes: Array, scales: Array, zeros: Array | None, size: int, bits: int
) -> Array:
    """Return numbers from codes whose last axis is in blocks of a size.

    Zero points are numbers, or packed codes, by default the middle of the range.
    """
    blocks = scales.shape[-1]
    origin: Any = np.float32(2 ** (bits - 1))
    if zeros is not None:
        if zeros.dtype == np.uint8:
            zeros = unpacked(zeros.reshape(*scales.shape[:-1], -1), bits)[..., :blocks]
        origin = zeros.reshape(scales.shape).astype(np.float32)[..., None]
    padded = np.zeros((*codes.shape[:-1], blocks * size), np.float32)
    padded[..., : codes.shape[-1]] = codes
    centered = padded.reshape(*scales.shape, size) - origin
    found: Array = centered * scales.astype(np.float32)[..., None]
    return found.reshape(*codes.shape[:-1], -1)[..., : codes.shape[-1]]


def _block_size(node: Node) -> int:
    size = int(node.attr("block_size", 128))
    if size < 1:
        raise node.error(f"blocks have {size} elements")
    return size


@lowers(
    "MatMulNBits",
    domain=MICROSOFT,
    attributes="K N accuracy_level bits block_size weight_prepacked",
)
def matmul_n_bits(node: Node) -> Tensor:
    """Multiply by a matrix whose columns are in blocks of 2, 4 or 8 bits.

    The accuracy level is a lower bound: products are of float32 whatever it is. Matrices of float32
    stay codes, which products unpack.
    """
    node.choice("weight_prepacked", {0: False}, default=0)
    if node.has(4):
        raise node.error("weft does not compute it with the operand g_idx")
    columns, rows = node.required("N"), node.required("K")
    size, bits = _block_size(node), node.attr("bits", 4)
    blocks = -(-rows // size)
    node.require_room(columns, blocks, size)
    kind = node.dtype()

    def groups(packed: Array, scales: Array, *zeros: Array) -> list[Array]:
        codes = unpacked(packed.reshape(columns, -1), bits).T
        origin = np.full((columns, blocks), 2 ** (bits - 1), np.uint8) if not zeros else zeros[0]
        if zeros and origin.dtype == np.uint8:
            origin = unpacked(origin.reshape(columns, -1), bits)[:, :blocks]
        found = (each.reshape(columns, blocks) for each in (scales, origin))
        return [words_of(codes, bits), *(np.ascontiguousarray(each.T) for each in found)]

    def matrix(packed: Array, scales: Array, *zeros: Array) -> list[Array]:
        codes = unpacked(packed.reshape(columns, -1), bits)[:, :rows]
        scales = scales.reshape(columns, blocks)
        found = dequantized_blocks(codes, scales, zeros[0] if zeros else None, size, bits)
        return [np.ascontiguousarray(found.T).astype(kind)]

    given, x = [node.raw(n) for n in (1, 2, 3) if node.has(n)], node[0]
    if kind == np.float32 and size * bits % WORD == 0:
        codes, scales, *zeros = map(node.op, node.host(groups, *given))
        weights = weft.dequantize(codes, scales, zeros[0] if zeros else None, bits)
        found = weft.matmul(_padded(x, blocks * size), weights)
    else:
        found = weft.matmul(x, node.op(node.host(matrix, *given)[0]))
    return cast(found + node[5] if node.has(5) else found, kind)


def _padded(x: Tensor, length: int) -> Tensor:
    """Return a tensor with zeros after its last axis, up to a length."""
    missing = length - int(x.axes[-1].length)
    return weft.pad(x, [*[(0, 0)] * (x.rank - 1), (0, missing)]) if missing else x


FP4 = np.array(
    [0, 0.0052083333, 0.6666667, 1, 0.3333333, 0.5, 0.1666667, 0.25,
     -0.0, -0.0052083333, -0.6666667, -1, -0.3333333, -0.5, -0.1666667, -0.25], np.float32
)  # fmt: skip
NF4 = np.array(
    [-1, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0, 0.0795803,
     0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1], np.float32
)  # fmt: skip
"""The numbers that codes of four bits stand for (Dettmers and others: QLoRA, 2023)."""


@lowers("MatMulBnb4", domain=MICROSOFT, attributes="K N block_size quant_type training_mode transB")
def matmul_bnb4(node: Node) -> Tensor:
    """Multiply by a matrix of codes of four bits, in blocks with a largest magnitude each."""
    node.choice("transB", {1: True}, default=1)
    columns, rows = node.required("N"), node.required("K")
    size, table = _block_size(node), (FP4, NF4)[node.required("quant_type")]
    node.require_room(columns, rows, size)
    kind = node.dtype()

    def matrix(packed: Array, largest: Array) -> list[Array]:
        flat = packed.reshape(-1)
        # Here the upper four bits come first.
        codes = np.stack([flat >> 4, flat & 15], -1).reshape(-1)[: columns * rows]
        factors = np.repeat(largest.astype(np.float32), size)[: columns * rows]
        return [np.ascontiguousarray((table[codes] * factors).reshape(columns, rows).T, kind)]

    return weft.matmul(node[0], node.op(node.host(matrix, node.raw(1), node.raw(2))[0]))


@lowers(
    "GatherBlockQuantized",
    domain=MICROSOFT,
    attributes="bits block_size gather_axis quantize_axis",
)
def gather_block_quantized(node: Node) -> Tensor:
    """Take slices of a tensor that is quantized in blocks along an axis."""
    size, bits = _block_size(node), node.attr("bits", 4)
    along = node.axis(node.attr("quantize_axis", 1))
    node.require_room(*node.shape(2), size)

    def whole(data: Array, scales: Array, *zeros: Array) -> list[Array]:
        is_packed = data.dtype == np.uint8
        codes = unpacked(data, bits) if is_packed else data.astype(np.int8)
        codes, scales = (np.moveaxis(each, along, -1) for each in (codes, scales))
        origin = None if is_packed else np.zeros(scales.shape, np.float32)
        if zeros:
            # Zero points in bytes are packed along the last axis, like the data.
            origin = unpacked(zeros[0], bits) if is_packed else zeros[0].astype(np.int8)
            origin = np.moveaxis(origin.astype(np.float32), along, -1)[..., : scales.shape[-1]]
        found = dequantized_blocks(codes, scales, origin, size, bits)
        return [np.ascontiguousarray(np.moveaxis(found, -1, along)).astype(scales.dtype)]

    given = [node.raw(n) for n in (0, 2, 3) if node.has(n)]
    table = node.op(node.host(whole, *given)[0])
    return weft.take(table, node[1], node.axis(node.attr("gather_axis", 0)))
