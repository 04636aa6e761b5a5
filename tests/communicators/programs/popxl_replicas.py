"""PopXL's collectives over replicas, compared with NumPy on the arrays of all of them.

Arguments: what to do, and the backend. Each replica is a rank; without mpiexec there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import weft
import weft_popxl as popxl
from weft.communicators import connected, default_name
from weft_popxl import ops, transforms
from weft_popxl.ops import collectives

SHAPE = (4, 3)
mine, size = connected().rank, connected().size
Arrays = list[Any]


def given(rank: int) -> Any:
    """Return what a replica has: whole numbers of both signs, of which some are equal on all."""
    values = np.arange(12).reshape(SHAPE) % 5 - 2
    return (values + rank * (np.arange(12).reshape(SHAPE) % 3)).astype("float32")


def seed(rank: int, shape: tuple[int, ...]) -> Any:
    """Return the gradient of what a replica gets."""
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + 10 * rank).astype("float32")


def rows(array: Any) -> list[Any]:
    """Return the parts of an array as a vector with zeros behind it."""
    return np.split(np.pad(array.ravel(), (0, -array.size % size)), size)


def array_of(parts: Arrays) -> Any:
    """Return the array of such parts."""
    return np.concatenate(parts)[:12].reshape(SHAPE)


def split(array: Any, axis: int = 0) -> list[Any]:
    """Return equal parts along an axis, which is dropped where they have the length 1."""
    parts = np.split(array, size, axis)
    return [np.squeeze(part, axis) if part.shape[axis] == 1 else part for part in parts]


def ends(x: Arrays, extreme: Any) -> Any:
    """Return this replica's share of the gradient of an extreme of the arrays of all."""
    best = extreme(x, axis=0)
    return (x[mine] == best) / sum(each == best for each in x)


class Case(NamedTuple):
    """A function of a tensor; what this replica gets; and its gradient for seeds of all."""

    build: Callable[[popxl.Tensor], popxl.Tensor]
    value: Callable[[Arrays], Any]
    gradient: Callable[[Arrays, Arrays], Any]


def reduction(op: str, value: Callable[[Arrays], Any], gradient: Any) -> dict[str, Case]:
    """Return a reduction, and the same scattered; `gradient` takes the sum of all seeds."""
    return {
        op: Case(
            lambda t: collectives.replicated_all_reduce(t, op),
            value,
            lambda x, s: gradient(x, sum(s)),
        ),
        f"scattered {op}": Case(
            lambda t: collectives.replicated_reduce_scatter(t, op),
            lambda x: rows(value(x))[mine],
            lambda x, s: gradient(x, array_of(s)),
        ),
    }


