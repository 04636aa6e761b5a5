"""The executor that OpenCL and CUDA backends share: transformer, kernel group, memory, host I/O.

Imports everything else of this library, and is imported by backends only. Start reading at
`transformer`, whose methods a backend implements, and `kernel_group`, the executor of a program.
"""
