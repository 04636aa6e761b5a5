"""Planning: the order of a program's steps and the place of every tensor, fixed at compile time.

Imports `weft.kernels` and what lies below. Start with `plan`; `dataflow` says what needs what,
`schedule` chooses the order, `liveness` and `inplace` say what may share memory, `placement` gives
offsets in the arena.
"""