CASES: dict[str, Case] = {
    **reduction("add", sum, lambda x, s: s),
    **reduction("mean", lambda x: sum(x) / size, lambda x, s: s / size),
    **reduction("square_add", lambda x: sum(np.square(x)), lambda x, s: 2 * x[mine] * s),
    **reduction("max", lambda x: np.max(x, axis=0), lambda x, s: ends(x, np.max) * s),
    **reduction("min", lambda x: np.min(x, axis=0), lambda x, s: ends(x, np.min) * s),
    **reduction(
        "mul",
        lambda x: np.prod(x, axis=0),
        lambda x, s: np.prod([*x[:mine], *x[mine + 1 :], s], axis=0),
    ),
    "identical inputs": Case(
        collectives.replicated_all_reduce_identical_inputs, lambda x: x[mine], lambda x, s: sum(s)
    ),
    "identical gradients": Case(
        collectives.replicated_all_reduce_identical_grad_inputs, sum, lambda x, s: s[mine]
    ),
    "gather": Case(
        collectives.replicated_all_gather,
        np.concatenate,
        lambda x, s: np.split(s[mine], size)[mine],
    ),
    "gather columns": Case(
        lambda t: collectives.replicated_all_gather(t, -1, output_shape="concat"),
        lambda x: np.concatenate(x, axis=1),
        lambda x, s: np.split(s[mine], size, axis=1)[mine],
    ),
    "stack": Case(
        lambda t: collectives.replicated_all_gather(t, output_shape="new_axis"),
        np.stack,
        lambda x, s: s[mine][mine],
    ),
    "slice": Case(
        collectives.replicated_slice,
        lambda x: split(x[mine])[mine],
        lambda x, s: np.concatenate(s).reshape(SHAPE),
    ),
    "slice columns": Case(
        lambda t: collectives.replicated_slice(ops.transpose(t), axis=1),
        lambda x: split(x[mine].T, 1)[mine],
        lambda x, s: np.concatenate([each.reshape(3, -1) for each in s], axis=1).T,
    ),
    "sharded slice": Case(
        collectives.replica_sharded_slice, lambda x: rows(x[mine])[mine], lambda x, s: array_of(s)
    ),
    "padded": Case(
        lambda t: collectives.replicated_reduce_scatter(t.flatten()[:7]),
        lambda x: rows(sum(x).ravel()[:7])[mine],
        lambda x, s: np.pad(np.concatenate(s)[:7], (0, 5)).reshape(SHAPE),
    ),
    "repeated": Case(
        lambda t: ops.repeat(popxl.gir().create_graph(collectives.replicated_all_reduce, t), 2, t)[
            0
        ],
        lambda x: size * sum(x),
        lambda x, s: size * sum(s),
    ),
    "slice and gather": Case(
        lambda t: collectives.replicated_all_gather(collectives.replicated_slice(t)).reshape(SHAPE),
        lambda x: np.concatenate([split(each)[n] for n, each in enumerate(x)]).reshape(SHAPE),
        lambda x, s: np.concatenate([split(each)[n] for n, each in enumerate(s)]).reshape(SHAPE),
    ),
}


def own(value: Callable[[int], Any]) -> popxl.Variable:
    """Return a variable with another value for each replica."""
    alone = popxl.gcg().ir.replica_grouping(group_size=1)
    values = [value(rank) for rank in range(size)]
    return popxl.variable(values if size > 1 else values[0], replica_grouping=alone)


def stored(tensors: Iterable[popxl.Tensor]) -> list[Any]:
    """Store tensors of the current graph, each to a stream of its own; returns the streams."""
    streams = []
    for tensor in tensors:
        streams.append(popxl.d2h_stream(tensor.shape, tensor.dtype))
        ops.host_store(streams[-1], tensor)
    return streams


def check_cases(names: Iterable[str], backend: str) -> None:
    """Compute functions and their gradients, each in a called graph, from kept values and anew."""
    ir = popxl.Ir(replication="popdist")
    built = {}
    with ir.main_graph:
        x = own(given)
        for name in names:
            graph = ir.create_graph(CASES[name].build, x)
            forward = ops.call_with_info(graph, x)
            results = [y := forward.parent_output(0)]
            adjoint = own(partial(seed, shape=y.shape))
            for recompute in (False, True):
                info = transforms.autodiff(graph, recompute=recompute)
                inputs = info.inputs_dict(forward)
                results += ops.call(info.graph, adjoint, inputs_dict=inputs)
            built[name] = y.shape, stored(results)
    with popxl.Session(ir, backend) as session:
        found = session.run()
    arrays = [given(rank) for rank in range(size)]
    for name, (shape, streams) in built.items():
        seeds = [seed(rank, shape) for rank in range(size)]
        value, gradient = CASES[name].value(arrays), CASES[name].gradient(arrays, seeds)
        for stream, array in zip(streams, [value, gradient, gradient], strict=True):
            np.testing.assert_allclose(found[stream], array, rtol=1e-5, err_msg=name)


