"""PyTorch: models compiled by `torch.compile`, exported programs, and weft's functions in torch.

``torch.compile(model, backend="weft")`` needs no import of this package. Start reading at
`backend`, then `graphs`, which makes ops of the nodes of FX graphs by the table of `rules`;
`lowering` has the rules, one module for each family of ops. torch is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.plugins import hookimpl
from weft.support import source

if TYPE_CHECKING:
    from weft.runtime.computation import Computation
    from weft.runtime.transformer import Transformer

__all__ = ["from_exported", "function"]

WEFT_API = "1.0"

source.add_internal_package("weft_torch")


def from_exported(program: Any, backend: str | Transformer | None = None) -> Computation:
    """Return the computation of an exported program.

    Parameters and buffers are states, named as in the model; lengths that the program leaves open
    by ``torch.export.Dim`` stay open. Nothing of the result needs torch: save it as an artifact.

    Parameters
    ----------
    program
        What `torch.export.export` returns.
    backend
        A backend by name, or a transformer, by default what `weft.make_transformer` takes.

    Returns
    -------
    Computation
        A function of the program's flat inputs, which returns the list of its flat results.

    Raises
    ------
    UnsupportedOp
        If the program has ops that weft cannot compile.
    """
    from weft_torch.exported import from_exported

    return from_exported(program, backend)


def function(computation: Computation) -> Callable[..., Any]:
    """Return a computation as a function of tensors: an op of torch with a gradient.

    Autograd differentiates it, by a computation of weft that is compiled when it is first needed,
    and `torch.compile` keeps it whole in its graphs. Only floats have gradients, complex numbers
    have none.

    Parameters
    ----------
    computation
        A computation without open lengths whose results are tensors.

    Returns
    -------
    callable
        A function of as many tensors as the computation has parameters, which returns a tensor or,
        if the computation has several results, a list.

    Raises
    ------
    ArgumentError
        If a length is open, or a result is not a tensor.
    """
    from weft_torch.functions import function

    return function(computation)


@hookimpl
def weft_register_frontends(register: Callable[[str, Any], None]) -> None:
    """Register the importer of exported programs, if torch is installed."""
    from weft_torch.importer import ProgramImporter

    register("torch", ProgramImporter())
