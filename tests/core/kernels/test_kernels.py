"""Kernels: places, stages, what may be overwritten, keys, text, and what is refused."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, GraphError
from weft.ir.axes import make_axes
from weft.ir.dtypes import float32, float64
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.kernels import (
    FusedOp,
    Group,
    IndexingMap,
    Instruction,
    Kernel,
    fused,
    in_effect_order,
    operand_indexing_map,
    place,
)
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ReductionOp, SumOp
from weft.ops.shape.movement import BroadcastOp
from weft.plan.fusion_statistics import fusion_statistics
from weft.plan.plan import make_plan
from weft.testing.reference import evaluate

TARGET = weft.make_transformer("numpy").target


def all_of(graph: Graph, domain: tuple[int, ...], *left_out: Op) -> Group:
    """Return the group of all ops of a graph that compute something."""
    group = Group(domain)
    for op in graph.ops:
        if not op.args or op in set(left_out):
            continue
        places = tuple(range(len(domain))) if isinstance(op, MatmulOp) else None
        if isinstance(op, ReductionOp) and op.args[0] not in group.places:
            places = op.kept()
        group.places[op] = places or place(op, group.places, domain)  # type: ignore[assignment]
    return group


def kernel_of(results: Any, *parameters: Any, domain: tuple[int, ...] = (4, 6)) -> Kernel:
    graph = weft.capture(results if isinstance(results, list) else [results], parameters)
    kernel, _ = all_of(graph, domain).kernel(graph.outputs)
    return kernel


def matrix(dtype: str = "float32") -> Any:
    return weft.placeholder((4, 6), dtype)


def repeated(x: Any) -> Any:
    return BroadcastOp(x, target_axes=make_axes((4, 6)), dims=(0,))


def norm(x: Any) -> Any:
    return x / repeated(weft.sum(x * x, axis=1))


# Indexing maps


X = matrix()
ROWS = weft.placeholder((4,))
COLUMN = weft.placeholder((4, 1))
CUBE = weft.placeholder((2, 3, 4))

PLACES: dict[str, tuple[Any, dict[Any, IndexingMap], tuple[int, ...], IndexingMap | None]] = {
    "elementwise, the first": (weft.tanh(X), {}, (4, 6), (0, 1)),
    "elementwise, another domain": (weft.tanh(X), {}, (6, 4), None),
    "elementwise, where its operand is": (weft.tanh(ROWS), {ROWS: (0,)}, (4, 6), (0,)),
    "elementwise, operands at two places": (
        weft.add(ROWS, (other := weft.placeholder((4,)))), {ROWS: (0,), other: (1,)}, (4, 4), None),
    "a scalar": (weft.placeholder(()) + 1, {}, (4, 6), ()),
    "reduction over the last": (weft.sum(X, axis=1), {X: (0, 1)}, (4, 6), (0,)),
    "reduction over the first": (weft.sum(X, axis=0), {X: (0, 1)}, (4, 6), (1,)),
    "reduction over two": (weft.sum(CUBE, axis=(0, 2)), {CUBE: (0, 1, 2)}, (2, 3, 4), (1,)),
    "reduction of what is elsewhere": (weft.sum(X, axis=1), {}, (4, 6), None),
    "broadcast to the domain": (repeated(ROWS), {ROWS: (0,)}, (4, 6), (0, 1)),
    "broadcast along another axis": (repeated(ROWS), {ROWS: (1,)}, (4, 6), None),
    "broadcast to another shape": (repeated(ROWS), {ROWS: (0,)}, (4, 6, 1), None),
    "broadcast of length 1": (
        weft.broadcast(COLUMN, (4, 6)), {COLUMN: (0, None)}, (4, 6), (0, 1)),
    "broadcast of a number": (
        weft.broadcast((one := weft.placeholder(())), (4, 6)), {one: ()}, (4, 6), (0, 1)),
    "an axis of length 1 more": (weft.reshape(ROWS, (4, 1)), {ROWS: (0,)}, (4, 6), (0, None)),
    "an axis of length 1 less": (weft.reshape(COLUMN, (4,)), {COLUMN: (0, None)}, (4, 6), (0,)),
    "any other reshape": (weft.reshape(X, (6, 4)), {X: (0, 1)}, (4, 6), None),
    "a transposition": (weft.transpose(X), {X: (0, 1)}, (4, 6), None),
}  # fmt: skip


@pytest.mark.parametrize(("op", "known", "domain", "expected"), PLACES.values(), ids=PLACES)
def test_place(op: Any, known: Any, domain: Any, expected: Any) -> None:
    assert place(op, known, domain) == expected


def test_places_of_operands() -> None:
    left, right = weft.placeholder((5, 4, 6)), weft.placeholder((5, 6, 3))
    product = weft.matmul(left, right)
    assert operand_indexing_map(product, 0, (0, 1, 2)) == (0, 1, None)
    assert operand_indexing_map(product, 1, (0, 1, 2)) == (0, None, 2)
    assert operand_indexing_map(weft.sum(X, axis=1), 0, (0,)) == (0, 1)
    scaled = weft.tanh(X) * weft.placeholder(())
    assert [operand_indexing_map(scaled, index, (0, 1)) for index in (0, 1)] == [(0, 1), ()]


# Kernels


def test_stages_count_the_reductions_before() -> None:
    kernel = kernel_of(norm(X), X)
    kinds = [(type(each.op).__name__, each.stage) for each in kernel.body]
    assert kinds == [("MultiplyOp", 0), ("SumOp", 0), ("BroadcastOp", 1), ("DivideOp", 1)]
    assert kernel.stages == 2
    assert (kernel.reduced, kernel.size, kernel.title) == ((1,), 24, "multiply_sum_divide")


def test_values_vary_along_the_reduced_dimensions_or_not() -> None:
    kernel = kernel_of(norm(X), X)
    assert [kernel.varies(number) for number in range(5)] == [True, True, False, True, True]
    scale = weft.placeholder(())
    kernel = kernel_of(weft.tanh(X) * scale, X, scale)
    assert [kernel.varies(number) for number in range(4)] == [True, False, True, True]


def test_an_operand_is_needed_until_the_last_sweep_that_reads_or_recomputes_it() -> None:
    y = matrix()
    kernel = kernel_of(weft.tanh(X) / repeated(weft.sum(weft.exp(y), axis=1)), X, y)
    shapes = {each.op.args[0]: each.args[0] for each in kernel.body if len(each.args) == 1}
    numbers = {source: number for source, number in shapes.items() if not source.args}
    assert [kernel.last_stage(number) for number in sorted(numbers.values())] == [1, 0]


def results(kind: str) -> tuple[Any, list[Any]]:
    y, rows, square = matrix(), weft.placeholder((4,)), weft.placeholder((6, 6))
    return {
        "elementwise": (weft.tanh(X) + y, [X, y]),
        "another dtype": (weft.cast(X + 1, "float64"), [X]),
        "read in a later sweep": (
            [weft.exp(X), weft.tanh(X) / repeated(weft.sum(weft.tanh(X), axis=1))], [X]),
        "last read where it is written": (norm(X), [X]),
        "a factor": (weft.matmul(X, square) + y, [X, y]),
        "once a row": (weft.sum(X, axis=1) + rows, [X, rows]),
    }[kind]  # fmt: skip


OVERWRITES = {
    "elementwise": [{"X", "y"}],
    "another dtype": [set()],
    "read in a later sweep": [set(), {"X"}],
    "last read where it is written": [{"X"}],
    "a factor": [{"y"}],
    "once a row": [{"y"}],
}


@pytest.mark.parametrize(("kind", "expected"), OVERWRITES.items(), ids=OVERWRITES)
def test_what_a_result_may_overwrite(kind: str, expected: list[set[str]]) -> None:
    made, parameters = results(kind)
    graph = weft.capture(made if isinstance(made, list) else [made], parameters)
    kernel, operands = all_of(graph, (4, 6)).kernel(graph.outputs)
    names = dict(zip(graph.inputs, ("X", "y"), strict=False))
    found = [
        {
            names[op]
            for index, op in enumerate(operands)
            if op in names and kernel.may_overwrite(result, index)
        }
        for result in range(len(kernel.outputs))
    ]
    assert found == expected


def test_a_result_once_a_row_is_not_written_where_every_point_reads() -> None:
    graph = weft.parse("""graph('rows')
