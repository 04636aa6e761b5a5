"""Functions as programs: `jit`, gradients, and control flow with Python functions as bodies.

Each traces a Python function: it is called once, with ops in place of arrays.
"""

from weft.functional.control_flow import cond, fori_loop, scan, switch, while_loop
from weft.functional.gradients import grad, jvp, value_and_grad, vjp
from weft.functional.jit import JittedFunction, jit
from weft.functional.vectorization import hessian, jacobian, vmap

__all__ = [
    "JittedFunction",
    "cond",
    "fori_loop",
    "grad",
    "hessian",
    "jacobian",
    "jit",
    "jvp",
    "scan",
    "switch",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
