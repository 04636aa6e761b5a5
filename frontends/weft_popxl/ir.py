"""The class of programs, under PopXL's name of its module."""

from weft_popxl.program import Ir

__all__ = ["Ir"]
