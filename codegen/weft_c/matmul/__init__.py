"""Matrix products: tiles in registers or in shared memory, prologues, epilogues, BLAS calls.

Imports `weft_c.loops` and what lies below it. Start reading at `products`, which selects the
algorithm of a product.
"""
