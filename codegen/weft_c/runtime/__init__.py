"""The executor that OpenCL and CUDA backends share: transformer, kernel group, memory, host I/O.

Imports everything else of this library, and is imported by backends only. Start reading at
`transformer`, whose methods a backend implements, then `segments`, the launches of a program in
order, and `kernel_group`, which runs them.
"""
