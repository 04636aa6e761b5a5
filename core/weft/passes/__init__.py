"""Passes: the interface that every pass implements, and the pipeline that runs them.

Imports `weft.autodiff` and what lies below. Start with `interface`. The passes themselves are
plugins: weft's own are in the package `weft_passes`.
"""
