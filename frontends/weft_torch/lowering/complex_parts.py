"""Complex numbers: their parts, and real tensors as pairs."""

from __future__ import annotations

import weft
from weft_torch.rules import Node, Tensor, lowers

lowers("real")(lambda x: weft.real(x))
lowers("imag")(lambda x: weft.imag(x))
lowers("complex")(lambda real, imag: weft.complex(real, imag))
lowers("view_as_real view_as_real_copy")(lambda x: weft.view_as_real(x))
lowers("view_as_complex view_as_complex_copy")(lambda x: weft.view_as_complex(x))
lowers("angle")(lambda node, x: weft.angle(x))
lowers("resolve_conj resolve_neg")(lambda x: x)
lowers("polar")(lambda abs, angle: weft.complex(abs * weft.cos(angle), abs * weft.sin(angle)))


@lowers("_conj _conj_physical conj_physical conj")
def conj(node: Node, x: Tensor) -> Tensor:
    """Return complex conjugates; a real tensor is its own."""
    return weft.conj(x) if "complex" in node.dtype() else x


@lowers("sgn")
def sgn(node: Node, x: Tensor) -> Tensor:
    """Return the sign, which of a complex number is the number over its size."""
    if "complex" not in node.dtype():
        return weft.sign(x)
    size = weft.absolute(x)
    is_zero = weft.equal(size, 0)
    return weft.where(is_zero, x, x / weft.where(is_zero, 1, size))
