"""Kernels on NumPy: loops over tiles that stay in a cache, shared among threads."""
