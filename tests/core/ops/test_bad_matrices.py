"""What linear algebra makes of singular, indefinite and non-finite matrices of a stack."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from needs import skip_without_backend

import weft
from weft import linalg

GOOD = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 5]])
BAD = {
    "zero": np.zeros((3, 3)),
    "singular": np.array([[1.0, 2, 3], [2, 4, 6], [1, 1, 1]]),
    "indefinite": np.array([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]]),
    "NaN": np.array([[4.0, 1, 0], [1, np.nan, 1], [0, 1, 5]]),
    "infinite": np.array([[4.0, 1, 0], [1, 3, 1], [np.inf, 1, 5]]),
    "upper NaN": np.array([[4.0, np.nan, 0], [1, 3, 1], [0, 1, 5]]),
}
STACK = np.stack([matrix for bad in BAD.values() for matrix in (GOOD, bad)])
SIDES = np.ones((len(STACK), 3, 1))

Function = Callable[[Any], Any]

GIVEN: dict[str, tuple[Function, str]] = {
    "cholesky": (linalg.cholesky, "NaN NaN NaN NaN NaN -"),
    "cholesky_solve": (lambda x: linalg.cholesky_solve(x, SIDES), "NaN - - NaN NaN -"),
    "cond": (linalg.cond, "NaN - - NaN NaN NaN"),
    "det": (linalg.det, "- - - NaN inf NaN"),
    "eig": (lambda x: weft.real(linalg.eig(x).eigenvectors), "- - - NaN NaN NaN"),
    "eigh": (lambda x: linalg.eigh(x).eigenvectors, "- - - NaN NaN -"),
    "eigvals": (lambda x: weft.real(linalg.eigvals(x)), "- - - NaN NaN NaN"),
    "eigvalsh": (linalg.eigvalsh, "- - - NaN NaN -"),
    "expm_multiply": (lambda x: linalg.expm_multiply(x, SIDES), "- - - NaN NaN NaN"),
    "inv": (linalg.inv, "NaN NaN - NaN - NaN"),
    "ldl": (lambda x: linalg.ldl(x).d, "- - - NaN NaN -"),
    "lstsq": (lambda x: linalg.lstsq(x, SIDES).x, "- - - NaN NaN NaN"),
    "lu": (lambda x: linalg.lu(x).U, "- - - NaN NaN NaN"),
    "lu_solve": (lambda x: linalg.lu_solve(linalg.lu_factor(x), SIDES),
                 "NaN NaN - NaN NaN NaN"),
    "matrix_exp": (linalg.matrix_exp, "- - - NaN NaN NaN"),
    "matrix_norm": (lambda x: linalg.matrix_norm(x, ord=2), "- - - NaN NaN NaN"),
    "matrix_power": (lambda x: linalg.matrix_power(x, -1), "NaN NaN - NaN - NaN"),
    "matrix_rank": (linalg.matrix_rank, "- - - - - -"),
    "pinv": (linalg.pinv, "- - - NaN NaN NaN"),
    "qr": (lambda x: linalg.qr(x).R, "- - - NaN NaN NaN"),
    "slogdet": (lambda x: linalg.slogdet(x).logabsdet, "inf inf - NaN inf NaN"),
    "solve": (lambda x: linalg.solve(x, SIDES), "NaN NaN - NaN - NaN"),
    "solve_triangular": (lambda x: linalg.solve_triangular(x, SIDES, lower=True),
                         "NaN - - NaN inf -"),
    "svd": (lambda x: linalg.svd(x).U, "- - - NaN NaN NaN"),
    "svdvals": (linalg.svdvals, "- - - NaN NaN NaN"),
}  # fmt: skip
"""By name: a function, and what it gives for each bad matrix; a dash for finite numbers."""


@cache
def results(backend: str) -> tuple[Any, ...]:
    """Return what all functions give for the stack, and for the good matrix by itself."""
    skip_without_backend(backend)

    def all_of(x: Any) -> Any:
        return [f(x) for f, _ in GIVEN.values()]

    call = weft.jit(all_of, backend=backend)
    return call(STACK), call(np.broadcast_to(GOOD, STACK.shape))


@pytest.mark.parametrize("backend", ["numpy", "native", "opencl"])
@pytest.mark.parametrize("name", GIVEN)
def test_a_bad_matrix_gives_what_is_documented_and_spoils_no_other(name: str, backend: str) -> None:
    place = list(GIVEN).index(name)
    found, of_good = (each[place] for each in results(backend))
    rows = found.reshape(len(STACK), -1)
    held = ["NaN" if np.isnan(row).any() else "-" if np.isfinite(row).all() else "inf"
            for row in rows[1::2]]  # fmt: skip
    assert " ".join(held) == GIVEN[name][1]
    np.testing.assert_allclose(found[::2], of_good[::2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in GIVEN if "NaN" in GIVEN[name][1].split()[:3]])
def test_a_search_for_nan_tells_op_line_and_matrix(name: str) -> None:
    f, held = GIVEN[name]
    stack = np.stack([GOOD] * len(STACK))
    stack[4] = list(BAD.values())[held.split().index("NaN")]
    x = weft.placeholder(stack.shape, dtype="float64")
    value = f(x)
    found = weft.make_transformer("numpy").computation(value, x).find_nonfinite(stack)
    assert found is not None
    assert found.value.place is not None
    assert found.value.place[0] == 4
    text = str(found)
    assert "makes NaN of finite operands" in text
    assert f"the first at {list(found.value.place)}" in text
    assert __file__ in text
