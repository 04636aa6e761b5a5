"""Control flow with Python functions as bodies, which may use traced values from around them.

Each function is traced once and becomes a graph. What it takes from its surroundings becomes
operands of the loop or conditional.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import wraps
from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.functional import trees
from weft.functional.tracing import Body, Function, name_of, op_of, trace_body
from weft.functional.trees import Structure
from weft.ir import dtypes
from weft.ir.axes import Axes
from weft.ir.dtypes import DType
from weft.ir.graph import Graph
from weft.ir.lengths import Length
from weft.ir.op import are_same, explain
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.control import calls
from weft.ops.control.graph_ops import STACK
from weft.ops.pointwise.comparison import less, maximum, minimum
from weft.ops.pointwise.elementwise import cast
from weft.ops.random.philox import counts_calls
from weft.ops.shape.creation import zeros


def scan(
    function: Function,
    init: Any,
    xs: Any = None,
    length: int | Length | None = None,
    reverse: bool = False,
    recompute: bool = False,
) -> tuple[Any, Any]:
    """Carry values over the rows of trees of tensors; return the last ones, and stacked results.

    ``function(carry, x)`` returns the next carry and a result ``y``, both trees. `x` has the rows
    of `xs` along their first axis, and the results are stacked along a new first axis::

        carry, ys = init, []
        for x in xs:
            carry, y = function(carry, x)
            ys.append(y)
        return carry, stack(ys)

    Parameters
    ----------
    function
        The body; it may use traced values from around it.
    init
        The first carry. The carry keeps its structure, axes and dtypes; a Python number takes the
        dtype that the body gives it.
    xs, length
        Trees of tensors of one length, which may be unknown until the call; without them, None and
        the number of iterations.
    reverse
        Whether the last row comes first; results stay beside the rows that they belong to.
    recompute
        Whether the gradient computes values of the body again, for each row from its carry, instead
        of keeping them all: less memory, more time.

    Returns
    -------
    tuple
        The last carry, and the results.

    Raises
    ------
    ArgumentError
        If the body does not return a pair, or the structure of its carry changes; if lengths differ
        or none is given.
    AxesError, DTypeError
        If a leaf of the carry has other axes or another dtype after an iteration.

    Examples
    --------
    >>> running = weft.jit(lambda xs: weft.scan(lambda total, x: (total + x, total + x), 0.0, xs))
    >>> running(np.array([1.0, 2.0, 3.0]))
    (array(6.), array([1., 3., 6.]))
    >>> powers = weft.jit(lambda x: weft.scan(lambda y, _: (y * x, y), 1.0, length=4)[1])
    >>> powers(2.0)
    array([1., 2., 4., 8.], dtype=float32)
    """
    what = f"scan of {_named('scan(function, init, xs)', function, 'carry, x')}"
    leaves, structure = trees.flatten(xs)
    paths = trees.paths(structure, "xs")
    rows = [op_of(leaf, f"{what}: {path}") for leaf, path in zip(leaves, paths, strict=True)]
    count = _length(what, rows, paths, length)

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        result = function(carry, x)
        if not isinstance(result, tuple) or len(result) != 2:
            problem = f"must return a pair of the next carry and a result, not {result!r:.80}"
            raise ArgumentError(f"{what}: the body {problem}")
        return result

    step = wraps(function)(step)
    carry = _Carry(what, init)
    body = carry.stable(step, structure, [(Axes(op.axes[1:]), op.dtype) for op in rows])
    found = _scanned(carry, body, rows, count, reverse=reverse, recompute=recompute)
    return trees.unflatten(body.structure, found)  # type: ignore[no-any-return]


def fori_loop(
    lower: Any, upper: Any, function: Function, init: Any, recompute: bool = False
) -> Any:
    """Return ``function(i, carry)`` iterated for i from `lower` to below `upper`.

    Parameters
    ----------
    lower, upper
        Integers, or unknown lengths, which make a range that is not negative; or traced integer
        scalars, then the loop has no gradient.
    function
        The body; it may use traced values from around it.
    init
        The first carry, a tree. The carry keeps its structure, axes and dtypes; a Python number
        takes the dtype that the body gives it.
    recompute
        Whether the gradient computes values of the body again; see `scan`.

    Returns
    -------
    Any
        The last carry, which is `init` if there is no iteration.

    Raises
    ------
    ArgumentError
        If a bound is not an integer, or the structure of the carry changes.
    AxesError, DTypeError
        If a traced bound is not an integer scalar, or a leaf of the carry has other axes or another
        dtype after an iteration.

    Examples
    --------
    >>> weft.jit(lambda x: weft.fori_loop(0, 3, lambda i, y: y * x + i, 1.0))(2.0)
    array(12., dtype=float32)
    """
    called = "fori_loop(lower, upper, function, init)"
    what = f"fori_loop of {_named(called, function, 'i, carry')}"
    bounds: list[Any] = [
        each if isinstance(each, Length | TensorOp) else checked_integer("fori_loop", name, each)
        for name, each in (("lower", lower), ("upper", upper))
    ]
    if any(isinstance(each, TensorOp) for each in bounds):
        first, last = (
            cast(_integer("fori_loop", name, each), dtypes.int64)
            for name, each in zip(("lower", "upper"), bounds, strict=True)
        )

        def go_on(state: tuple[TensorOp, Any]) -> TensorOp:
            return less(state[0], last)

        def advance(state: tuple[TensorOp, Any]) -> tuple[TensorOp, Any]:
            return state[0] + 1, function(*state)

        carry = _Carry(what, (first, init), is_counted=True)
        return carry.packed(_iterated(carry, go_on, wraps(function)(advance)))[1]
    count = bounds[1] - bounds[0]
    start = as_op(bounds[0], dtypes.int64)
    carry = _Carry(what, (start, init), is_counted=True)

    def advance_both(state: tuple[TensorOp, Any]) -> tuple[tuple[TensorOp, Any], None]:
        return (state[0] + 1, function(*state)), None

    body = carry.stable(wraps(function)(advance_both))
    return carry.packed(_scanned(carry, body, [], count, recompute=recompute))[1]


def while_loop(condition: Any, body: Any, *init: Any) -> Any:
    """Return ``body(carry)`` iterated from `init` while ``condition(carry)`` is true.

    The loop has no gradient: give its derivative, or take `scan` or `fori_loop` with a known number
    of iterations.

    Parameters
    ----------
    condition
        A function of the carry that returns a bool scalar; or a graph.
    body
        A function from a carry to the next one; or a graph. Both functions may use traced values
        from around them; graphs may not use states.
    *init
        The first carry, a tree. The carry keeps its structure, axes and dtypes; a Python number
        takes the dtype that the body gives it. For graphs these are all further arguments.

    Returns
    -------
    Any
        The first carry for which the condition is false; a tuple for graphs.

    Raises
    ------
    ArgumentError
        If the structure of the carry changes.
    AxesError, DTypeError
        If the condition returns no bool scalar, or a leaf of the carry has other axes or another
        dtype after an iteration.

    Examples
    --------
    >>> weft.jit(lambda x: weft.while_loop(lambda y: y < 100, lambda y: y * x, x))(3.0)
    array(243., dtype=float32)
    """
    if isinstance(condition, Graph) or isinstance(body, Graph):
        return calls.while_loop(condition, body, *init)
    if len(init) != 1:
        problem = f"takes one tree to carry, not {len(init)}: put them into a tuple"
        raise ArgumentError(f"while_loop: it {problem}")
    called = "while_loop(condition, body, init)"
    names = [_named(called, each, "carry") for each in (condition, body)]
    carry = _Carry(f"while_loop of {names[1]}", init[0])
    return carry.packed(_iterated(carry, condition, body))


def _iterated(carry: _Carry, condition: Function, body: Function) -> Sequence[TensorOp]:
    """Return the carry after a loop."""
    step = carry.stable(wraps(body)(lambda state: (body(state), None)))
    of_condition = f"while_loop of {name_of(condition)}"
    test = trace_body(condition, carry.structure, carry.types, of_condition, carry.paths)
    if len(test.graph.outputs) != 1 or not test.structure.is_leaf():
        problem = f"must return a bool scalar, not {trees.shown(test.structure)}"
        raise ArgumentError(f"{test.what}: the condition {problem}")
    free = tuple(dict.fromkeys((*test.free, *step.free)))
    operands = [*carry.ops, *free]
    made = calls.while_op(test.taking(free).graph, step.taking(free).graph, *operands)
    return made.results


def cond(
    condition: TensorLike, then_branch: Any, else_branch: Any, *operands: Any, **args: Any
) -> Any:
    """Return ``then_branch(*operands)`` if a bool scalar is true, else ``else_branch(*operands)``.

    Only the chosen branch runs, if the backend can branch. Where the condition is known while the
    function is traced, only that branch is traced.

    Parameters
    ----------
    condition
        A bool scalar.
    then_branch, else_branch
        Functions that return trees of one structure, with the same axes and dtypes; a Python number
        takes the dtype of the other branch. They may use traced values from around them. Or graphs.
    *operands
        Trees of tensors.
    **args
        For graphs ``then_args`` and ``else_args``, the arguments of each in a list.

    Returns
    -------
    Any
        What the branch returns; a tuple for graphs.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the condition is not a bool scalar, or the branches differ in structure, axes or dtypes;
        the leaf is named.

    Examples
    --------
    >>> half = weft.jit(lambda n: weft.cond(n % 2 == 0, lambda: n // 2, lambda: 3 * n + 1))
    >>> half(6), half(7)
    (array(3), array(22))
    """
    if isinstance(then_branch, Graph) or isinstance(else_branch, Graph):
        return calls.cond(condition, then_branch, else_branch, *operands, **args)
    if args:
        raise ArgumentError(f"cond: functions take operands by position, not {', '.join(args)}=")
    if isinstance(condition, bool | np.bool_):
        return (then_branch if condition else else_branch)(*operands)
    given = ", ".join(f"operand {number}" for number in range(len(operands)))
    called = "cond(condition, function, other, *operands), and where() for values"
    names = [_named(called, branch, given) for branch in (then_branch, else_branch)]
    leaves, structure = trees.flatten(operands)
    paths = trees.paths(structure, "operands")
    ops = [op_of(leaf, f"cond: {path}") for leaf, path in zip(leaves, paths, strict=True)]
    types = [(op.axes, op.dtype) for op in ops]
    one, other = (
        trace_body(branch, structure, types, f"cond with {name}", paths)
        for branch, name in zip((then_branch, else_branch), names, strict=True)
    )
    one, other = _with_equal_outputs(one, other)
    made = calls.cond_op(condition, one.graph, other.graph, [*ops, *one.free], [*ops, *other.free])
    return trees.unflatten(one.structure, made.results)


def switch(index: TensorLike, branches: Sequence[Function], *operands: Any) -> Any:
    """Return what the branch at an index returns for the operands.

    Parameters
    ----------
    index
        An integer scalar, which is clamped to the branches that there are.
    branches
        Functions that return trees of one structure, with the same axes and dtypes, as for `cond`.
    *operands
        Trees of tensors.

    Returns
    -------
    Any
        What the branch returns.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the index is not an integer scalar, there is no branch, or branches differ in structure,
        axes or dtypes.

    Examples
    --------
    >>> apply = weft.jit(lambda i, x: weft.switch(i, [weft.sin, weft.exp, lambda x: 2 * x], x))
    >>> apply(2, 1.5)
    array(3., dtype=float32)
    """
    if not branches or not all(map(callable, branches)):
        raise ArgumentError(f"switch takes a list of functions, not {branches!r:.80}")
    chosen = minimum(maximum(_integer("switch", "index", index), 0), len(branches) - 1)

    def between(first: int, end: int) -> Function:
        if end - first == 1:
            return branches[first]
        middle = (first + end) // 2
        below, above = between(first, middle), between(middle, end)
        return lambda *args: cond(less(chosen, middle), below, above, *args)

    return between(0, len(branches))(*operands)


def _integer(function: str, what: str, value: TensorLike) -> TensorOp:
    """Return an integer scalar; raises DTypeError for anything else."""
    op = as_op(value, None if isinstance(value, TensorOp) else dtypes.int64)
    if op.axes or not dtypes.is_integer(op.dtype):
        problem = f"{what} must be an integer scalar, not {op.dtype} {op.axes}"
        raise DTypeError(explain(function, problem, (op,)))
    return op


def _named(called: str, function: Any, arguments: str) -> str:
    """Return the name of a function; raises ArgumentError if it does not take such arguments."""
    if not callable(function):
        raise ArgumentError(f"{function!r:.80} is not a function: {called}")
    try:
        inspect.signature(function).bind(*filter(None, arguments.split(", ")))
    except TypeError as error:
        name = name_of(function)
        problem = f"{name} is called as {name}({arguments}), but {error}: {called}"
        raise ArgumentError(problem) from None
    except ValueError:  # of a builtin function that does not say what it takes
        pass
    return name_of(function)


def _difference(structure: Structure, wanted: Structure, root: str) -> str:
    """Return how what a function returned differs from another structure."""
    found = trees.difference(structure, wanted, root)
    is_none = structure == trees.flatten(None)[1]
    return f"{found}: a function without return returns None" if is_none else found


class _Carry:
    """The carried values of a loop, before its first iteration."""

    def __init__(self, what: str, init: Any, is_counted: bool = False) -> None:
        leaves, self.inner = trees.flatten(init)
        self.structure = trees.flatten((init,))[1]
        self.what = what
        self.is_counted = is_counted
        own = self._own(self.inner)
        self.paths = ["i"] * is_counted + trees.paths(own, "carry")
        self.ops = [
            op_of(leaf, f"{what}: {path}") for leaf, path in zip(leaves, self.paths, strict=True)
        ]
        self.is_number = [isinstance(leaf, int | float | complex) for leaf in leaves]

    def _own(self, structure: Structure) -> Structure:
        """Return the structure of a carry without the number of the iteration."""
        return trees.children(structure)[1] if self.is_counted else structure

    @property
    def types(self) -> list[tuple[Axes, DType]]:
        """Axes and dtype of each leaf."""
        return [(op.axes, op.dtype) for op in self.ops]

    def packed(self, values: Sequence[TensorOp]) -> Any:
        """Return values in the structure of the carry."""
        return trees.unflatten(self.inner, values[: len(self.ops)])

    def stable(
        self,
        step: Function,
        xs: Structure = None,
        types: Sequence[tuple[Axes, DType]] = (),
    ) -> Body:
        """Return the body, a function from carry and rows to a pair; raises if the carry changes.

        Python numbers in the first carry are cast to what the body makes of them.
        """
        structure, names = self.structure, self.paths
        if xs is not None:
            structure, names = trees.joined(self.inner, xs), [*names, *trees.paths(xs, "x")]
        while True:
            body = trace_body(step, structure, [*self.types, *types], self.what, names)
            self._check(body)
            before, (*after,) = list(self.ops), body.graph.outputs
            for place in range(len(before)):
                after[place] = self._matched(place, after[place], body.is_number[place])
            if are_same(before, self.ops):
                return body.with_outputs(after)

    def _check(self, body: Body) -> None:
        """Raise ArgumentError for a body that draws numbers of a state or changes the structure."""
        for state in filter(counts_calls, body.graph.states):
            raise ArgumentError(
                f"{self.what}: the body draws random numbers ({state.file_info}) that are new "
                "at every call: carry a key, and draw from keys that are split from it, as in "
                "weft.random.uniform(key, shape)"
            )
        own, _ = trees.children(body.structure)
        if own != self.inner:
            found = _difference(self._own(own), self._own(self.inner), "carry")
            raise ArgumentError(f"{self.what}: after an iteration the carry has {found}")

    def _matched(self, place: int, after: TensorOp, is_number: bool) -> TensorOp:
        """Return a value after an iteration in the dtype that it had before, which may widen."""
        op, path = self.ops[place], self.paths[place]
        if after.axes != op.axes:
            raise AxesError(
                f"{self.what}: {path} has {op.axes}, but {after.axes} after an iteration "
                f"({after.file_info})"
            )
        wide = dtypes.promote(after.dtype, op.dtype)
        if is_number and wide == op.dtype:
            return cast(after, op.dtype)
        if self.is_number[place] and wide == after.dtype:
            self.ops[place] = cast(op, wide)
        elif after.dtype != op.dtype:
            raise DTypeError(
                f"{self.what}: {path} is {op.dtype}, but {after.dtype} after an iteration "
                f"({after.file_info}): begin with .astype('{after.dtype}'), or return "
                f".astype('{op.dtype}')"
            )
        return after


def _scanned(
    carry: _Carry,
    body: Body,
    rows: Sequence[TensorOp],
    count: int | Length,
    reverse: bool = False,
    recompute: bool = False,
) -> Sequence[TensorOp]:
    """Return the outputs of a body scanned over rows: the carry, then stacked results."""
    if isinstance(count, int) and count <= 0:
        results = body.graph.outputs[len(carry.ops) :]
        return [*carry.ops, *(zeros((0, *op.axes.lengths), op.dtype) for op in results)]
    names = [op.axes[0].name for op in rows if op.axes[0].name is not None]
    return calls.scan_op(
        body.graph,
        [*carry.ops, *rows, *body.free],
        count=count,
        carried=len(carry.ops),
        scanned=len(rows),
        reverse=reverse,
        recompute=recompute,
        stack_name=names[0] if names else STACK,
    ).results


def _with_equal_outputs(one: Body, other: Body) -> tuple[Body, Body]:
    """Return branches with equal outputs; raises if they differ in more than dtypes of numbers."""
    if one.structure != other.structure:
        found = _difference(other.structure, one.structure, "result")
        raise ArgumentError(f"cond: the branches return different trees: the second has {found}")
    outputs = [list(each.graph.outputs) for each in (one, other)]
    for place, path in enumerate(trees.paths(one.structure, "result")):
        x, y = (each[place] for each in outputs)
        if x.axes != y.axes:
            where = f"{x.file_info}, and {y.axes} in the other, {y.file_info}"
            raise AxesError(f"cond: {path} has {x.axes} in one branch, {where}")
        wide = dtypes.promote(x.dtype, y.dtype)
        for each, body in zip(outputs, (one, other), strict=True):
            if body.is_number[place]:
                each[place] = cast(each[place], wide)
        x, y = (each[place] for each in outputs)
        if x.dtype != y.dtype:
            where = f"{x.file_info}, and {y.dtype} in the other, {y.file_info}"
            way = f"cast one, as by .astype('{x.dtype}')"
            raise DTypeError(f"cond: {path} is {x.dtype} in one branch, {where}: {way}")
    return one.with_outputs(outputs[0]), other.with_outputs(outputs[1])


def _length(
    what: str, rows: Sequence[TensorOp], paths: Sequence[str], length: int | Length | None
) -> int | Length:
    """Return the number of iterations of a scan; raises ArgumentError if there is not just one."""
    found: dict[str, int | Length] = {}
    if isinstance(length, Length):
        found["length="] = length
    elif length is not None:
        found["length="] = checked_integer("scan", "length", length, 0)
    for op, path in zip(rows, paths, strict=True):
        if not op.axes:
            raise ArgumentError(f"{what}: {path} is a scalar, and has no rows")
        found[path] = op.axes[0].length
    if not found:
        raise ArgumentError(f"{what}: give xs with rows, or the number of iterations by length=")
    if len(set(found.values())) != 1:
        shown = ", ".join(f"{path} {size}" for path, size in found.items())
        raise ArgumentError(f"{what}: numbers of rows differ: {shown}")
    return next(iter(found.values()))
