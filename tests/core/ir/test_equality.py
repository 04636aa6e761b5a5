"""`==` compares elements, as in NumPy; nothing inside weft asks by it whether ops are the same."""

from __future__ import annotations

import operator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import DTypeError
from weft.ir.tensor import TensorOp
from weft.testing.cases import make_case, run_cases
from weft.testing.table import TABLE
from weft.testing.table.rows import Row

GIVEN = np.array([[0, 1, 2], [3, 1, np.nan]], np.float32)
OTHERS: dict[str, Any] = {
    "a number": 1,
    "a bool": True,
    "a number of NumPy": np.float64(1),
    "an array": np.array([0, 1, 5], np.float32),
    "a list": [[0], [3]],
    "a tuple": (0.0, 1.0, 2.0),
}


@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_elements_are_compared_with(transformer: weft.Transformer, compare: Any, other: Any):
    x = weft.placeholder((2, 3))
    results = [compare(x, other), compare(other, x), compare(x, x), compare(x, weft.constant(1.0))]
    wanted = [
        compare(GIVEN, other),
        compare(GIVEN, other),
        compare(GIVEN, GIVEN),
        compare(GIVEN, 1),
    ]
    assert {op.dtype.name for op in results} == {"bool"}
    found = transformer.computation(results, x)(GIVEN)
    assert [each.tolist() for each in found] == [each.tolist() for each in wanted]


@pytest.mark.parametrize("other", [None, "x", b"x", object(), weft.ax.N, weft.Axes()])
def test_what_is_no_tensor_is_another_object(other: Any):
    x = weft.placeholder(())
    assert ((x == other), (other == x), (x != other), (other != x)) == (False, False, True, True)


@pytest.mark.parametrize("other", [Fraction(1, 2), ["a"], np.array(["a"])], ids=repr)
def test_what_holds_no_numbers_of_weft_is_refused(other: Any):
    with pytest.raises(weft.WeftError):
        _ = weft.placeholder(()) == other


def test_axes_must_fit():
    with pytest.raises(weft.errors.AxesError, match="do not broadcast"):
        _ = weft.placeholder((2,)) == weft.placeholder((3,))


def test_ops_without_a_value_are_compared_by_identity():
    write = weft.assign(weft.variable(()), 1)
    assert write == write
    assert (write == weft.variable(())) is False


@pytest.mark.parametrize(
    "ask",
    [
        lambda x, y: bool(x),
        lambda x, y: 1 if x == y else 0,
        lambda x, y: not x,
        lambda x, y: y in [x],
        lambda x, y: [x, y].index(y),
        lambda x, y: [x, y].remove(y),
        lambda x, y: x in {x: 1}.values() and y in {x: x}.values(),
        lambda x, y: 0 < x < 1,
    ],
)
def test_an_op_has_no_truth_value(ask: Any):
    with pytest.raises(DTypeError) as caught:
        ask(weft.placeholder((), name="x"), weft.placeholder((), name="y"))
    text = str(caught.value)
    pieces = ["no truth value", "where()", "cond()", "test_equality.py"]
    if text.startswith("EqualOp"):
        pieces += ["`is`", "set or dict"]
    assert [piece for piece in pieces if piece not in text] == []


CHUNKS = 160


@pytest.fixture
def no_equality(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no op be compared by == or != or asked for its truth while a test runs."""

    def refused(*_: object) -> Any:
        raise AssertionError("an op was compared by == or !=")

    for name in ("__eq__", "__ne__", "__bool__"):
        monkeypatch.setattr(TensorOp, name, refused)


def _dtype(row: Row) -> str:
    return "float32" if "float32" in row.dtypes else row.dtypes[0]


@pytest.mark.share(40)
@pytest.mark.usefixtures("no_equality")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_in_weft_compares_ops(backend: str, chunk: int):
    cases = [make_case(row, row.shapes[0], _dtype(row)) for row in TABLE[chunk::CHUNKS]]
    with weft.make_transformer(backend) as transformer:
        assert not run_cases(transformer, cases)
    for case in cases:
        graph = weft.capture(case.results, case.placeholders)
        graph.verify()
        assert weft.parse(graph.text(full=True)).text() == graph.text()
        assert all([repr(graph), graph._repr_html_(), case.value._repr_html_()])


@pytest.mark.usefixtures("no_equality")
def test_programs_with_states_and_graphs_compare_no_ops(backend: str, tmp_path: Path):
    x, w = weft.placeholder((3, 4), name="x"), weft.variable((4, 4), initial_value=0.1, name="w")
    body = weft.capture([weft.tanh(x @ w) + x], [x])
    y = weft.checkpoint(weft.loop(body, 3, x)[0], [x])
    y = weft.cond(weft.sum(y) > 0, body, body, [y], [y])[0]
    loss = weft.mean(weft.softmax(y))
    for optimizer in (weft.adam, weft.sgd):
        step = optimizer(loss, [w], learning_rate=0.01)
        with weft.make_transformer(backend) as transformer:
            computation = transformer.computation([loss, step], x)
            first = computation(np.ones((3, 4), np.float32))[0]
            computation(feed_dict={x: np.ones((3, 4), np.float32)})
            computation.save(tmp_path / "step.weft")
            computation.report(tmp_path / "step.html", np.ones((3, 4), np.float32))
            assert computation.find_nonfinite(np.ones((3, 4), np.float32)) is None
            transformer.save_states(tmp_path / "states.safetensors")
            transformer.load_states(tmp_path / "states.safetensors")
        again = weft.load(tmp_path / "step.weft", backend)
        np.testing.assert_allclose(again(np.ones((3, 4), np.float32))[0], first, rtol=1e-5)
