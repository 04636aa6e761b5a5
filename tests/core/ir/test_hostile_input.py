"""Whatever is handed to a public entry point: an error of weft with the user's line."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import (
    ArgumentError,
    AxesError,
    DTypeError,
    HostMemoryError,
    NotPicklable,
    StateError,
    WeftError,
)

BIG = 2**62
ADDRESSED = "more than can be addressed"
ONES = np.ones(3, np.float32)


class NoMemory:
    """Something that cannot become an array for want of memory."""

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise MemoryError("17 GB are wanted")


class Program:
    """What a case may use: a transformer, ops, a graph and a computation."""

    def __init__(self) -> None:
        self.numpy = weft.make_transformer("numpy", cache=False)
        self.x = weft.placeholder((3,), name="x")
        self.w = weft.variable((3,), initial_value=1.0)
        self.n = weft.symbol("n")
        self.z = weft.placeholder((self.n,), name="z")
        self.graph = weft.capture([self.x * 2], [self.x])
        self.computation = self.numpy.computation(self.x + 1, self.x)
        self.unknown = self.numpy.computation(self.z + 1, self.z)

    def closed(self, is_used: bool = False) -> tuple[Any, Any]:
        """Return a closed transformer, and a computation of its that may have been called."""
        transformer = weft.make_transformer("numpy", cache=False)
        made = transformer.computation(self.w + self.x, self.x)
        if is_used:
            made(ONES)
        transformer.close()
        return transformer, made

    def with_axes(self, axes: Any) -> Any:
        return self.numpy.computation(self.z, self.z, axes=axes)

    def computed(self, op: Any, **options: Any) -> Any:
        return self.numpy.computation(op, **options)()


SelfHolding: list[Any] = []
SelfHolding.append(SelfHolding)

Case = tuple[Callable[[Program], Any], type[WeftError], str]

CASES: dict[str, Case] = {
    # sizes that no machine has
    "arange": (lambda p: p.computed(weft.arange(BIG)), HostMemoryError, ADDRESSED),
    "sum of arange": (
        lambda p: p.computed(weft.sum(weft.arange(BIG))), HostMemoryError, ADDRESSED
    ),
    "arange to 1e30": (lambda p: weft.arange(0, 1e30), AxesError, "below 2\\*\\*63"),
    "linspace": (lambda p: p.computed(weft.linspace(0, 1, BIG)), HostMemoryError, ADDRESSED),
    "ones": (lambda p: p.computed(weft.ones((2**40, 2**40))), HostMemoryError, ADDRESSED),
    "eye": (lambda p: p.computed(weft.eye(2**31)), HostMemoryError, ADDRESSED),
    "tri": (lambda p: p.computed(weft.tri(BIG)), HostMemoryError, ADDRESSED),
    "a constant": (lambda p: weft.constant(1.0, (BIG,)), HostMemoryError, ADDRESSED),
    "a variable": (
        lambda p: p.computed(weft.variable((BIG,), initial_value=0) + 1),
        HostMemoryError, ADDRESSED,
    ),
    "an unknown length": (
        lambda p: p.computed(weft.variable((p.n,)) + 1, axes={p.n: BIG}), HostMemoryError, ADDRESSED
    ),
    "an axis": (lambda p: weft.make_axis(2**70, "H"), AxesError, "below"),
    "an axis of True": (lambda p: weft.placeholder((True,)), AxesError, "integer"),
    # values
    "a list in itself": (lambda p: weft.constant(SelfHolding), ArgumentError, "ragged"),
    "a constant without memory": (
        lambda p: weft.constant(NoMemory()), HostMemoryError, "constant.*17 GB"
    ),
    "an initial value without memory": (
        lambda p: weft.variable((3,), initial_value=NoMemory()), HostMemoryError, "initial value"
    ),
    "an operand without memory": (lambda p: p.x + NoMemory(), HostMemoryError, "17 GB"),
    "a value set without memory": (
        lambda p: p.numpy.set_value(p.w, NoMemory()), HostMemoryError, "value of"
    ),
    "ragged rows set": (
        lambda p: p.numpy.set_value(p.w, [[1], [2, 3]]), ArgumentError, "ragged"
    ),
    "the value of an unknown length": (
        lambda p: p.numpy.get_value(p.z), AxesError, "lengths are unknown"
    ),
    # graphs
    "capture of numbers": (lambda p: weft.capture(5, 5), ArgumentError, "capture takes a list"),
    "capture of None": (lambda p: weft.capture(None), ArgumentError, "not None"),
    "capture of text": (lambda p: weft.capture("abc"), ArgumentError, "list of ops"),
    "capture of an op": (lambda p: weft.capture(p.x, [p.x]), ArgumentError, "list of ops"),
    "capture of a graph": (lambda p: weft.capture([p.graph]), ArgumentError, "takes ops"),
    "capture of lists": (lambda p: weft.capture([[p.x]]), ArgumentError, "takes ops"),
    "capture for None": (lambda p: weft.capture([p.x], None), ArgumentError, "list of ops"),
    "capture for a list": (lambda p: weft.capture([p.x], [[p.x]]), ArgumentError, "placeholder"),
    "capture by a number": (lambda p: weft.capture([p.x], name=3), ArgumentError, "text"),
    "ordered_ops": (lambda p: weft.Op.ordered_ops([3]), ArgumentError, "takes ops"),
    "parse of None": (lambda p: weft.parse(None), ArgumentError, "text of a graph"),
    "parse of bytes": (lambda p: weft.parse(b"graph"), ArgumentError, "text of a graph"),
    "parse with a list": (lambda p: weft.parse("", [3]), ArgumentError, "states="),
    "cond without lists": (
        lambda p: weft.cond(weft.any(p.x), p.graph, p.graph, p.x, p.x), ArgumentError, "in a list"
    ),
    "cond of numbers": (lambda p: weft.cond(1, p.graph, p.graph, 3, 4), ArgumentError, "in a list"),
    "deriv for text": (lambda p: weft.deriv(p.x, p.x, "a"), DTypeError, "not a number|numbers"),
    "deriv for a number": (lambda p: weft.deriv(p.x, p.x, 3), AxesError, "error has"),
    "jvp for None": (lambda p: weft.jvp(p.x, p.x, None), DTypeError, "numbers"),
    "variables by a number": (lambda p: p.x.variables(3), ArgumentError, "filter="),
    "is_scalar of a number": (lambda p: weft.is_scalar(3), ArgumentError, "takes an op"),
    "is_constant of text": (lambda p: weft.is_constant("a"), ArgumentError, "takes an op"),
    "with_op_metadata": (lambda p: weft.with_op_metadata(3), ArgumentError, "decorates"),
    "symbol": (lambda p: weft.symbol(None), AxesError, "text"),
    "saved_user_deps": (
        lambda p: weft.saved_user_deps(3).__enter__(), ArgumentError, "yielded before"
    ),
    # transformers
    "passes=5": (lambda p: weft.make_transformer("numpy", passes=5), ArgumentError, "passes="),
    "passes=[5]": (lambda p: weft.make_transformer("numpy", passes=[5]), ArgumentError, "passes="),
    "a class as a pass": (
        lambda p: weft.make_transformer("numpy", passes=[weft.GraphPass]),
        ArgumentError, r"GraphPass\(\)",
    ),
    "fast_math": (
        lambda p: weft.make_transformer("numpy", fast_math="no"), ArgumentError, "fast_math="
    ),
    "strict_finalize": (
        lambda p: weft.make_transformer("numpy", strict_finalize=1), ArgumentError, "strict_"
    ),
    "cache=3": (lambda p: weft.make_transformer("numpy", cache=3), ArgumentError, "cache="),
    "cache of NUL": (
        lambda p: weft.make_transformer("numpy", cache="/tmp/\0"), ArgumentError, "cache="
    ),
    "memory_limit": (
        lambda p: weft.make_transformer("numpy", memory_limit="1G"), ArgumentError, "memory_limit"
    ),
    "a position of text": (
        lambda p: p.numpy.register_graph_pass(p.numpy.graph_passes[0], "a"),
        ArgumentError, "position",
    ),
    # computations
    "a name": (lambda p: p.numpy.computation(p.x, p.x, name=3), ArgumentError, "text"),
    "a generator": (lambda p: p.numpy.computation(op for op in [p.x]), ArgumentError, "a list"),
    "a dtype": (lambda p: p.numpy.computation(p.x, np.float32), ArgumentError, "placeholder"),
    "axes=5": (lambda p: p.with_axes(5), ArgumentError, "dictionary"),
    "axes in a list": (lambda p: p.with_axes([(p.n, 3)]), ArgumentError, "dictionary"),
    "axes by a wrong name": (lambda p: p.with_axes({"q": 3}), ArgumentError, "a name that no"),
    **{
        f"a length of {size!r}": (
            lambda p, size=size: p.with_axes({p.n: size}), AxesError, "whole number"
        )
        for size in (float("nan"), float("inf"), 2.7, 2.0, "3", None, True, -1, 2**63)
    },
    "two lengths": (
        lambda p: p.with_axes({p.n: 4, weft.make_axis(p.n, "N"): 5}), AxesError, "two lengths"
    ),
    "an argument without memory": (
        lambda p: p.computation(NoMemory()), HostMemoryError, "argument 0.*17 GB"
    ),
    "an argument of unknown length": (
        lambda p: p.unknown(NoMemory()), HostMemoryError, "argument 0.*17 GB"
    ),
    "an argument of None": (lambda p: p.computation(None), DTypeError, "argument 0"),
    "an argument that is an op": (lambda p: p.computation(p.x), ArgumentError, "is an op"),
    "feed_dict=3": (lambda p: p.computation(feed_dict=3), ArgumentError, "feed_dict="),
    "feed_dict=0": (lambda p: p.computation(ONES, feed_dict=0), ArgumentError, "feed_dict="),
    "feed_dict of a list": (lambda p: p.computation(feed_dict=[p.x]), ArgumentError, "feed_dict="),
    "feed_dict by name": (
        lambda p: p.computation(feed_dict={"x": ONES}), ArgumentError, "no parameters x"
    ),
    "feed_dict and position": (
        lambda p: p.computation(ONES, feed_dict={p.x: ONES}), ArgumentError, "and in feed_dict"
    ),
    "out=3": (lambda p: p.computation(ONES, out=3), ArgumentError, "out="),
    # after close
    "initialize": (lambda p: p.closed()[0].initialize(), StateError, "closed"),
    "initialize again": (lambda p: p.closed(True)[0].initialize(), StateError, "closed"),
    "a pass": (
        lambda p: p.closed()[0].register_graph_pass(p.numpy.graph_passes[0]), StateError, "closed"
    ),
    "with": (lambda p: p.closed()[0].__enter__(), StateError, "closed"),
    "init_computation": (lambda p: p.closed(True)[0].init_computation, StateError, "closed"),
    "a plan": (lambda p: p.closed()[1].plan, StateError, "closed before"),
    "a call": (lambda p: p.closed(True)[1](ONES), StateError, "closed"),
    "a value": (lambda p: p.closed(True)[0].get_value(p.w), StateError, "closed"),
    # copies
    **{
        f"pickle of {what}": (
            lambda p, what=what: pickle.dumps(getattr(p, what)), NotPicklable, hint
        )
        for what, hint in {
            "x": "capture", "w": "capture", "graph": "weft.parse", "computation": "make it",
            "numpy": "another one",
        }.items()
    },
    "pickle of an expression": (lambda p: pickle.dumps(p.x + 1), NotPicklable, "capture"),
    "pickle of a write": (lambda p: pickle.dumps(weft.assign(p.w, 1)), NotPicklable, "capture"),
    "copy of a transformer": (lambda p: copy.copy(p.numpy), NotPicklable, "copied"),
    "deep copy of a computation": (lambda p: copy.deepcopy(p.computation), NotPicklable, "copied"),
}  # fmt: skip


@pytest.fixture(scope="module")
def program() -> Any:
    made = Program()
    yield made
    made.numpy.close()


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused(program: Program, name: str) -> None:
    attempt, kind, words = CASES[name]
    with pytest.raises(WeftError, match=f"(?s){words}") as caught:
        attempt(program)
    assert type(caught.value) is kind
    assert f'File "{__file__}", line' in str(caught.value)


def test_nothing_was_broken(program: Program) -> None:
    np.testing.assert_array_equal(program.computation(ONES), ONES + 1)
    np.testing.assert_array_equal(program.unknown(feed_dict={program.z: ONES}), ONES + 1)
    np.testing.assert_array_equal(program.computation(ONES, feed_dict={}), ONES + 1)


def test_what_never_changes_is_its_own_copy(program: Program) -> None:
    assert copy.deepcopy(program.n) == program.n
    for each in (program.x, program.w, program.x + 1, program.graph):
        assert copy.copy(each) is each
        assert copy.deepcopy([each])[0] is each
    axes = weft.make_axes((weft.make_axis(program.n, "N"), weft.make_axis(3, "C")))
    assert copy.deepcopy(axes) == axes
    known = weft.make_axes((weft.make_axis(2, "H"), (weft.make_axis(3, "W"), weft.ax.C)))
    assert copy.copy(known) == pickle.loads(pickle.dumps(known[:1])) + known[1:]


def test_a_constant_that_cannot_be_folded_for_want_of_memory(monkeypatch: Any) -> None:
    def reference(self: Any, *args: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(weft.TanhOp, "reference", reference)
    with weft.make_transformer("numpy", cache=False) as made:
        with pytest.raises(HostMemoryError, match="TanhOp: its value is constant") as caught:
            made.computation(weft.tanh(weft.constant([1.0, 2.0])))()
        assert f'File "{__file__}", line' in str(caught.value)
