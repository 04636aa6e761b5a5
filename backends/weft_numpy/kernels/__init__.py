"""Fused kernels on NumPy: loops over tiles that fit a cache, distributed over threads."""
