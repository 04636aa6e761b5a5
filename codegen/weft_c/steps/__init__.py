"""Rules in C for what is neither elementwise, nor a plain reduction, nor a product of matrices."""

from weft_c.steps import (
    copies,
    counting,
    extrema,
    functions,
    gathering,
    joining,
    on_host,
    scans,
    scattering,
    searching,
    sorting,
    windows,
)

__all__ = [
    "copies",
    "counting",
    "extrema",
    "functions",
    "gathering",
    "joining",
    "on_host",
    "scans",
    "scattering",
    "searching",
    "sorting",
    "windows",
]
