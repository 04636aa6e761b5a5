"""Planning: the schedule of a program's steps and the address of every tensor, at compile time.

Imports `weft.kernels` and the layers below. Start with `plan`, the planner, and `steps`, which it
returns; `copies` adds copies, `dataflow` has the dependences of nodes, `schedule` chooses the
order, `liveness` and `inplace` decide which values share buffers, `placement` assigns offsets in
the arena.
"""
