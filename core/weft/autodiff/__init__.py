"""Autodiff: gradients of expressions, and gradient graphs of graphs.

Imports `weft.transforms` and what lies below. Start with `reverse`, which accumulates adjoints;
`gradient_graph` does so for a whole graph, `call_adjoints` for calls, loops and conditionals.
"""

from weft.autodiff import call_adjoints, gradient_graph, reverse

__all__ = ["call_adjoints", "gradient_graph", "reverse"]