v0: float32(4, 6) = Parameter('x')
v1: float32(4) = Parameter('rows')
with kernel('k0', (4, 6), (1,)):
    p0: float32(4, 6) = Operand(0, 1)
    p1: float32(4) = Operand(0)
    p2: float32(4, 6) = BroadcastOp(p1, target_axes=Axes(4, 6), dims=(0,))
    p3: float32(4, 6) = MultiplyOp(p0, p2)
    p4: float32(4) = SumOp(p3, positions=(1,))
    p5: float32(4) = AddOp(p4, p1)
    store(p5)
v2: several = FusedOp(v0, v1, kernel=k0)
v3: float32(4) = ResultOp(v2, index=0)
result(v3)
""")
    (kernel,) = (op.kernel for op in graph.ops if isinstance(op, FusedOp))
    assert not kernel.may_overwrite(0, 1)


def test_a_result_of_a_row_overwrites_nothing_that_another_result_needs_again() -> None:
    graph = weft.parse("""graph('rows')
v0: float32(4, 6) = Parameter('x')
v1: float32(4) = Parameter('rows')
with kernel('k0', (4, 6), (1,)):
    p0: float32(4, 6) = Operand(0, 1)
    p1: float32(4) = Operand(0)
    p2: float32(4) = SumOp(p0, positions=(1,))
    p3: float32(4) = AddOp(p2, p1)
    p4: float32(4, 6) = BroadcastOp(p3, target_axes=Axes(4, 6), dims=(0,))
    p5: float32(4, 6) = MultiplyOp(p0, p4)
    store(p3)
    store(p5)
