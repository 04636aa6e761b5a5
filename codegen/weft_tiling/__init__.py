"""Decides how the work of ops is divided on a device, whatever the language of its kernels.

Tiles of matrix products, parts that long sums and scans are split in, what work groups keep in the
memory that they share, and the scratch memory that this takes: `weft_c` and `weft_webgpu` print
kernels of these decisions.
"""

from weft.support.source import add_internal_package

add_internal_package("weft_tiling")
