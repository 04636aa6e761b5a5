"""Factorizations and linear systems: weft beside NumPy's LAPACK and PyTorch.

One large matrix, and stacks of small ones; values, and gradients beside those of PyTorch. Values
must fulfil the equation that defines them; gradients are compared with those that the numpy backend
finds in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from side_by_side import Call, main

import weft

Array = np.ndarray[Any, Any]


def weighted(name: str, found: Sequence[Any]) -> Any:
    """Return a number that depends on all factors, but not on signs that are free."""
    if name == "slogdet":
        return found[1].sum()
    if name in ("svd", "eigh"):
        values, vectors = (found[1], found[0]) if name == "svd" else found
        return values.sum() + (vectors[..., 0, :] ** 2 * values).sum()
    if name == "lu":
        return (found[1] ** 2).sum() + (found[2] ** 2).sum()
    if name == "qr":
        return (found[1] ** 2)[..., :1, :].sum()
    return (found[0] ** 2).sum()


class Factorization(NamedTuple):
    """A function of a stack of matrices, which are far from singular and have separate eigenvalues.

    Attributes
    ----------
    function
        Its name in the array API standard.
    shape
        The axes of the matrices.
    dtype
        The dtype of their elements.
    is_gradient
        Whether the gradient of a number made of the results is computed, else the results.
    """

    function: str
    shape: tuple[int, ...]
    dtype: str
    is_gradient: bool = False

    def __str__(self) -> str:
        kind = "gradient of " if self.is_gradient else ""
        return f"{kind}{self.function}, {' x '.join(map(str, self.shape))}, {self.dtype}"

    @property
    def operands(self) -> list[Array]:
        """The matrices, and the right-hand sides of systems: one for each."""
        rng, n = np.random.default_rng(0), self.shape[-1]
        noise = rng.normal(size=self.shape) / np.sqrt(n)
        x = np.eye(*self.shape[-2:]) * np.linspace(1, 4, n) + noise / 4
        if self.function in ("eigh", "cholesky"):
            x = x + x.mT
        operands = [x]
        if self.function in ("solve", "lstsq"):
            operands.append(rng.normal(size=(*self.shape[:-1], 1)))
        return [each.astype(self.dtype) for each in operands]

    @property
    def most(self) -> float:
        """Of values some units of the last place for each row; gradients divide by gaps."""
        eps = float(np.finfo(self.dtype).eps)
        return 1e5 * eps if self.is_gradient else 8 * eps * max(self.shape[-2:])

    def _results(self, *operands: Any, namespace: Any) -> tuple[Any, ...]:
        """Return the results of a function that has its name in a namespace."""
        options = {"full_matrices": False} if self.function == "svd" else {}
        found = getattr(namespace, self.function)(*operands, **options)
        if self.function == "lstsq":
            return (found[0],)
        return tuple(found) if isinstance(found, tuple) else (found,)

    def _gradient(self, *operands: Array, backend: str) -> Callable[..., Any]:
        def number(*operands: Any) -> Any:
            return weighted(self.function, self._results(*operands, namespace=weft.linalg))

        call = weft.jit(weft.grad(number), backend=backend)
        call(*operands)
        return call

    def weft(self, backend: str) -> Call:
        """Return the call of weft."""
        operands = self.operands
        if self.is_gradient:
            call = self._gradient(*operands, backend=backend)
        else:
            call = weft.jit(
                lambda *operands: self._results(*operands, namespace=weft.linalg), backend=backend
            )
        call(*operands)
        return lambda: call(*operands)

    def rivals(self) -> dict[str, Callable[[], Call]]:
        """Return what makes the calls of NumPy and PyTorch that have one."""
        of_numpy = {} if self.is_gradient or self.function == "lu" else {"numpy": self._numpy}
        return {**of_numpy, "torch": self._torch}

    def _numpy(self) -> Call:
        operands = self.operands
        if self.function == "lstsq" and len(self.shape) > 2:
            return lambda: (
                np.stack([np.linalg.lstsq(*each)[0] for each in zip(*operands, strict=True)]),
            )
        return lambda: self._results(*operands, namespace=np.linalg)

    def _torch(self) -> Call:
        import torch

        operands = [torch.from_numpy(each) for each in self.operands]
        if not self.is_gradient:
            return lambda: tuple(map(np.asarray, self._results(*operands, namespace=torch.linalg)))
        operands[0].requires_grad_(True)

        def gradient() -> Any:
            operands[0].grad = None
            weighted(self.function, self._results(*operands, namespace=torch.linalg)).backward()
            return operands[0].grad.numpy()

        return gradient

    def error(self, found: Any) -> float:
        """Return the distance from what is right, over the norm of that."""
        operands = [each.astype("f8") for each in self.operands]
        if self.is_gradient:
            wanted = self._gradient(*operands, backend="numpy")(*operands)
            if self.function in ("eigh", "cholesky"):
                wanted, found = (each + each.mT for each in (wanted, found))
            return distance(found, wanted)
        x, *sides = operands
        first, *others = (np.asarray(each, "f8") for each in found)
        if self.function == "solve":
            return distance(x @ first, *sides)
        if self.function == "lstsq":
            return distance(x.mT @ (x @ first), x.mT @ sides[0])
        if self.function == "inv":
            return distance(x @ first, np.broadcast_to(np.eye(x.shape[-1]), x.shape))
        if self.function == "slogdet":
            return distance(others[0], np.linalg.slogdet(x)[1])
        return distance(self._product(first, *others), x)

    def _product(self, first: Array, *others: Array) -> Array:
        """Return the matrices that factors belong to."""
        if self.function == "svd":
            return np.asarray(first * others[0][..., None, :] @ others[1])
        if self.function == "eigh":
            return np.asarray(others[0] * first[..., None, :] @ others[0].mT)
        if self.function == "cholesky":
            return np.asarray(first @ first.mT)
        product = first @ others[0]
        return np.asarray(product @ others[1] if len(others) > 1 else product)


def distance(found: Any, wanted: Any) -> float:
    """Return the norm of the difference over that of what is wanted."""
    return float(np.linalg.norm(np.asarray(found) - wanted) / np.linalg.norm(wanted))


FUNCTIONS = ("qr", "svd", "eigh", "lu", "cholesky", "solve", "lstsq", "slogdet", "inv")
SHAPES = [
    ((512, 512), "float32"),
    ((512, 512), "float64"),
    ((4096, 4, 4), "float32"),
    ((1024, 8, 8), "float32"),
    ((1024, 8, 8), "float64"),
    ((256, 16, 16), "float32"),
    ((64, 32, 32), "float32"),
    ((64, 32, 32), "float64"),
]
FACTORIZATIONS = [
    Factorization(function, (*head, 2 * m if function == "lstsq" else m, n), dtype, is_gradient)
    for is_gradient in (False, True)
    for function in FUNCTIONS
    for (*head, m, n), dtype in SHAPES
]

if __name__ == "__main__":
    main("factorization", __doc__ or "", ["numpy", "torch"], FACTORIZATIONS)
