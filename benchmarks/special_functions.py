"""Special functions: weft beside SciPy and PyTorch, on large arrays.

Results are compared with SciPy's in float64, relative to values that are not near a zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from side_by_side import Call, main

import weft

Array = np.ndarray[Any, Any]

FUNCTIONS: dict[str, tuple[tuple[tuple[float, float], ...], str]] = {
    "j0": (((0.0, 50.0),), "bessel_j0"),
    "j1": (((0.0, 50.0),), "bessel_j1"),
    "y0": (((0.1, 50.0),), "bessel_y0"),
    "y1": (((0.1, 50.0),), "bessel_y1"),
    "i0": (((-20.0, 20.0),), "i0"),
    "i0e": (((-50.0, 50.0),), "i0e"),
    "i1": (((-20.0, 20.0),), "i1"),
    "i1e": (((-50.0, 50.0),), "i1e"),
    "k0": (((0.1, 20.0),), "modified_bessel_k0"),
    "k0e": (((0.1, 50.0),), "scaled_modified_bessel_k0"),
    "k1": (((0.1, 20.0),), "modified_bessel_k1"),
    "k1e": (((0.1, 50.0),), "scaled_modified_bessel_k1"),
    "airy": (((-8.0, 8.0),), "airy_ai"),
    "erf": (((-4.0, 4.0),), "erf"),
    "erfc": (((-4.0, 4.0),), "erfc"),
    "erfcx": (((-3.0, 20.0),), "erfcx"),
    "erfinv": (((-0.99, 0.99),), "erfinv"),
    "ndtr": (((-5.0, 5.0),), "ndtr"),
    "ndtri": (((0.001, 0.999),), "ndtri"),
    "log_ndtr": (((-20.0, 5.0),), "log_ndtr"),
    "gammaln": (((0.1, 50.0),), "gammaln"),
    "psi": (((0.1, 50.0),), "psi"),
    "zeta": (((1.1, 10.0), (0.5, 10.0)), "zeta"),
    "gammainc": (((0.1, 50.0), (0.1, 50.0)), "gammainc"),
    "gammaincc": (((0.1, 50.0), (0.1, 50.0)), "gammaincc"),
    "betainc": (((0.1, 50.0), (0.1, 50.0), (0.0, 1.0)), ""),
    "lambertw": (((-0.35, 50.0),), ""),
    "xlogy": (((0.0, 10.0), (0.1, 10.0)), "xlogy"),
    "xlog1py": (((0.0, 10.0), (0.1, 10.0)), "xlog1py"),
    "entr": (((0.0, 10.0),), "entr"),
}
"""The ranges of a function's operands, and its name in PyTorch if it is there."""

OF_A_DEGREE = {
    "polygamma": ((1,), (0.1, 50.0), "polygamma"),
    "eval_chebyt": ((20,), (-1.0, 1.0), "chebyshev_polynomial_t"),
    "eval_hermite": ((10,), (-3.0, 3.0), "hermite_polynomial_h"),
    "eval_laguerre": ((10,), (0.0, 10.0), "laguerre_polynomial_l"),
    "eval_legendre": ((10,), (-1.0, 1.0), "legendre_polynomial_p"),
}
"""Functions with a number before their operand: that, the range, and the name in PyTorch."""


class SpecialFunction(NamedTuple):
    """A function of arrays.

    Attributes
    ----------
    function
        Its name in SciPy.
    count
        The number of elements.
    dtype
        Their dtype.
    """

    function: str
    count: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.function}, {self.count}, {self.dtype}"

    @property
    def operands(self) -> list[Array]:
        """Uniform random numbers in the range of each operand."""
        name, rng = self.function, np.random.default_rng(0)
        ranges = FUNCTIONS[name][0] if name in FUNCTIONS else OF_A_DEGREE[name][1:2]
        return [rng.uniform(*each, self.count).astype(self.dtype) for each in ranges]

    @property
    def most(self) -> float:
        """Some hundred units of the last place, as betainc in float32 has."""
        return float(300 * np.finfo(self.dtype).eps)

    def _of(self, namespace: Any, name: str) -> Callable[..., Any]:
        degree = OF_A_DEGREE[self.function][0] if self.function in OF_A_DEGREE else ()
        return partial(getattr(namespace, name), *degree)

    def weft(self, backend: str) -> Call:
        """Return the call of weft."""
        function, operands = self._of(weft.special, self.function), self.operands
        first = (lambda x: function(x)[0]) if self.function == "airy" else function
        call = weft.jit(first, backend=backend)
        call(*operands)
        return lambda: call(*operands)

    def rivals(self) -> dict[str, Callable[[], Call]]:
        """Return what makes the calls of SciPy, and of PyTorch if it has the function."""
        name = self.function
        of_torch = FUNCTIONS[name][1] if name in FUNCTIONS else OF_A_DEGREE[name][2]
        tools = {"scipy": self._scipy}
        return {**tools, "torch": partial(self._torch, of_torch)} if of_torch else tools

    def _scipy(self) -> Call:
        import scipy.special

        operands = self.operands
        # This computes the other three values of airy as well, and a complex lambertw.
        call = self._of(scipy.special, self.function)
        return lambda: call(*operands)

    def _torch(self, name: str) -> Call:
        import torch

        operands = [torch.from_numpy(each) for each in self.operands]
        call = self._of(torch.special, name)
        if self.function.startswith("eval_"):
            degree = OF_A_DEGREE[self.function][0][0]
            call = lambda x: getattr(torch.special, name)(x, degree)  # noqa: E731
        return lambda: call(*operands)

    def error(self, found: Any) -> float:
        """Return the largest error, over the value or the median of all where that is larger."""
        import scipy.special

        operands = [each.astype("f8") for each in self.operands]
        wanted = self._of(scipy.special, self.function)(*operands)
        if self.function == "airy":
            wanted, found = wanted[0], found[0] if isinstance(found, tuple) else found
        wanted, found = np.real(wanted), np.real(np.asarray(found))
        size = np.maximum(np.abs(wanted), np.median(np.abs(wanted)))
        return float(np.max(np.abs(found - wanted) / size))


SPECIAL_FUNCTIONS = [
    SpecialFunction(function, count, dtype)
    for function in (*FUNCTIONS, *OF_A_DEGREE)
    for count, dtype in ((1_000_000, "float32"), (100_000, "float64"))
]

if __name__ == "__main__":
    main("function", __doc__ or "", ["scipy", "torch"], SPECIAL_FUNCTIONS)