v2: several = FusedOp(v0, v1, kernel=k0)
v3: float32(4) = ResultOp(v2, index=0)
v4: float32(4, 6) = ResultOp(v2, index=1)
result(v3)
result(v4)
""")
    (kernel,) = (op.kernel for op in graph.ops if isinstance(op, FusedOp))
    assert not kernel.may_overwrite(0, 1)
    assert kernel.may_overwrite(1, 0)


def test_a_state_that_a_kernel_updates_once_a_column_is_updated_in_place() -> None:
    bias = weft.variable((6,))
    graph = weft.capture([weft.assign(bias, bias - weft.sum(X, axis=0))], [X])
    plan = make_plan(fused(graph, [all_of(graph, (4, 6))]), TARGET)
    plan.verify()
    assert [type(step.op) for step in plan.steps] == [FusedOp]


def test_equal_kernels_have_equal_keys() -> None:
    first, second = (kernel_of(norm(x), x) for x in (matrix(), matrix()))
    assert first.key == second.key
    assert hash(first.key) == hash(second.key)


@pytest.mark.parametrize(
    "other",
    [
        lambda: kernel_of(norm(x := matrix("float64")), x),
        lambda: kernel_of(norm(x := weft.placeholder((4, 6))) + 1.0, x),
        lambda: kernel_of((x := matrix()) / repeated(weft.max(x * x, axis=1)), x),
        lambda: kernel_of([norm(x := matrix()), x * x], x),
    ],
    ids=["dtype", "one more op", "another reduction", "one more result"],
)
def test_different_kernels_have_different_keys(other: Any) -> None:
    x = matrix()
    assert kernel_of(norm(x), x).key != other().key


def test_constants_and_attributes_are_part_of_a_key() -> None:
    keys = {kernel_of(X * number, X).key for number in (2.0, 3.0, 2.0)}
    assert len(keys) == 2
    casts = {kernel_of(weft.tanh(weft.cast(X, dtype)), X).key for dtype in ("float64", "float32")}
    assert len(casts) == 2


def test_lines_of_all_ops() -> None:
    y = weft.tanh(X)
    z = weft.exp(y)
    assert [line for _, line in kernel_of(z, X).locations] == [y.lineno, z.lineno]


# In graphs


def test_a_fused_graph_prints_parses_and_computes_the_same() -> None:
    graph = weft.capture([norm(weft.tanh(X) * 2)], [X])
    result = fused(graph, [all_of(graph, (4, 6))])
    result.verify()
    text = result.text(full=True)
    again = weft.parse(text)
    assert again.text(full=True) == text
    kernels = [op.kernel for each in (result, again) for op in each.ops if isinstance(op, FusedOp)]
    assert kernels[0].key == kernels[1].key
    array = np.random.default_rng(0).normal(size=(4, 6)).astype("f4")
    for wide in (False, True):
        values = [evaluate(each, [array], wide=wide)[0][0] for each in (graph, result, again)]
        np.testing.assert_array_equal(values[1], values[0])
        np.testing.assert_array_equal(values[2], values[0])


def test_kernels_that_differ_in_names_only_print_apart() -> None:
    named = [weft.placeholder((weft.Axis(4, name),)) for name in "AB"]
    graph = weft.capture([weft.exp(weft.tanh(x)) for x in named], named)
    groups = [Group((4,), {out.args[0]: (0,), out: (0,)}) for out in graph.outputs]
    text = fused(graph, groups).text(full=True)
    assert text.count("with kernel(") == 2
    assert weft.parse(text).text(full=True) == text


def test_equal_kernels_print_once() -> None:
    pair = [matrix(), matrix()]
    graph = weft.capture([weft.exp(weft.tanh(x)) for x in pair], pair)
    groups = [Group((4, 6), {out.args[0]: (0, 1), out: (0, 1)}) for out in graph.outputs]
    assert fused(graph, groups).text().count("with kernel(") == 1


def test_an_op_in_two_groups_is_computed_in_both() -> None:
    shifted = X - 1
    graph = weft.capture([weft.exp(shifted), weft.sum(shifted, axis=0)], [X])
    (exp, total), shared = graph.outputs, graph.outputs[0].args[0]
    groups = [
        Group((4, 6), {shared: (0, 1), exp: (0, 1)}),
        Group((4, 6), {shared: (0, 1), total: (1,)}),
    ]
    result = fused(graph, groups)
    kernels = [op.kernel for op in result.ops if isinstance(op, FusedOp)]
    assert [(each.title, len(each.outputs)) for each in kernels] == [
        ("subtract_exp", 1),
        ("subtract_sum", 1),
    ]


def test_a_group_that_is_left_and_entered_again_is_refused() -> None:
    first = weft.tanh(X)
    graph = weft.capture([first + weft.cumsum(first, 0)], [X])
    total = graph.outputs[0]
    group = Group((4, 6), {total.args[0]: (0, 1), total: (0, 1)})
    with pytest.raises(GraphError, match="out of a group of ops to fuse, and back"):
        fused(graph, [group])


def test_a_kernel_that_would_wait_for_more_than_its_operands_is_refused() -> None:
    graph = weft.capture([weft.exp(weft.tanh(X)), weft.sin(X)], [X])
    exp, sin = graph.outputs
    group = Group((4, 6), {exp.args[0]: (0, 1), exp: (0, 1)})
    with pytest.raises(GraphError, match="a kernel cannot wait for more than its operands"):
        fused(graph.replace(after={exp: (sin,)}), [group])


def test_effects_keep_their_order() -> None:
    first, second = weft.print_op(weft.tanh(X)), weft.print_op(weft.exp(X))
    graph = weft.capture([first, second], [X])
    one, other = graph.outputs
    ordered = in_effect_order(graph)
    assert ordered.after == {other: (one,)}
    assert in_effect_order(ordered) is ordered


# Malformed kernels


def broken(**changes: Any) -> Kernel:
    return dataclasses.replace(kernel_of(norm(X), X), **changes)


def changed(index: int, **changes: Any) -> Kernel:
    body = list(kernel_of(norm(X), X).body)
    body[index] = dataclasses.replace(body[index], **changes)
    return broken(body=tuple(body))


MALFORMED = {
    "length 4 in dimension 0": lambda: broken(domain=(5, 6)),
    "result 0 is not an instruction": lambda: broken(outputs=(0,)),
    "result 9 is not an instruction": lambda: broken(outputs=(9,)),
    "computed before one of its operands": lambda: changed(0, args=(3, 3)),
    "value 2 is reduced over": lambda: broken(reduced=(0,)),
    "value 1 has 2 axes and 1 places": lambda: changed(0, places=(0,)),
    "value 4 takes float32": lambda: changed(3, args=(0, 2)),
    "length 6 in dimension 7": lambda: changed(0, places=(0, 7)),
}


@pytest.mark.parametrize(("message", "make"), MALFORMED.items(), ids=MALFORMED)
def test_a_malformed_kernel_is_refused(message: str, make: Any) -> None:
    with pytest.raises(ArgumentError, match=message):
        FusedOp(X, kernel=make())


SQUARE = weft.placeholder((6, 6))


def product(**changes: Any) -> Kernel:
    return dataclasses.replace(kernel_of(weft.tanh(X @ SQUARE), X, SQUARE), **changes)


def changed_product(index: int, **changes: Any) -> Kernel:
    kernel = product()
    body, operands = list(kernel.body), list(kernel.operands)
    if index < len(operands):
        operands[index] = dataclasses.replace(operands[index], **changes)
    else:
        place = index - len(operands)
        body[place] = dataclasses.replace(body[place], **changes)
    return product(body=tuple(body), operands=tuple(operands))


def before_product(x: Any) -> Kernel:
    """Return the kernel of a product, and of what computes its first operand from X."""
    graph = weft.capture([x @ SQUARE], [X, SQUARE])
    (result,) = graph.outputs
    group = Group((4, 6), {op: (0, None) for op in graph.ops if op.args})
    group.places[result] = (0, 1)
    kernel, _ = group.kernel([result])
    return kernel


def changed_prologue(index: int, **changes: Any) -> Kernel:
    kernel = before_product(weft.tanh(weft.exp(X)))
    operands = list(kernel.operands)
    operands[index] = dataclasses.replace(operands[index], **changes)
    return dataclasses.replace(kernel, operands=tuple(operands))


def changed_last(**changes: Any) -> Kernel:
    kernel = before_product(weft.tanh(weft.exp(X)))
    *first, last = kernel.body
    return dataclasses.replace(kernel, body=(*first, dataclasses.replace(last, **changes)))


def two_products() -> Kernel:
    group = Group((4, 6))
    graph = weft.capture([X @ SQUARE + X @ SQUARE], [X, SQUARE])
    group.places = {op: (0, 1) for op in graph.ops if op.args}
    return group.kernel(graph.outputs)[0]


def one_term() -> Kernel:
    """Return a kernel in which an operand has the same places before a product and after it."""
    column, row = weft.placeholder((4, 1)), weft.placeholder((1, 6))
    graph = weft.capture([weft.tanh(column) @ row, column * column], [column, row])
    product, square = graph.outputs
    group = Group((4, 6), {product.args[0]: (0, None), product: (0, 1), square: (0, None)})
    return group.kernel([product, square])[0]


MALFORMED_PRODUCTS = {
    "value 3 is a second contraction": two_products,
    "an operand of a TanhOp before the product is read after it": one_term,
    "value 4, a matrix product, takes value 2 and not the last": lambda: changed_last(args=(2, 1)),
    "a SliceOp comes before value 3, a matrix product": lambda: before_product(X[::-1]),
    r"value 2, at \(0, None\), takes values at .*\(0, 1\)": lambda: changed_prologue(
        0, places=(0, 1)
    ),
    "result 2 is not an instruction, or one before a matrix product": lambda: dataclasses.replace(
        before_product(weft.tanh(X)), outputs=(2,)
    ),
    r"value 2, a contraction, has the places \(0, None\)": lambda: changed_product(
        2, places=(0, None)
    ),
    r"takes value 1 at \(1, None\), not at \(None, 1\)": lambda: changed_product(
        1, places=(1, None)
    ),
    r"the rows of a matrix product are reduced over \(0,\)": lambda: kernel_of(
        weft.sum(X @ SQUARE, axis=0), X, SQUARE
    ),
}


@pytest.mark.parametrize(
    ("message", "make"), MALFORMED_PRODUCTS.items(), ids=range(len(MALFORMED_PRODUCTS))
)
def test_a_malformed_kernel_of_a_product_is_refused(message: str, make: Any) -> None:
    with pytest.raises(ArgumentError, match=message):
        FusedOp(X, SQUARE, kernel=make())


def test_a_kernel_knows_its_product() -> None:
    kernel = product()
    assert kernel.product is kernel.body[0]
    assert kernel.prologue == ()
    assert kernel_of(norm(X), X).product is None
    assert kernel_of(norm(X), X).prologue == ()


def test_what_comes_before_a_product_is_its_prologue() -> None:
    kernel = before_product(weft.tanh(weft.exp(X)))
    assert [type(each.op).__name__ for each in kernel.prologue] == ["ExpOp", "TanhOp"]
    assert kernel.product is kernel.body[2]
    assert kernel.title == "exp_tanh_matmul"
    x, square = np.random.default_rng(0).normal(size=(2, 6, 6)).astype("f4")
    (found,) = FusedOp(X, SQUARE, kernel=kernel).reference(x[:4], square)
    np.testing.assert_allclose(found, np.tanh(np.exp(x[:4])) @ square, rtol=1e-5)


def test_no_result_lies_where_a_prologue_reads() -> None:
    """All of a row of the result needs all of a row of the operand."""
    graph = weft.capture([weft.tanh(SQUARE) @ SQUARE], [SQUARE])
    (result,) = graph.outputs
    group = Group((6, 6), {result.args[0]: (0, None), result: (0, 1)})
    kernel, _ = group.kernel([result])
    assert [kernel.may_overwrite(0, operand) for operand in range(2)] == [False, False]


def test_operands_that_a_kernel_does_not_take_are_refused() -> None:
    kernel = kernel_of(norm(X), X)
    with pytest.raises(ArgumentError, match=r"takes float32 Axes\(4, 6\), not float64"):
        FusedOp(matrix("float64"), kernel=kernel)
    with pytest.raises(ArgumentError, match="not nothing"):
        FusedOp(kernel=kernel)


def test_results_have_the_types_of_the_kernel() -> None:
    kernel = kernel_of([weft.cast(X + 1, "float64"), weft.sum(X, axis=1)], X)
    one = next(n for n, each in enumerate(kernel.operands) if not each.shape)
    operands = [weft.constant(1.0), X] if one == 0 else [X, weft.constant(1.0)]
    whole = FusedOp(*operands, kernel=kernel)
    results = [ResultOp(whole, index=index) for index in (0, 1)]
    assert [(op.axes.shape, op.dtype) for op in results] == [((4, 6), float64), ((4,), float32)]
    with pytest.raises(ArgumentError, match="there is no result 2"):
        ResultOp(whole, index=2)


# Fusion statistics


def test_account_counts_ops_kernels_and_bytes() -> None:
    bias = weft.placeholder((6,))
    graph = weft.capture([weft.exp(X + bias) * 2], [X, bias])
    views = [op for op in graph.ops if isinstance(op, BroadcastOp)]
    result = fused(graph, [all_of(graph, (4, 6), *views)])
    found = fusion_statistics(graph, make_plan(result, TARGET))
    whole, row, number = 4 * 4 * 6, 4 * 6, 4
    assert (found.captured, found.ops, found.kernels, found.fused, found.steps) == (4, 3, 1, 3, 1)
    assert found.bytes_op_by_op == (2 * whole + row) + 2 * whole + (2 * whole + number)
    assert found.bytes_moved == 2 * whole + row + number
    assert found.arena == 0


def test_account_of_what_is_not_fused() -> None:
    graph = weft.capture([weft.sum(weft.tanh(X), axis=1)], [X])
    found = fusion_statistics(graph, make_plan(graph, TARGET))
    assert found.kernels == found.fused == 0
    assert found.bytes_moved == found.bytes_op_by_op == 3 * 96 + 16


def test_a_computation_has_an_account() -> None:
    with weft.make_transformer("numpy", passes=["decompose"]) as transformer:
        computation = transformer.computation(weft.tanh(X) + 1, X)
        lines = str(computation.fusion_statistics).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "ops captured",
        "ops computed",
        "kernels",
        "steps",
        "bytes op by op",
        "bytes moved",
        "arena bytes",
    ]
    assert computation.fusion_statistics.steps == 2


def test_sums_and_elementwise_ops_are_instructions_in_order() -> None:
    kernel = kernel_of(norm(X), X)
    assert all(isinstance(each, Instruction) for each in kernel.body)
    assert [each.is_reduction for each in kernel.body] == [False, True, False, False]
    assert isinstance(kernel.instruction(2).op, SumOp)
    assert isinstance(kernel.instruction(4).op, ElementwiseOp)
