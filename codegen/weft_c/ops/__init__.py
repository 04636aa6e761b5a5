"""Lowering rules of ops that are neither reductions nor matrix products.

Imports `weft_c.loops` and what lies below it. There is one module for each family of ops, named as
in `weft.ops` where possible.
"""

from weft_c.ops import (  # noqa: F401
    argmax,
    copies,
    gathering,
    generation,
    helpers,
    joining,
    on_host,
    pointwise,
    scans,
    scattering,
    searching,
    small_matrices,
    sorting,
    windows,
)
