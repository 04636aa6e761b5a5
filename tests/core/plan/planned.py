"""Graphs for the tests of plans, and a machine that runs a plan step by step on its addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import weft
from weft.ir.graph import Graph
from weft.ir.results import TupleOp
from weft.ir.target import Target
from weft.kernels import Group, fused, place
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.plan.plan import ARENA, CONSTANT, INPUT, RESULT, STATE, make_plan
from weft.plan.steps import Plan
from weft.runtime.device import host_view
from weft.testing.reference import initial_value

UNFUSED = (
    "simple-prune", "constant-folding", "merge-equal", "decompose", "merge-equal", "simple-prune",
    "constant-folding", "dead-code",
)  # fmt: skip
"""Passes that leave an op as it is, so that a test can say what it plans."""


def computation(results: list[Any] | weft.TensorOp, *parameters: Any, **options: Any):
    """Return a computation of NumPy in which nothing is fused."""
    return weft.make_transformer("numpy", passes=UNFUSED, **options).computation(
        results, *parameters
    )


def target(**options: Any):
    """Return the target of a backend that can do anything."""
    return Target("any", supports=lambda op: True, **options)


def plan_of(
    results: list[Any] | weft.TensorOp, *parameters: Any, limit: int | None = None, **options: Any
):
    """Return a plan of ops, none of which is fused."""
    return make_plan(graph_of(results, *parameters), target(**options), limit)


def graph_of(
    results: list[Any] | weft.TensorOp, *parameters: Any, passes: tuple[str, ...] | None = UNFUSED
):
    """Return the graph of ops after passes; with None for these, after the default ones."""
    transformer = weft.make_transformer("numpy", passes=passes)
    return transformer.computation(results, *parameters).program.graph


def run(plan: Plan, arrays: list[Any], states: Any = None):
    """Run a plan with the references of its ops; returns results, and the states afterwards.

    Memory that nothing has written yet, and workspaces, hold rubbish.
    """
    sizes = {buffer: buffer.nbytes for buffer in plan.buffers if buffer.kind != ARENA}
    memory = {buffer: rubbish(nbytes) for buffer, nbytes in sizes.items()}
    arena = rubbish(plan.arena_size)
    states = dict(states or {})
    for state in plan.graph.states:
        states.setdefault(state, initial_value(state, state.axes.shape))
    given = {INPUT: arrays, CONSTANT: {}, STATE: states}
    for buffer, held in memory.items():
        if buffer.kind != RESULT:
            value = (
                buffer.owner.const if buffer.kind == CONSTANT else given[buffer.kind][buffer.owner]
            )
            held[:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)

    def view(tensor: weft.TensorDescription):
        return host_view(tensor, memory.get(tensor.base, arena))

    with np.errstate(all="ignore"):
        for step in plan.steps:
            if step.workspace is not None:
                view(step.workspace)[...] = 0xA5
            value = step.op.reference(*[np.array(view(arg)) for arg in step.args])
            if step.op.has_effect:
                continue
            values = value if isinstance(step.op, TupleOp) else (value,)
            for out, each in zip(step.outs, values, strict=True):
                view(out)[...] = each
    places = {op: view(plan.tensors[op]) for op in plan.graph.outputs}
    held = {b.owner: m for b, m in memory.items() if b.kind == STATE}
    after = {
        state: np.ndarray(state.axes.shape, state.dtype, held[state]) if state in held else value
        for state, value in states.items()
    }
    return [places[op] for op in plan.graph.outputs], after


def _value(buffer: Any, arrays: Any, states: Any):
    if buffer.kind == CONSTANT:
        return buffer.owner.const
    return arrays[buffer.owner] if buffer.kind == INPUT else states[buffer.owner]


def rubbish(nbytes: int):
    return np.full(nbytes, 0xA5, np.uint8)


def with_kernels(graph: Graph) -> Graph:
    """Return a graph in which pairs of elementwise ops run as one, with one or two results."""
    leads: dict = {}
    for op in graph.ops:
        leads[op] = {op}.union(*(leads[arg] for arg in op.args))
    groups, taken = [], set()
    for op in graph.ops:
        for arg in op.args:
            pair = {op, arg}
            alike = isinstance(op, ElementwiseOp) and isinstance(arg, ElementwiseOp)
            if not alike or op.axes != arg.axes or not op.axes or not taken.isdisjoint(pair):
                continue
            if any(arg in leads[other] for other in op.args if other is not arg):
                continue
            group = Group(op.axes.shape)
            for each in (arg, op):
                group.places[each] = place(each, group.places, group.domain)
            groups.append(group)
            taken |= pair
            break
    return fused(graph, groups)


N = 8

LAYERS = (
    lambda h, w: weft.tanh(h @ w),
    lambda h, w: h + weft.sin(h @ w),
    lambda h, w: weft.softmax(h @ w),
    lambda h, w: weft.exp(weft.sin(h)) * weft.cos(h),
    lambda h, w: h.T * 0.5 + h,
    lambda h, w: weft.take(h, np.arange(N)[::-1].copy(), 0),
    lambda h, w: weft.print_op(h * 0.25),
    lambda h, w: h * weft.value_of(w),
    lambda h, w: h - weft.broadcast(weft.mean(h, 0), (N, N)),
)


@st.composite
def training_steps(draw: st.DrawFn):
    """Draw results of a deep program: a loss with its gradients, or with updates of its states."""
    layers = draw(st.lists(st.sampled_from(LAYERS), min_size=2, max_size=12))
    x = h = weft.placeholder((N, N))
    values = np.random.default_rng(0).normal(size=(len(layers), N, N)) / 4
    states = [weft.variable((N, N), initial_value=value) for value in values]
    for layer, state in zip(layers, states, strict=True):
        h = layer(h, state)
    loss = weft.sum(weft.square(h), reduction_axes=range(2))
    if draw(st.booleans()):
        return [loss, weft.deriv(loss, x), *(weft.deriv(loss, state) for state in states)], x
    with weft.saved_user_deps():
        order = draw(st.permutations(states))
        updates = [weft.assign(state, state - 0.1 * weft.deriv(loss, state)) for state in order]
        return [loss, weft.doall(updates)], x


def deep(layers: int, width: int = 16, batch: int = 32):
    """Return a loss, the gradients of its weights, and its input; activations are 2048 bytes."""
    x = h = weft.placeholder((batch, width))
    weights = [weft.variable((width, width), initial_value=0.1) for _ in range(layers)]
    for weight in weights:
        h = weft.tanh(h @ weight)
    loss = weft.sum(weft.square(h), reduction_axes=range(2))
    return [loss, *(weft.deriv(loss, weight) for weight in weights)], x
