"""Named axes in operations with roles: any order of axes gives what the positional form gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ArgumentError, AxesError
from weft.ir.axes import Axis

LENGTHS = {
    "N": 2, "B": 3, "C": 4, "G": 2, "H": 5, "W": 6, "D": 3, "K": 4, "M": 2, "R": 2, "S": 3,
    "Q": 2, "REC": 3, "T": 4, "V": 3, "L": 2, "Y": 6, "heads": 2, "gates": 16, "few": 12, "F": 4,
}  # fmt: skip


N, REC, T, C, K = (Axis(LENGTHS[name], name) for name in ("N", "REC", "T", "C", "K"))


@dataclass(frozen=True)
class Use:
    """One call with operands in the order of the layout, and the same with names.

    The names of the result are in positional order. Where names allow what the positional form does
    not, `shape` is what the first operand has there: several axes of the batch are one, and none is
    one of length 1.
    """

    build: Callable[..., Any]
    operands: Sequence[Sequence[str]]
    result: Sequence[str]
    roles: dict[str, Any] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None


def _lstm(x: Any, w: Any, u: Any, **axes: Any) -> Any:
    return weft.lstm(x, (w, u), **axes).outputs


def _hidden(x: Any, start: Any, w: Any, u: Any, **axes: Any) -> Any:
    return weft.gru(x, (w, u), start, **axes).hidden


def _heads(x: Any, y: Any, q: Any, k: Any, v: Any, o: Any, **axes: Any) -> Any:
    return weft.multi_head_attention(x, y, y, (q, k, v, o), 2, **axes)


def _strided(x: Any, w: Any, **axes: Any) -> Any:
    return weft.conv(x, w, stride=(1, 2), padding=[(1, 0), 0], **axes)


def _max_pool(x: Any, **axes: Any) -> Any:
    return weft.max_pool(x, (2, 3), **axes)


USES: dict[str, Use] = {
    "conv": Use(_strided, ("NCHW", "KCRS"), "NKHW", replaced={"C": "K"},
                roles={"spatial": ["H", "W"]}),
    "conv-same-names": Use(_strided, ("NCHW", "MCHW"), "NMHW", {"spatial": ["H", "W"]},
                           replaced={"C": "M"}),
    "conv-roles": Use(_strided, ("BYHW", "MYRS"), "BMHW", replaced={"Y": "M"}, roles={
        "batch": "B", "channels": "Y", "filters": "M", "spatial": ["H", "W"]}),
    "conv-alone": Use(_strided, ("CHW", "KCRS"), "KHW", {"spatial": ("H", "W")}, shape=(1, 4, 5, 6),
                      replaced={"C": "K"}),
    "conv-two-batches": Use(_strided, ("NBCHW", "KCRS"), "NBKHW", replaced={"C": "K"},
                            shape=(6, 4, 5, 6), roles={
        "batch": ["N", "B"], "spatial": ["H", "W"]}),
    "conv-bias": Use(lambda x, w, b, **axes: weft.conv1d(x, w, bias=b, **axes),
                     ("NCW", "KCS", "K"), "NKW", replaced={"C": "K"}),
    "conv_transpose": Use(weft.conv_transpose, ("NCW", "CKS"), "NKW", replaced={"C": "K"}),
    "max_pool": Use(_max_pool, ("NCHW",), "NCHW", {"spatial": ["H", "W"]}),
    "max_pool-no-batch": Use(_max_pool, ("CHW",), "CHW", {"spatial": ["H", "W"]},
                             shape=(1, 4, 5, 6)),
    "lstm": Use(_lstm, (["REC", "N", "C"], ["gates", "C"], ["gates", "F"]), ["REC", "N", "F"],
                replaced={"C": "F"}),
    "lstm-alone": Use(_lstm, (["T", "C"], ["gates", "C"], ["gates", "F"]), ["T", "F"],
                      {"time": "T"}, replaced={"C": "F"}),
    "gru-hidden": Use(_hidden, (["REC", "N", "C"], ["L", "N", "F"], ["few", "C"], ["few", "F"]),
                      ["L", "N", "F"], {"layers": "L"}, {"L": 1}, replaced={"C": "F", "REC": "L"}),
    "rnn_cell": Use(weft.rnn_cell, ("NC", "NK", "FC", "FK"), "NK", replaced={"C": "K"}),
    "attention": Use(weft.attention, (["REC", "C"], ["T", "C"], ["T", "K"]),
                     ["REC", "K"], replaced={"C": "K"}),
    "attention-itself": Use(
        lambda x, **axes: weft.attention(x, x, x, **axes), (["REC", "C"],), ["REC", "C"],
        {"time": "REC", "keys": "REC", "features": "C", "depth": "C"}),
    "attention-heads": Use(
        weft.attention, ([*"NG", "REC", "C"], "NGTC", "NGTC"), ["N", "G", "REC", "C"],
        {"heads": "G"}),
    "multi_head_attention": Use(
        _heads, (["N", "REC", "C"], "NTC", "KC", "KC", "KC", "CK"), ["N", "REC", "C"]),
    "ctc_loss": Use(lambda x, y, **axes: weft.ctc_loss(x, y, reduction="none", **axes),
                    (["REC", "N", "Y"], "NL"), "N"),
    "matmul": Use(weft.matmul, ("NHC", "NCK"), "NHK", replaced={"C": "K"}),
    "matmul-chosen": Use(weft.matmul, ("BHC", "BCK"), "BHK", {"contracted": "C"},
                         replaced={"C": "K"}),
}  # fmt: skip


def _operand(names: Sequence[str], use: Use, number: int) -> Any:
    lengths = {**LENGTHS, **use.lengths}
    shape = [lengths[name] for name in names]
    if use is USES["ctc_loss"] and number == 1:
        return np.random.default_rng(3).integers(1, 6, shape)
    return np.random.default_rng(number).normal(size=shape)


def _expected(use: Use, arrays: Sequence[Any]) -> Any:
    """Return what the positional form gives, for axes in the order of the layout."""
    operands = [weft.constant(array) for array in arrays]
    head = use.shape
    if head is not None:
        operands[0] = weft.cast_axes(operands[0], head)
    result = weft.make_transformer("numpy").computation(use.build(*operands))()
    lengths = {**LENGTHS, **use.lengths}
    if head is None:
        return result
    kept = len(use.operands[0]) + 1 - len(head)  # axes that were one axis, or none, of the result
    return result.reshape([*(lengths[name] for name in use.result[:kept]), *result.shape[1:]])


@pytest.mark.parametrize("name", USES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_any_order_of_named_axes_gives_the_positional_result(name: str, data: Any) -> None:
    use = USES[name]
    arrays = [_operand(names, use, number) for number, names in enumerate(use.operands)]
    expected = _expected(use, arrays)
    orders = [data.draw(st.permutations(range(len(names)))) for names in use.operands]
    placeholders, values = [], []
    for names, array, order in zip(use.operands, arrays, orders, strict=True):
        value = array.transpose(order)
        axes = [Axis(n, names[i]) for n, i in zip(value.shape, order, strict=True)]
        placeholders.append(weft.placeholder(axes, value.dtype))
        values.append(value)
    result = use.build(*placeholders, **use.roles)
    left = [use.replaced.get(axis.name, axis.name) for axis in placeholders[0].axes]
    wanted = [name for name in left if name in use.result]
    assert list(result.axes.names) == wanted
    got = weft.make_transformer("numpy").computation(result, *placeholders)(*values)
    places = [list(use.result).index(axis) for axis in wanted]
    np.testing.assert_allclose(got, expected.transpose(places), rtol=1e-12, atol=1e-12)


def test_gradients_have_the_axes_of_what_they_are_by() -> None:
    x, w = weft.variable((T, C, N)), weft.variable((C, Axis(3, "S"), K))
    y = weft.conv1d(x, w, spatial="T", filters="K")
    error = weft.constant(np.ones(y.axes.lengths, np.float32), y.axes)
    assert weft.deriv(y, x, error=error).axes == x.axes
    assert weft.deriv(y, w, error=error).axes == w.axes


def test_an_unknown_batch_stays_the_same_axis() -> None:
    x = weft.placeholder((weft.ax.N, Axis(2, "C"), Axis(5, "W")))
    y = weft.max_pool(weft.conv1d(x, np.ones((3, 2, 2), np.float32)), 2)
    assert y.axes.batch_axis == weft.ax.N
    run = weft.make_transformer("numpy").computation(y, x)
    assert [run(np.ones((n, 2, 5))).shape for n in (1, 4)] == [(1, 3, 2), (4, 3, 2)]


def test_weights_without_names_lie_as_in_the_positional_form() -> None:
    x = weft.placeholder((C, N, REC))
    found = weft.lstm(x, [(np.ones((8, 4)), np.ones((8, 2))), (np.ones((8, 2)), np.ones((8, 2)))])
    assert found.outputs.axes == weft.make_axes((Axis(2, "C"), N, REC))
    assert found.hidden.axes == weft.make_axes((Axis(2, "C"), N, Axis(2, "layers")))
    named = weft.lstm(x, (np.ones((8, 4)), np.ones((8, 2))), units="K", layers="L")
    assert named.hidden.axes.names == ("K", "N", "L")
    y = weft.placeholder((N, C, Axis(5, "W")))
    assert weft.conv(y, np.ones((7, 4, 2)), filters="K").axes.names == ("N", "K", "W")
    assert weft.matmul(weft.placeholder((N, C)), np.ones((4, 7)), columns="K").axes.names == (
        "N", "K",
    )  # fmt: skip


def test_a_mask_may_lack_axes_and_lie_in_any_order() -> None:
    q, k = weft.placeholder((N, REC, C)), weft.placeholder((N, T, C))
    keep = np.random.default_rng(0).random((2, 4)) > 0.4
    a, b = (
        np.random.default_rng(1).normal(size=(2, 3, 4)),
        np.random.default_rng(2).normal(size=(2, 4, 4)),
    )
    run = weft.make_transformer("numpy").computation
    whole = np.broadcast_to(keep[:, None], (2, 3, 4))
    expected = run(
        weft.attention(*(weft.constant(z[:, None]) for z in (a, b, b)), whole[:, None])
    )()
    for axes, mask in (((N, T), keep), ((T, N), keep.T), ((T, REC, N), whole.transpose(2, 1, 0))):
        y = weft.attention(q, k, k, weft.constant(mask, axes))
        assert y.axes == q.axes
        np.testing.assert_allclose(run(y, q, k)(a, b), expected[:, 0], rtol=1e-5)


def test_einsum_takes_names_in_any_order_and_letters_by_place() -> None:
    a, b = np.arange(8.0).reshape(2, 4), np.arange(16.0).reshape(4, 4)
    run = weft.make_transformer("numpy").computation
    for first, second in itertools.product(((N, C), (C, N)), ((C, K), (K, C))):
        x, y = weft.placeholder(first, float), weft.placeholder(second, float)
        z = weft.einsum("NC,CK->KN", x, y)
        assert z.axes == weft.make_axes((K, N))
        got = run(z, x, y)(a if first[0] is N else a.T, b if second[0] is C else b.T)
        np.testing.assert_allclose(got, (a @ b).T)
    x, y = weft.placeholder((N, C), float), weft.placeholder((C, K), float)
    assert weft.einsum("ab,bc", x, y).axes == weft.make_axes((N, K))
    assert weft.einsum("...C,CK->...K", x, y).axes == weft.make_axes((N, K))


def test_a_refusal_names_operation_axes_lines_and_what_to_pass() -> None:
    x = weft.placeholder((Axis(2, "N"), Axis(3, "C"), Axis(5, "W")))
    filters = weft.placeholder((Axis(4, "out"), Axis(3, "C"), Axis(2, "X")))
    with pytest.raises(AxesError) as caught:
        weft.conv(x, filters)
    message = str(caught.value)
    assert "conv: axes out, X have no role in" in message
    assert "pass filters= or spatial=" in message
    assert message.count(f'File "{__file__}"') == 3
    assert weft.conv(x, filters, filters="out", batch=None).axes.names == ("N", "out", "W")
    with pytest.raises(ArgumentError, match="no argument 'strides'; the roles of named axes are"):
        weft.conv(x, filters, strides=2)  # type: ignore[call-arg]
