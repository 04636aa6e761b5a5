"""Errors of ONNX models."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import GraphError, ParseError
from weft.ir.op import Op
from weft.support.quoting import harmless


class ModelError(ParseError):
    """A file is not an ONNX model, or a model contradicts itself or the specification."""


class NodeError(GraphError):
    """A node cannot be computed: the message names the node, its op and the version of that."""


class UnsupportedNodes(GraphError):
    """A model has nodes of ops that weft does not know; the message lists all of them.

    Attributes
    ----------
    missing
        For each of these ops its domain, name, opset and the names of its nodes.
    """

    def __init__(self, missing: Iterable[tuple[str, str, int, tuple[str, ...]]]) -> None:
        self.missing = tuple(missing)
        lines = [
            f"  {harmless(op)} of domain {harmless(domain or 'ai.onnx')}, opset {opset}: "
            + ", ".join(map(harmless, nodes))
            for domain, op, opset, nodes in self.missing
        ]
        super().__init__("\n".join(["The model has ops that weft does not know:", *lines]))


class UndeterminedGraph(NodeError):
    """A graph depends on values that only a call computes.

    Attributes
    ----------
    inputs
        The placeholders that these values depend on.
    """

    def __init__(self, problem: str, inputs: Iterable[Op]) -> None:
        self.inputs = tuple(inputs)
        super().__init__(problem)
