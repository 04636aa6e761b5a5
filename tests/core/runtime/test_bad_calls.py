"""A call that does not fit gives a clear error, and leaves state as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import (
    ArgumentError,
    AxesError,
    DTypeError,
)

H = weft.make_axis(2, "H")


def x(*shape: Any, dtype: Any = "float32") -> Any:
    return weft.placeholder(shape, dtype=dtype)


CALLS = {
    "too few": ((), {}, ArgumentError, ("expecting 2", "called with 0")),
    "too many": ((1, 2, 3), {}, ArgumentError, ("expecting 2", "called with 3")),
    "a wrong shape": (([1, 2], 1), {}, AxesError, ("argument 0", "(2,)", "Axes(3)")),
    "a wrong rank": ((1, 1), {}, AxesError, ("argument 0", "()", "Axes(3)")),
    "a wrong dtype": (
        ([1, 2, 3], np.float32(1)), {}, DTypeError, ("argument 1", "float32", "int32")
    ),
    "a fraction": (([1, 2, 3], 1.5), {}, DTypeError, ("argument 1", "fraction")),
    "NaN": (([1, 2, 3], float("nan")), {}, DTypeError, ("argument 1", "NaN")),
    "an overflow": (([1, 2, 3], 2**40), {}, DTypeError, ("argument 1", "int32")),
    "text": (("abc", 1), {}, DTypeError, ("argument 0", "number")),
    "ragged": (([1, [2, 3]], 1), {}, ArgumentError, ("argument 0",)),
    "complex": (([1, 2, 3j], 1), {}, DTypeError, ("argument 0", "complex")),
    "a wrong number of outs": (
        ([1, 2, 3], 1), {"out": []}, ArgumentError, ("1 results", "out= gives 0")
    ),
    "a wrong out": (
        ([1, 2, 3], 1), {"out": np.zeros(3)}, ArgumentError, ("out= needs", "float32")
    ),
    "an out that is a view": (
        ([1, 2, 3], 1), {"out": np.zeros((3, 2), np.float32)[:, 0]}, ArgumentError, ("contiguous",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("warm", [False, True], ids=["first call", "later call"])
def test_a_call_that_does_not_fit(transformer: weft.Transformer, case: str, warm: bool):
    arguments, options, error, words = CALLS[case]
    a, b = x(3), x(dtype="int32")
    state = weft.variable((), initial_value=0)
    weft.assign(state, state + 1)
    c = transformer.computation(a * weft.cast(b, "float32") + state * 0, a, b)
    if warm:
        c([1, 2, 3], 2)
    with pytest.raises(error) as caught:
        c(*arguments, **options)
    message = str(caught.value)
    assert [word for word in words if word not in message] == []
    assert f'File "{__file__}", line' in message
    assert c([1, 2, 3], 2).tolist() == [2, 4, 6]
    assert transformer.get_value(state).item() == 1 + warm


def test_feed_dict_that_does_not_fit(transformer: weft.Transformer):
    a, b, other = x(), x(), x()
    c = transformer.computation(a + b, a, b)
    with pytest.raises(ArgumentError, match="no parameters") as caught:
        c(feed_dict={other: 1})
    assert "File" in str(caught.value)
    with pytest.raises(ArgumentError, match="missing values") as caught:
        c(feed_dict={a: 1})
    assert b.file_info in str(caught.value)
    with pytest.raises(weft.errors.ArgumentError, match="color"):
        c(1, 2, color=3)


def test_an_unknown_length_that_is_not_given(transformer: weft.Transformer):
    n = weft.Axis(None, "N")
    state = weft.variable((n,))
    c = transformer.computation(state + 1)
    with pytest.raises(AxesError, match=r"no argument tells the lengths N.*axes=") as caught:
        c()
    assert f'File "{__file__}", line' in str(caught.value)
    assert transformer.computation(state + 1, axes={n: 3})().tolist() == [1, 1, 1]


def test_lengths_that_conflict(transformer: weft.Transformer):
    n = weft.Axis(None, "N")
    a, b = x(n), x(n)
    c = transformer.computation(a + b, a, b)
    with pytest.raises(AxesError, match="length N is 2 elsewhere, but 3") as caught:
        c([1, 2], [1, 2, 3])
    assert b.file_info in str(caught.value)
    assert c([1, 2], [1, 2]).tolist() == [2, 4]


def test_a_length_above_its_maximum_is_refused(transformer: Any) -> None:
    n = weft.symbol("n", max=4)
    x = weft.placeholder((n, 2), name="x")
    f = transformer.computation(x + 1, x)
    assert f(np.ones((4, 2))).shape == (4, 2)
    problem = r"length n is 5, and was declared with max=4"
    with pytest.raises(AxesError, match=rf"{problem}: x\w* .*test_bad_calls.py"):
        f(np.ones((5, 2)))
    with pytest.raises(AxesError, match=f"axes= of .*: {problem}"):
        transformer.computation(x + 1, x, axes={n: 5})


def test_a_length_that_is_given_but_not_unknown(transformer: weft.Transformer):
    with pytest.raises(ArgumentError, match="not unknown") as caught:
        transformer.computation(x(H), axes={H: 3})
    assert f'File "{__file__}", line' in str(caught.value)


def test_results_that_are_no_ops(transformer: weft.Transformer):
    with pytest.raises(ArgumentError, match="returns ops, not 3"):
        transformer.computation([x(), 3])
    assert len(transformer.computations) == 0


def test_a_value_of_another_shape_or_dtype_for_a_state(transformer: weft.Transformer):
    state = weft.variable((2,), dtype="int32", initial_value=[1, 2])
    for wrong, error in (
        ([1, 2, 3], AxesError), ([np.nan, 1], DTypeError), ([1.5, 1], DTypeError)
    ):  # fmt: skip
        with pytest.raises(error):
            transformer.set_value(state, wrong)
        assert transformer.get_value(state).tolist() == [1, 2]
    for wrong in (weft.constant(1), x() + 1, "w"):
        with pytest.raises(ArgumentError, match="not a state"):
            transformer.get_value(wrong)
