"""Lowering rules of Fourier transforms.

Imports `weft_c.loops`, `weft_c.ops.views` and what lies below them. Start reading at
`mixed_radix`, the op that transforms are legalized to. `serial` writes it in vectors, and
`work_groups` for devices with local memory.
"""

from weft_c.fourier import kernels

__all__ = ["kernels"]
