"""Axes: construction, set operations, and the one rule that aligns operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import AxesError
from weft.ir import ax
from weft.ir.axes import Axes, Axis, FlattenedAxis, broadcast_axes, make_axes, make_axis

C, H, W, N = Axis(2, "C"), Axis(3, "H"), Axis(4, "W"), Axis(5, "N")
REC = Axis(6, "REC")
ALL = (C, H, W, N, REC)
subsets = st.lists(st.sampled_from(ALL), unique=True, max_size=5)
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@pytest.mark.parametrize(
    ("given_axes", "lengths", "names"),
    [
        ((), (), ()),
        (C, (2,), ("C",)),
        (3, (3,), (None,)),
        (np.int64(3), (3,), (None,)),
        ((C, N), (2, 5), ("C", "N")),
        ([2, 3], (2, 3), (None, None)),
        ((2, np.int32(3)), (2, 3), (None, None)),
        (((C, H), N), (6, 5), ("(C,H)", "N")),
        (((2, 3), 4), (6, 4), (None, None)),
    ],
)
def test_make_axes(given_axes: Any, lengths: tuple[int, ...], names: tuple[Any, ...]):
    axes = make_axes(given_axes)
    assert (axes.lengths, axes.names, axes.rank) == (lengths, names, len(lengths))
    assert make_axes(axes) is axes


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((C, 2), "mix named and positional"),
        ((C, C), "C more than once"),
        ((C, Axis(9, "C")), "C more than once"),
        ("CN", "cannot be made from the text"),
        ((2.5,), "must be an integer, not 2.5"),
        ((-1,), "must not be negative, got -1"),
        (("C",), "must be an integer, not 'C'"),
    ],
)
def test_make_axes_refuses(wrong: str | tuple[Any, ...], message: str):
    with pytest.raises(AxesError, match=message):
        make_axes(wrong)


def test_an_axis_is_equal_by_name_and_length():
    assert Axis(3, "C") == Axis(3, "C")
    assert hash(Axis(3, "C")) == hash(Axis(3, "C"))
    assert Axis(3, "C") != Axis(4, "C")
    assert Axis(3, "C") != Axis(3, "H")
    assert Axis(3, "C") != Axis(3)
    assert Axis(None, "C") != Axis(None, "C")
    assert ax.C == ax.C
    n = weft.symbol("n")
    assert Axis(n, "C") == Axis(n, "C")
    assert Axis(3) != 3


def test_automatic_names_are_unique():
    first, second = make_axis(3), make_axis(3)
    assert first.name != second.name
    assert first.name.startswith("Axis_")
    with pytest.raises(AxesError, match="length first"):
        make_axis("C", 3)


def test_a_length_can_be_set_until_the_axis_is_used():
    axis = Axis(None, "N")
    axis.length = 4
    assert axis.length == 4
    with pytest.raises(AxesError, match="is fixed"):
        axis.length = 5
    used = Axis(None, "N")
    make_axes((used,))
    with pytest.raises(AxesError, match="is fixed"):
        used.length = 5
    with pytest.raises(AxesError, match="must not be negative"):
        Axis(None, "N").length = -5


def test_setting_what_an_axis_has_already_is_no_error():
    used = make_axes((Axis(4, "N"), ax.C))[0]
    used.length, used.name = 4, "N"
    ax.C.length, ax.C.name = ax.C.length, "C"


def test_a_name_can_be_given_until_the_axis_is_used():
    axis = make_axis(4)
    axis.name = "Q"
    assert axis == Axis(4, "Q")
    used = make_axis(4)
    made = make_axes(used)
    for fixed in (axis, used, ax.N, made.flatten(), make_axes([used, axis]).flatten()):
        with pytest.raises(AxesError, match=r"the name of axis .* is fixed"):
            fixed.name = "R"
    assert used in {*made}
    with pytest.raises(AttributeError):
        make_axes([used, axis]).flatten().axes = made


def test_named_gives_a_name_as_setting_it_does():
    axis = make_axis(4)
    assert axis.named("Q") is axis
    assert axis == Axis(4, "Q")
    assert make_axis(None).named("N").is_batch
    assert Axis(3).named("C").is_channel
    with pytest.raises(AxesError, match=r"is fixed: .*axis.named\('R'\).*map_roles"):
        axis.named("R")
    with pytest.raises(AxesError, match="must be text"):
        make_axis(4).named(3)


def test_the_batch_axis_and_the_recurrent_axis_can_be_asked_for():
    assert make_axis(4, batch=True) == make_axis(4, "N", batch=True) == Axis(4, "N")
    assert make_axis(4, recurrent=True) == make_axis(4, "REC", recurrent=True) == Axis(4, "REC")
    assert make_axis(4, "C", batch=False).is_channel
    for options in ({"name": "C", "batch": True}, {"batch": True, "recurrent": True}):
        with pytest.raises(AxesError, match=r"make_axis\(4, '(N|REC)'\)"):
            make_axis(4, **options)


def test_axes_are_made_from_all_that_make_axes_takes():
    for items in ((2, 3), [2, 3], 3, H, (H, W), ((H, W),), np.int64(3), ()):
        assert Axes(items) == make_axes(items)
    assert Axes(n for n in (2, 3)) == make_axes((2, 3))


@pytest.mark.parametrize(
    "operation", ["__sub__", "__or__", "__and__", "__add__", "is_sub_set", "is_super_set",
    "is_equal_set", "is_not_equal_set", "__radd__", "__rsub__", "__ror__", "__rand__"],
)  # fmt: skip
def test_one_axis_or_size_counts_as_the_axes_of_it(operation: str):
    for mine, other in ((Axes((H, W)), H), (Axes(W), H), (Axes((2, 3)), 2), (Axes(()), 2)):
        if operation in ("__add__", "__radd__") and other in mine and mine.is_named:
            continue
        method = getattr(mine, operation)
        assert method(other) == method(Axes(other)) == method([other])


def test_axes_come_second_as_well():
    assert H + Axes(W) == Axes((H, W))
    assert (H | Axes(W), H & Axes((W, H)), H - Axes(W)) == (Axes((H, W)), Axes(H), Axes(H))


def test_a_flattened_axis_is_for_several():
    assert Axes(H).flatten() is H
    assert make_axes([(H,), (W, C)])[0] is H
    joined = Axes([(H, W)]).flatten()
    assert joined.axes == Axes((H, W))
    assert Axes([joined, C]).unflattened() == (H, W, C)
    assert Axes(()).flatten().length == 1
    x = weft.placeholder((C, H))
    assert weft.flatten_at(x, 1) is x
    assert weft.flatten(weft.placeholder(H)).axes == Axes(H)
    shared = weft.dot(weft.ones([C, H]), weft.flatten_at(weft.ones([W, H, C]), 2))
    assert shared.axes.names == ("H", "(W,H)")


@given(left=subsets, right=subsets)
def test_set_operations_are_ordered_and_like_those_of_sets(left: list[Any], right: list[Any]):
    mine, theirs = Axes(left), Axes(right)
    assert list(mine | theirs) == [*left, *(axis for axis in right if axis not in left)]
    assert list(mine & theirs) == [axis for axis in left if axis in right]
    assert list(mine - theirs) == [axis for axis in left if axis not in right]
    assert mine.is_sub_set(theirs) == (set(left) <= set(right))
    assert mine.is_super_set(theirs) == (set(left) >= set(right))
    assert mine.is_equal_set(theirs) == (set(left) == set(right))
    assert mine.is_not_equal_set(theirs) == (set(left) != set(right))
    assert (mine == theirs) == (left == right)


@given(left=subsets, right=subsets)
def test_adding_axes_appends_and_refuses_repeats(left: list[Any], right: list[Any]):
    if set(left) & set(right):
        with pytest.raises(ValueError, match="more than once"):
            Axes(left) + Axes(right)
    else:
        assert list(Axes(left) + Axes(right)) == [*left, *right]


@given(axes=subsets)
def test_kinds_of_axes(axes: list[Any]):
    made = Axes(axes)
    assert list(made.sample_axes()) == [axis for axis in axes if axis.name != "N"]
    assert list(made.feature_axes()) == [axis for axis in axes if axis.name not in ("N", "REC")]
    assert list(made.spatial_axes()) == [axis for axis in axes if axis.name in "DHW"]
    assert list(made.batch_axes()) == [axis for axis in axes if axis is N]
    assert made.batch_axis is (N if N in axes else None)
    assert made.channel_axis is (C if C in axes else None)
    assert made.recurrent_axis is (REC if REC in axes else None)
    assert made.size == np.prod([axis.length for axis in axes])
    flat = made.flatten()
    assert isinstance(flat, FlattenedAxis) == (len(axes) != 1)
    assert Axes(flat).unflattened() == made
    assert flat.length == made.size


def test_finding_axes():
    axes = Axes((C, H, N))
    assert [axes.position(key) for key in (H, "H", 1, -2)] == [1, 1, 1, 1]
    assert axes.positions((N, "C")) == (2, 0)
    assert axes.positions("C") == (0,)
    assert list(axes.find_by_name("H")) == [H]
    assert list(axes.find_by_name("Z")) == []
    assert axes[0] is C
    assert type(axes[1:]) is Axes


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (W, "unknown axis W=4: these axes are"),
        ("Z", "unknown axis 'Z'"),
        (7, "dimension 7 is out of range"),
        (-4, "dimension -4 is out of range"),
        (Axis(9, "H"), "has another length than H=3"),
        ((C, "C"), "twice"),
        ((0, -3), "twice"),
    ],
)
def test_unknown_axes_are_named(wanted: Any, message: str):
    with pytest.raises(AxesError, match=message):
        Axes((C, H, N)).positions(wanted)


@given(left=subsets, right=subsets)
def test_named_axes_align_by_name(left: list[Any], right: list[Any]):
    result = broadcast_axes(Axes(left), Axes(right))
    assert set(result) == set(left) | set(right)
    if set(left) >= set(right):
        assert list(result) == left
    elif set(left) < set(right):
        assert list(result) == right
    else:
        assert list(result) == [*left, *(axis for axis in right if axis not in left)]


@given(left=shapes, right=shapes)
def test_positional_axes_broadcast_as_in_numpy(left: tuple[int, ...], right: tuple[int, ...]):
    try:
        expected = np.broadcast_shapes(left, right)
    except ValueError:
        with pytest.raises(AxesError, match="do not broadcast"):
            broadcast_axes(make_axes(left), make_axes(right))
    else:
        assert broadcast_axes(make_axes(left), make_axes(right)).lengths == expected


@given(data=st.data(), left=subsets, right=subsets)
def test_operands_are_aligned_by_name_in_computations(data: Any, left: Any, right: Any):
    x, y = weft.placeholder(left), weft.placeholder(right)
    seed = data.draw(st.integers(0, 100))
    rng = np.random.default_rng(seed)
    a = rng.normal(size=[axis.length for axis in left]).astype(np.float32)
    b = rng.normal(size=[axis.length for axis in right]).astype(np.float32)
    z = x - y
    letters = dict(zip(ALL, "abcde", strict=True))
    spell = lambda axes: "".join(letters[axis] for axis in axes)  # noqa: E731
    ones = np.ones([axis.length for axis in z.axes], np.float32)
    spread_a = np.einsum(f"{spell(left)},{spell(z.axes)}->{spell(z.axes)}", a, ones)
    spread_b = np.einsum(f"{spell(right)},{spell(z.axes)}->{spell(z.axes)}", b, ones)
    got = weft.make_transformer("numpy").computation(z, x, y)(a, b)
    np.testing.assert_array_equal(got, spread_a - spread_b)


def test_named_and_positional_axes_do_not_mix_unless_one_is_a_scalar():
    named, positional = weft.placeholder((C,)), weft.placeholder((2,))
    with pytest.raises(AxesError, match="cannot be aligned with positional") as caught:
        named + positional
    assert str(caught.value).count(f'File "{__file__}", line') == 3
    assert (named + weft.placeholder(())).axes == named.axes
    assert (weft.placeholder(()) + positional).axes == positional.axes


def test_unknown_lengths_that_differ_say_what_to_do():
    with pytest.raises(AxesError, match="use one Axis object in both places"):
        weft.placeholder((Axis(None, "N"),)) + weft.placeholder((Axis(None, "N"),))


def test_axes_print_their_names_and_lengths():
    assert repr(Axes((C, ax.N))) == "Axes(C=2, N)"
    assert repr(make_axes((2, 3))) == "Axes(2, 3)"
    assert repr(Axes()) == "Axes()"


def test_a_shape_needs_known_lengths():
    assert Axes((C, H)).shape == (2, 3)
    with pytest.raises(AxesError, match="unknown until a call"):
        _ = Axes((C, ax.N)).shape
