"""Loop nests without reductions: parallel loops, elementwise kernels, vectorized accesses.

Imports `weft_c.lowering` and what lies below it. Start reading at `parallel`, which distributes
loops over work items, and `loop_nest`, the loops of a fused kernel.
"""
