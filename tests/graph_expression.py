"""What a graph computes, as an expression for tests to compare."""

from __future__ import annotations

import weft


def expression_of(graph: weft.Graph) -> str:
    """Return the only output in names of classes and parameters and in constants, without axes."""

    def show(op: weft.Op) -> str:
        if op.is_constant:
            return f"{op.const.item():g}" if op.is_scalar else "array"
        if type(op).__name__ == "ParameterOp":
            return op.source.label
        return f"{type(op).__name__}({', '.join(map(show, op.args))})"

    (output,) = graph.outputs
    return show(output)
