"""Autodiff: reverse-mode gradients of expressions, and gradient graphs of graphs.

Imports `weft.transforms` and the layers below. Start with `reverse`, which accumulates adjoints;
`gradient_graph` differentiates a whole graph, `call_adjoints` calls, loops and conditionals.
"""

from weft.autodiff import call_adjoints, gradient_graph, reverse

__all__ = ["call_adjoints", "gradient_graph", "reverse"]
