"""Loop nests without reductions: parallel loops, elementwise kernels, vectorised accesses.

Imports `weft_c.lowering` and what lies below it. Start reading at `parallel`, the loops that work
items share, and `loop_nest`, the loops of a fused kernel.
"""
