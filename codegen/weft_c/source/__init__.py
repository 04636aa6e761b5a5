"""The text of a program in C: values, expressions, functions, kernel entry points.

Imports `weft_c.dialect` and the core, nothing else of this library. Start reading at `functions`,
the functions and launches of a program, and `values`, the emitter of scalar and vector values.
"""
