"""The runtime: transformers, computations, and the call path between the user and a program.

Imports `weft.cache` and what lies below. Start with `transformer`, the interface of backends, and
`program`, which holds computations; `compile_cache` finds programs that are compiled already.
"""
