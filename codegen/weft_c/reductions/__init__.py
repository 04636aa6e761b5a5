"""Kernels with reductions: reduction loops, split reductions, one-pass variance.

Imports `weft_c.loops` and what lies below it. Start reading at `loops`, the reduction loops of a
single work item; its subclasses are for columns and for work groups. `split` chooses among them.
"""
