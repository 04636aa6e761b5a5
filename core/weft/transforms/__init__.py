"""Transformations of whole graphs that are not passes: capture, inlining, pruning of calls.

Imports `weft.ops` and what lies below. Start with `capture`, which makes a graph of the user's
ops.
"""
