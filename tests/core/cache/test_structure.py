from __future__ import annotations

import enum
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.cache.structure import SMALL, Canonicalizer, NotCanonical, structure_of
from weft.ir.graph import Graph, in_order
from weft.testing.random_graphs import RandomProgram, programs

steady = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def digest(graph: Graph) -> str:
    return structure_of(graph).digest


def captured(program: RandomProgram) -> Graph:
    return weft.capture(program.results, program.placeholders)


def shuffled(graph: Graph, seed: int) -> list[Any]:
    """Return the ops in another order in which each comes after its operands."""
    chance, order, ready = random.Random(seed), [], set()
    left = list(graph.ops)
    while left:
        free = [op for op in left if ready.issuperset(graph.children(op))]
        op = chance.choice(free)
        # Effects happen in the order in which they were built.
        if op.has_effect:
            op = next(each for each in left if each.has_effect)
            if op not in free:
                op = next(each for each in free if not each.has_effect)
        left.remove(op)
        order.append(op)
        ready.add(op)
    return order


@steady
@given(program=programs(), seed=st.integers(0, 99))
def test_a_graph_that_is_built_again_has_the_same_digest(program: RandomProgram, seed: int) -> None:
    graph = captured(program)
    found = structure_of(graph)
    again = {
        "captured again": captured(program),
        "from text": weft.parse(graph.text(full=True)),
        "in another order": in_order(graph, shuffled(graph, seed)),
    }
    assert {name: digest(each) for name, each in again.items()} == dict.fromkeys(
        again, found.digest
    )
    assert len(set(found.ops)) == len(graph.ops)
    assert set(found.states) == set(graph.states)


@steady
@given(program=programs(), data=st.data())
def test_a_graph_that_was_changed_has_another_digest(program: RandomProgram, data: Any) -> None:
    graph = captured(program)
    before = digest(graph)
    constants = [op for op in graph.ops if op.is_constant and op.const.size]
    (output,) = graph.outputs[:1]
    changed = [
        graph.replace(outputs=[*graph.outputs, output]),
        graph.replace(outputs=graph.outputs[1:]),
        graph.replace(outputs=[weft.negative(weft.negative(output)), *graph.outputs[1:]]),
    ]
    if constants:
        old = data.draw(st.sampled_from(constants))
        values = old.const.copy()
        values.reshape(-1)[-1] += 1
        new = weft.constant(values, old.axes)
        changed.append(graph.rewrite(lambda op: new if op is old else op))
    digests = [before, *map(digest, changed)]
    assert len(set(digests)) == len(digests)


X, Z = weft.placeholder((2, 3)), weft.placeholder((2, 3))
W, V = weft.variable((2, 3)), weft.variable((2, 3))


def of(*results: Any, parameters: Any = (X,)) -> Graph:
    return weft.capture(results, parameters)


def state(kind: Any, *arguments: Any) -> Graph:
    return weft.capture([kind(*arguments) + 1])


def with_metadata(**entries: Any) -> Graph:
    with weft.metadata(**entries):
        return of(weft.tanh(X))


def written(value: Any) -> Graph:
    with weft.saved_user_deps():
        write = weft.assign(W, value)
        return weft.capture([write], [X])


def effects(first: str, second: str) -> Graph:
    prints = [weft.print_op(X, first), weft.print_op(X, second)]
    return of(*prints)


def built_in_order(*prefixes: str) -> Graph:
    """Return a graph of two effects, which happen in the order in which they were built."""
    prints = {prefix: weft.print_op(X, prefix) for prefix in prefixes}
    return of(prints["a"], prints["b"])


def after(number: int) -> Graph:
    graph = effects("a", "b")
    one, two = graph.effects
    return graph.replace(after=[{}, {two: (one,)}, {one: (two,)}][number])


