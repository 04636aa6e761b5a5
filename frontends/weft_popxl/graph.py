"""The class of graphs, under PopXL's name of its module."""

from weft_popxl.program import Graph

__all__ = ["Graph"]
