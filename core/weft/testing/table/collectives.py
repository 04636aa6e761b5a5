"""Rows of the op table: collectives, here of one rank; `tests/communicators` has more ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.testing.table.rows import ALL, CUBE, FLOATS, NUMBERS, ONE, Refusal, Row, operands

_X = weft.placeholder((2, 3))
_W = weft.variable((2, 3))
_FLAGS = weft.placeholder((2, 3), "bool")
_COUNTS = weft.placeholder((2, 3), "int32")


def _standardized(x: Array) -> Any:
    """Return x with mean 0 and variance 1 for each index of the second axis."""
    mean, variance = (f(x, axis=(0, 2), keepdims=True) for f in (np.mean, np.var))
    return (x - mean) / np.sqrt(variance + 1e-5)


ROWS = (
    Row("all_reduce", weft.all_reduce, operands("any"), ONE, NUMBERS, lambda x: x, twice=True),
    Row("all_reduce", lambda x: weft.all_reduce(x, "mean"), operands("any"), ONE, FLOATS,
        lambda x: x, case="mean"),
    Row("all_reduce", lambda x: weft.all_reduce(x, "max"), operands("any"), ONE, ALL, lambda x: x,
        case="max"),
    Row("all_reduce", lambda x: weft.all_reduce(x, "min"), operands("any"), ONE, ALL, lambda x: x,
        case="min"),
    Row("all_reduce_later", lambda x: weft.all_reduce_later(x * 2)[1] + x, operands("any"), ONE,
        NUMBERS, lambda x: x * 3),
    Row("all_gather", weft.all_gather, operands("any"), ONE, ALL, np.atleast_1d, twice=True),
    Row("all_gather", lambda x: weft.all_gather(x, axis=-1), operands("any"), CUBE, ALL,
        lambda x: x, case="last"),
    Row("reduce_scatter", lambda x: weft.reduce_scatter(x, axis=1), operands("any"), CUBE, NUMBERS,
        lambda x: x, twice=True),
    Row("reduce_scatter", lambda x: weft.reduce_scatter(x, "mean"), operands("any"), CUBE, FLOATS,
        lambda x: x, case="mean"),
    Row("broadcast_from", weft.broadcast_from, operands("any"), ONE, ALL, lambda x: x, twice=True),
    Row("all_to_all", weft.all_to_all, operands("any"), CUBE, ALL, lambda x: x, twice=True),
    Row("send_receive", weft.send_receive, operands("any"), ONE, ALL, lambda x: x, twice=True),
    Row("send_receive", lambda x: weft.send_receive(x, 2, wraps=False), operands("any"), ONE, ALL,
        np.zeros_like, case="ends"),
    Row("batch_norm", lambda x: weft.batch_norm(x, training=True, across_ranks=True),
        operands("any"), CUBE, FLOATS, _standardized, case="across-ranks"),
    Row("data_parallel", lambda x: weft.data_parallel([x * 2], [_W])[0][0], operands("any"), ONE,
        FLOATS, lambda x: x * 2),
    Row("rank_index", weft.rank_index, (), ((),), ("int32",), lambda: np.array(0, np.int32)),
)  # fmt: skip

REFUSALS = (
    Refusal("all_reduce", "bools", lambda: weft.all_reduce(_FLAGS), DTypeError, "cast"),
    Refusal("all_reduce", "reduction", lambda: weft.all_reduce(_X, "median"),
            ArgumentError, "no reduction 'median'"),
    Refusal("all_reduce", "integers", lambda: weft.all_reduce(_COUNTS, "mean"), DTypeError,
            "all_reduce: a mean over ranks needs floats"),
    Refusal("all_reduce_later", "bools", lambda: weft.all_reduce_later(_FLAGS), DTypeError, "cast"),
    Refusal("all_gather", "axis", lambda: weft.all_gather(_X, axis=2), AxesError,
            "all_gather: dimension 2"),
    Refusal("all_gather", "axes", lambda: weft.all_gather(_X, axis=(0, 1)), AxesError,
            "all_gather: "),
    Refusal("reduce_scatter", "scalar", lambda: weft.reduce_scatter(1.0), AxesError,
            "at least one dimension"),
    Refusal("reduce_scatter", "reduction", lambda: weft.reduce_scatter(_X, "max"),
            ArgumentError, "sum and mean"),
    Refusal("broadcast_from", "root", lambda: weft.broadcast_from(_X, 1), ArgumentError,
            "no rank 1 among 1"),
    Refusal("all_to_all", "scalar", lambda: weft.all_to_all(1.0), AxesError,
            "at least one dimension"),
    Refusal("send_receive", "text", lambda: weft.send_receive("a"), DTypeError, "not made of"),
    Refusal("data_parallel", "nothing", lambda: weft.data_parallel(weft.sum(_X)), ArgumentError,
            "0 gradients were given for 0 variables"),
    Refusal("data_parallel", "unpaired", lambda: weft.data_parallel([_X], [_W, _W]), ArgumentError,
            "1 gradients were given for 2 variables"),
    Refusal("data_parallel", "variables", lambda: weft.data_parallel([_X]), ArgumentError,
            "gradients and their variables"),
    Refusal("data_parallel", "integers", lambda: weft.data_parallel([_COUNTS], [_W]), ArgumentError,
            "needs floats"),
    Refusal("data_parallel", "bucket", lambda: weft.data_parallel([_X], [_W], bucket_bytes=0),
            ArgumentError, "bucket_bytes"),
    Refusal("rank_index", "communicator", lambda: weft.rank_index(2),
            ArgumentError, "by its name"),
)  # fmt: skip