NAN = float("nan")
DIFFERENT = {
    "operands": [of(X - Z, parameters=(X, Z)), of(Z - X, parameters=(X, Z))],
    "inputs": [of(X - Z, parameters=(X, Z)), of(X - Z, parameters=(Z, X))],
    "unused inputs": [of(X + 0), of(X + 0, parameters=(X, Z))],
    "classes": [of(weft.sin(X)), of(weft.cos(X))],
    "attributes": [of(weft.sum(X, 0)), of(weft.sum(X, 1)), of(weft.sum(X, (0, 1)))],
    "dtypes": [of(weft.cast(X, dtype)) for dtype in ("int32", "int64", "float16", "bfloat16")],
    "fills": [of(weft.pad(X, [1, 1], fill)) for fill in (0.0, -0.0, 1.0, NAN, float("inf"))],
    "constants": [
        of(weft.constant(value)) for value in (0.0, -0.0, 1.0, NAN, True, np.int32(1), np.int64(1))
    ],
    "shapes of constants": [of(weft.constant(np.zeros(shape))) for shape in ((4,), (2, 2), (4, 1))],
    "states": [
        state(kind, shape)
        for kind in (weft.variable, weft.persistent_tensor, weft.placeholder)
        for shape in ((2,), (3,))
    ],
    "dtypes of states": [state(weft.variable, (2,), dtype) for dtype in ("int32", "float32")],
    "states apart": [of(W + W), of(W + V)],
    "which state is written": [written(W + X), written(V + X)],
    "what is written": [written(X), written(X + 1), written(W)],
    "outputs": [of(X + 1, X + 2), of(X + 2, X + 1)],
    "sharing": [of(*[weft.sin(X)] * 2), of(weft.sin(X), weft.sin(X))],
    "effects": [effects("a", "b"), effects("b", "a"), effects("a", "a")],
    "order of effects": [built_in_order("a", "b"), built_in_order("b", "a")],
    "order": [after(number) for number in range(3)],
    "names of axes": [
        of(x + 1, parameters=(x,))
        for x in (weft.placeholder([weft.Axis(3, name)]) for name in ("C", "N", "Axes"))
    ],
    "metadata": [of(weft.tanh(X)), with_metadata(part=1), with_metadata(part=1.0)],
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_graphs_that_differ_have_different_digests(what: str) -> None:
    digests = [digest(graph) for graph in DIFFERENT[what]]
    assert len(set(digests)) == len(digests)


def named(name: str | None) -> Graph:
    x = weft.placeholder((2,), name=name)
    return weft.capture([weft.tanh(x).named(name or "y")], [x], name or "graph")


def along_new_axes() -> Graph:
    axes = [weft.make_axis(2), weft.make_axis(3)]
    x = weft.placeholder(axes)
    return weft.capture([weft.sum(x, axes[0])], [x])


@pytest.mark.parametrize(
    "make",
    [
        lambda number: named(f"a{number}"),
        lambda number: along_new_axes(),
        lambda number: state(weft.variable, (2,), "float32", number, f"w{number}"),
    ],
    ids=["names", "made up names of axes", "initial values"],
)
def test_names_and_initial_values_do_not_count(make: Any) -> None:
    assert digest(make(1)) == digest(make(2))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Pair:
    one: Any
    two: Any


VALUES = [
    None, ..., True, 1, 1.0, 1 + 0j, "1", b"1", np.float32(1), np.float64(1), np.int64(1),
    0.0, -0.0, 0, False, NAN, -NAN, float("inf"), (), [], {}, (1,), [1], (1.0,), (True,), ((1,),),
    {1: 2}, {2: 1}, frozenset({1}), frozenset({1, 2}), slice(1), slice(1, None), slice(1, 2, 3),
    np.dtype("int32"), np.dtype("float32"), np.ones(2), np.ones(2, "f4"), np.ones((1, 2)),
    np.add, np.multiply, np.take, len, digest, Color.RED, Color.BLUE, Color, Pair(1, 2),
    Pair(2, 1), weft.make_axes((1, 2)), weft.Axis(2, "C"), weft.Axis(2), ("a,b",), ("a", "b"),
]  # fmt: skip


def test_values_are_described_each_in_one_way() -> None:
    described = [Canonicalizer()(value) for value in VALUES]
    assert len(set(described)) == len(described)
    assert described == [Canonicalizer()(value) for value in VALUES]


@pytest.mark.parametrize(
    "value",
    [lambda: 1, object(), type("Local", (), {}), {1}, iter(())],
    ids=["lambda", "object", "local class", "set", "iterator"],
)
def test_what_has_no_stable_description_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        Canonicalizer()((1, value))


def test_an_op_that_carries_something_undeclared_is_refused() -> None:
    y = weft.tanh(X)
    object.__setattr__(y, "secret", 1)
    with pytest.raises(NotCanonical, match="secret"):
        structure_of(of(y))


def test_values_of_large_constants_that_no_op_reads_can_be_left_out() -> None:
    large = np.zeros(SMALL // 4 + 1, np.float32)

    def graphs(values: Any) -> list[Graph]:
        values = weft.constant(values)
        return [of(values), of(values + 1), of(values, values + 1)]

    pairs = list(zip(graphs(large), graphs(large + 1), strict=True))
    assert all(digest(one) != digest(other) for one, other in pairs)
    equal = [structure_of(a, False).digest == structure_of(b, False).digest for a, b in pairs]
    assert equal == [True, False, False]
    small = [structure_of(of(weft.constant(large[1:] + n)), False).digest for n in range(2)]
    assert small[0] != small[1]


SCRIPT = """
import weft
from weft.cache.structure import structure_of
x = weft.placeholder((2, 3))
w = weft.variable((3, 4), initial_value=1)
y = weft.softmax(weft.relu(x @ w) * 0.5 + 1)
write = weft.assign(w, w - weft.deriv(weft.sum(y), w))
print(structure_of(weft.capture([y, write], [x])).digest)
"""


def test_the_digest_is_the_same_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 40


def test_a_deep_graph_takes_linear_time_and_no_recursion() -> None:
    x = y = weft.placeholder(())
    for _ in range(20_000):
        y = weft.tanh(y)
    assert len(structure_of(weft.capture([y], [x])).ops) == 20_001