def check_others(backend: str) -> None:
    """Compute what holds no floats, changes in place, or is repeated."""
    ir = popxl.Ir(replication="popdist")
    with ir.main_graph, popxl.in_sequence():
        bools = own(lambda rank: np.array([rank == 0, rank > 0, True, False]))
        numbers = own(lambda rank: np.array([rank, -rank], np.int32))
        scalar, total = own(float), own(given)
        alone = ir.replica_grouping(group_size=1)
        halves = ir.replica_grouping(group_size=max(size // 2, 1))
        half = popxl.variable([0, 1] if size > 1 else 0, replica_grouping=halves)
        collectives.replicated_all_reduce_(total.reshape_((12,)))
        graph = ir.create_graph(lambda t: collectives.replicated_all_reduce(t) + 1, scalar)
        streams = stored([
            collectives.replicated_all_reduce(bools, "and"),
            collectives.replicated_all_reduce(bools, "or"),
            collectives.replicated_all_reduce(numbers),
            collectives.replicated_all_gather(scalar),
            collectives.replicated_slice(numbers, group=alone),
            half + 0,
            *ops.repeat(graph, 2, scalar),
        ])  # fmt: skip
    with popxl.Session(ir, backend) as session:
        for count in range(1, 3):
            outputs = session.run()
            ranks = sum(range(size))
            assert [outputs[stream].tolist() for stream in streams] == [
                [size == 1, False, True, False],
                [True, size > 1, True, False],
                [ranks, -ranks],
                [*range(size)],
                [mine, -mine],
                halves.assignment[mine],
                (ranks + 1) * size + 1,
            ]
            expected = sum(given(rank) for rank in range(size)) * size ** (count - 1)
            np.testing.assert_array_equal(session.get_tensor_data(total), expected)


def check_second_derivatives(backend: str) -> None:
    """Differentiate twice what begins with equal inputs and ends with equal gradients."""
    x, factor = weft.placeholder((3,)), weft.placeholder(())
    over = {"communicator": default_name(), "ranks": size}
    same = collectives.IdenticalInputsOp(x, **over)
    y = collectives.IdenticalGradInputsOp(factor * same**3, reduction="sum", **over)
    twice = weft.deriv(weft.deriv(weft.sum(y), x), x, weft.ones((3,)))
    compute = weft.make_transformer(backend).computation(twice, x, factor)
    array = np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(compute(array, mine + 1), 3 * size * (size + 1) * array, rtol=1e-6)


def check_training(backend: str) -> None:
    """Train on a share of each batch, with arrays of this replica alone; compare with NumPy."""
    ir = popxl.Ir(replication=size)
    with ir.main_graph, popxl.in_sequence():
        source = popxl.h2d_stream(SHAPE, popxl.float32)
        weight, x = popxl.variable(np.eye(3)), ops.host_load(source)
        graph = ir.create_graph(lambda x, w: ops.mean((x @ w) ** 2.0), x, weight)
        forward = ops.call_with_info(graph, x, weight)
        info = transforms.autodiff(graph, grads_required=[graph.inputs[1]])
        inputs = info.inputs_dict(forward)
        (gradient,) = ops.call(info.graph, popxl.constant(1.0), inputs_dict=inputs)
        collectives.replicated_all_reduce_(gradient, "mean")
        ops.var_updates.accumulate_(weight, gradient, -0.1)
        (stream,) = stored([forward.parent_output(0)])
    expected, batch = np.eye(3), np.concatenate([given(rank) for rank in range(size)])
    with popxl.Session(ir, backend) as session:
        for _ in range(3):
            loss = session.run({source: given(mine)})[stream]
            np.testing.assert_allclose(loss, np.mean((given(mine) @ expected) ** 2), rtol=1e-5)
            expected -= 0.2 * batch.T @ (batch @ expected) / batch.size
    np.testing.assert_allclose(session.get_tensor_data(weight), expected, rtol=1e-4, atol=1e-5)


def report_unequal(backend: str) -> None:
    """Print what a session says of other numbers of replicas than there are ranks."""
    for replicas in {1, size + 1} - {size}:
        ir = popxl.Ir(replicas)
        with ir.main_graph:
            x = popxl.variable([1.0])
            graph = ir.create_graph(collectives.replicated_slice if replicas == 1 else ops.sin, x)
            ops.call(graph, x)
        try:
            popxl.Session(ir, backend)
        except popxl.popart_exception as error:
            print(f"rank {mine}: {error}", flush=True)
    with popxl.Ir().main_graph as graph:
        x = popxl.variable([1.0])
    popxl.Session(graph.ir, backend)


if __name__ == "__main__":
    what, *backends = sys.argv[1:]
    for each in backends:
        if what == "unequal":
            report_unequal(each)
            continue
        check_cases(CASES, each)
        check_others(each)
        check_second_derivatives(each)
        check_training(each)
        print(f"rank {mine} of {size}: {each} is right", flush=True)
