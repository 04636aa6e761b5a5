"""Matrix products, einsum and determinants."""

from __future__ import annotations

from typing import Any

import weft
from weft_onnx.nodes import Node, cast, lowers
from weft_onnx.values import Tensor


@lowers("MatMul")
def matmul(node: Node) -> Tensor:
    """Multiply matrices by NumPy's rules."""
    return weft.matmul(node[0], node[1])


@lowers("Gemm")
def gemm(node: Node) -> Tensor:
    """Return alpha A B + beta C, with A and B transposed on request."""
    a, b = node[0], node[1]
    a = weft.transpose(a, (1, 0)) if node.flag("transA") else a
    b = weft.transpose(b, (1, 0)) if node.flag("transB") else b
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    found = weft.matmul(a, b)
    if alpha != 1:
        found = cast(found * alpha, a.dtype)
    c = node.get(2)
    if c is None or beta == 0:
        return found
    return found + (c if beta == 1 else cast(c * beta, c.dtype))


@lowers("MatMulInteger")
def matmul_integer(node: Node) -> Tensor:
    """Multiply matrices of 8-bit integers, with zero points, as int32."""
    a, b = cast(node[0], "int32"), cast(node[1], "int32")
    if node.has(2):
        zero = cast(node[2], "int32")
        a = a - (
            weft.unsqueeze(zero, -1) if zero.rank and a.rank > 1 and zero.axes.size > 1 else zero
        )
    if node.has(3):
        b = b - cast(node[3], "int32")
    return weft.matmul(a, b)


@lowers("Einsum")
def einsum(node: Node) -> Tensor:
    """Contract by an equation."""
    operands = [node[n] for n in range(len(node.inputs))]
    return weft.einsum(node.required("equation").replace(" ", ""), *operands)


@lowers("Det")
def determinant(node: Node) -> Tensor:
    """Return the determinant of square matrices."""
    return weft.det(node[0])


@lowers("Inverse", domain="com.microsoft")
def inverse(node: Node) -> Tensor:
    """Return the inverse of square matrices."""
    return weft.inverse(node[0])


UPDATE_RULES = {
    "linear": (False, False), "gated": (True, False), "delta": (False, True),
    "gated_delta": (True, True),
}  # fmt: skip
"""Whether an update rule of linear attention takes a decay and an update rate."""


@lowers("LinearAttention")
def linear_attention(node: Node) -> Any:
    """Refuse operands that the update rule has no use for; the op is a function of others."""
    for index, (name, takes) in enumerate(
        zip(("decay", "beta"), node.choice("update_rule", UPDATE_RULES), strict=True), 4
    ):
        if node.has(index) != takes:
            rule = node.choice("update_rule")
            raise node.error(f"update_rule {rule!r} {'needs' if takes else 'takes no'} {name}")
    return NotImplemented
