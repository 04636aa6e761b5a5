"""The printed form of a graph: the printer, and the parser that reads it back.

Imports `weft.kernels` and what lies below. `printer` describes the form.
"""
