"""Gradients of functions of trees, composable with `jit` and with each other to any order.

They trace the function and differentiate what it built. Called with arrays, outside of a traced
function, they compile and run the result each time; `jit` around them does so once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

from weft.autodiff.reverse import jacobian_vector, vector_jacobian
from weft.autodiff.reverse import jvp as graph_jvp
from weft.errors import ArgumentError, AxesError, GradientError
from weft.functional import trees
from weft.functional.jit import builds_ops, run_arrays, running_arrays
from weft.functional.tracing import Function, name_of, op_of, ops_like
from weft.functional.trees import Structure
from weft.ir import dtypes, scope
from weft.ir.op import Op
from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.elementwise import cast
from weft.ops.shape.movement import IdentityOp, broadcast

Numbers = int | Sequence[int]


def grad(function: Function, argnums: Numbers = 0, has_aux: bool = False) -> Function:
    """Return a function for the gradient of a scalar function.

    It takes the same arguments; those by keyword are not differentiated. Called with arrays outside
    of a traced function it compiles and runs in every call, so put `jit` around it.

    Parameters
    ----------
    function
        A function of trees of arrays that returns a scalar float.
    argnums
        The argument that is differentiated, by position, or a sequence of them. Its leaves are
        floats.
    has_aux
        Whether the function returns a pair of the scalar and anything else, which is returned too.

    Returns
    -------
    Callable
        A function whose result has the structure of the argument, with the dtypes of its leaves;
        where `argnums` is a sequence it is a tuple of such trees. With `has_aux` it is in a pair
        with what the function returned besides.

    Raises
    ------
    ArgumentError
        At the call, for an argument that does not exist or is named twice.
    GradientError
        At the call, for a result that is not a scalar float, a leaf that is not a float, or an op
        without a gradient on the way; it is a ValueError.

    Examples
    --------
    >>> weft.grad(lambda x: x**3)(2.0)
    array(12., dtype=float32)
    >>> weft.grad(weft.grad(lambda x: x**3))(2.0)
    array(12., dtype=float32)
    >>> slope = weft.jit(weft.grad(lambda params, x: weft.sum(params["w"] * x)))
    >>> slope({"w": np.array([1.0, 2.0])}, np.array([3.0, 4.0]))
    {'w': array([3., 4.])}
    """
    checked_function("grad", function, argnums)
    both = value_and_grad(function, argnums, has_aux)

    def gradient(*args: Any, **options: Any) -> Any:
        value, found = both(*args, **options)
        return (found, value[1]) if has_aux else found

    return running_arrays(gradient, function, "grad")


def value_and_grad(function: Function, argnums: Numbers = 0, has_aux: bool = False) -> Function:
    """Return a function for a pair of the value of a scalar function and its gradient.

    Parameters
    ----------
    function
        A function of trees of arrays that returns a scalar float.
    argnums
        The argument that is differentiated, by position, or a sequence of them. Its leaves are
        floats.
    has_aux
        Whether the function returns a pair of the scalar and anything else; the value is then the
        pair.

    Returns
    -------
    Callable
        A function that returns the value, and the gradient as `grad` does.

    Raises
    ------
    ArgumentError, GradientError
        At the call, as for `grad`.

    Examples
    --------
    >>> weft.value_and_grad(lambda x: x["a"] * x["b"])({"a": 2.0, "b": 3.0})
    (array(6., dtype=float32), {'a': array(3., dtype=float32), 'b': array(2., dtype=float32)})
    """
    checked_function("value_and_grad", function, argnums)

    def value_and_gradient(*args: Any, **options: Any) -> Any:
        chosen = chosen_arguments(f"grad of {name_of(function)}", argnums, len(args))
        point = Point.of("grad", function, args, options, chosen, has_aux)
        found = point.adjoints_of(trees.unflatten(point.structure, [_seed(point)]))
        gradient = found[0] if isinstance(argnums, int) else found
        return ((point.value, point.aux) if has_aux else point.value), gradient

    return running_arrays(value_and_gradient, function, "value_and_grad")


def vjp(function: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Return the value of a function, and a function from its adjoint to those of the arguments.

    Outside of a traced function arrays give arrays, and the value is computed again for each
    adjoint.

    Parameters
    ----------
    function
        A function of trees of arrays.
    *primals
        Its arguments, trees of floats.
    has_aux
        Whether the function returns a pair of the value and anything else, which comes third.

    Returns
    -------
    tuple
        The value, and a function of an adjoint, a tree like the value. It returns a tuple with an
        adjoint for each argument, a tree like that.

    Raises
    ------
    ArgumentError
        If the adjoint has another structure.
    AxesError
        If a leaf of the adjoint has another shape.
    GradientError
        For a leaf that is not a float, or an op without a gradient on the way.

    Examples
    --------
    >>> value, back = weft.vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> value, back(1.0)
    (array(6., dtype=float32), (array(3., dtype=float32), array(2., dtype=float32)))
    """

    def at(args: tuple[Any, ...]) -> Point:
        return Point.of("vjp", function, args, {}, range(len(args)), has_aux)

    def value_and_aux(*args: Any) -> tuple[Any, Any]:
        point = at(args)
        return point.value, point.aux

    def adjoints(args: tuple[Any, ...], adjoint: Any) -> tuple[Any, ...]:
        return at(args).adjoints_of(adjoint)

    back: Function
    if builds_ops(primals):
        point = at(primals)
        value, aux, back = point.value, point.aux, point.adjoints_of
    else:
        value, aux = run_arrays(wraps(function)(value_and_aux), *primals)
        back = partial(run_arrays, wraps(function)(adjoints), primals)
    return (value, back, aux) if has_aux else (value, back)


def jvp(function: Any, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Return the value of a function and its directional derivative along tangents.

    It takes two reverse walks: the product of an adjoint with the Jacobian is linear in the
    adjoint, and its derivative by that is the product of the Jacobian with a tangent (J. Townsend,
    2017). A complex tangent is a direction in the plane, so the function need not be holomorphic.

    Parameters
    ----------
    function
        A function of trees of arrays; or an op.
    primals
        The arguments, a tuple of trees of floats. For an op, the op that it is differentiated by.
    tangents
        A tuple of trees like the primals. For an op, a tensor like the other.
    has_aux
        Whether the function returns a pair of the value and anything else, which comes third.

    Returns
    -------
    tuple
        The value and its derivative, alike in structure; the derivative is zero where a value is no
        float. For an op only the derivative.

    Raises
    ------
    ArgumentError
        If the tangents have another structure.
    AxesError
        If a tangent has another shape.
    GradientError
        For a leaf that is not a float, or an op without a gradient on the way.

    Examples
    --------
    >>> weft.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 10.0))
    (array(6., dtype=float32), array(23., dtype=float32))
    """
    if isinstance(function, Op):
        return graph_jvp(function, primals, tangents)  # type: ignore[arg-type]  # checks it

    def value_and_tangent(args: tuple[Any, ...], along: tuple[Any, ...]) -> tuple[Any, ...]:
        point = Point.of("jvp", function, args, {}, range(len(args)), has_aux)
        found = point.value, point.tangents_of(along)
        return (*found, point.aux) if has_aux else found

    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        problem = f"takes tuples, as in jvp(f, (x,), (tangent,)), not {primals!r:.40}"
        raise ArgumentError(f"jvp {problem} and {tangents!r:.40}")
    return running_arrays(value_and_tangent, function, "jvp")(tuple(primals), tuple(tangents))


class Point(NamedTuple):
    """What a function built for some arguments, of which some are differentiated.

    Attributes
    ----------
    what
        The function for messages.
    arguments, inputs
        The structure of the tuple of arguments that are differentiated, and their leaves.
    structure, outputs
        The structure of the value, and its leaves.
    aux
        What the function returned besides.
    """

    what: str
    arguments: Structure
    inputs: list[TensorOp]
    structure: Structure
    outputs: list[TensorOp]
    aux: Any

    @classmethod
    def of(
        cls,
        transform: str,
        function: Function,
        args: Sequence[Any],
        options: Mapping[str, Any],
        chosen: Sequence[int],
        has_aux: bool,
    ) -> Point:
        """Call a function; raises GradientError for a leaf to differentiate that is not a float."""
        what = f"{transform} of {name_of(function)}"
        leaves, arguments = trees.flatten(tuple(args[index] for index in chosen))
        inputs = [
            _independent(what, leaf, path)
            for leaf, path in zip(leaves, trees.paths(arguments, "args"), strict=True)
        ]
        given = list(args)
        for index, tree in zip(chosen, trees.unflatten(arguments, inputs), strict=True):
            given[index] = tree
        with scope.all_ops():
            result, aux = function(*given, **options), None
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                problem = f"has_aux=True needs a function that returns a pair, not {result!r:.80}"
                raise ArgumentError(f"{what}: {problem}")
            result, aux = result
        outputs, structure = trees.flatten(result)
        paths = trees.paths(structure, "result")
        ops = [op_of(leaf, f"{what}: {path}") for leaf, path in zip(outputs, paths, strict=True)]
        return cls(what, arguments, inputs, structure, ops, aux)

    @property
    def value(self) -> Any:
        """The value as a tree."""
        return trees.unflatten(self.structure, self.outputs)

    def adjoints_of(self, adjoint: Any) -> tuple[Any, ...]:
        """Return the adjoints of the arguments for that of the value."""
        errors = _alike(self.what, "adjoint", self.structure, adjoint, self.outputs)
        found = vector_jacobian(self.outputs, errors, self.inputs)
        return trees.unflatten(self.arguments, found)  # type: ignore[no-any-return]

    def tangents_of(self, tangents: tuple[Any, ...]) -> Any:
        """Return the derivative of the value along tangents of the arguments."""
        along = _alike(self.what, "tangents", self.arguments, tangents, self.inputs)
        found = jacobian_vector(self.outputs, self.inputs, along)
        return trees.unflatten(self.structure, found)


def _seed(point: Point) -> TensorOp:
    """Return the adjoint of a scalar value; raises GradientError for a value of another kind."""
    y = point.outputs[0] if len(point.outputs) == 1 else None
    if y is None or y.axes or not dtypes.is_float(y.dtype):
        shown = f"{y.dtype} {y.axes}" if y is not None else trees.shown(point.structure)
        ways = "sum it, or take vjp or jacobian"
        if y is None:
            ways = "return the scalar, or a pair of it and the rest with has_aux=True"
        raise GradientError(f"{point.what} needs a scalar float, but it returns {shown}: {ways}")
    return constant(1, dtype=y.dtype)


def _independent(what: str, leaf: Any, path: str) -> TensorOp:
    """Return a leaf as an op of its own, so that other uses of the same value do not count."""
    op = op_of(leaf, f"{what}: {path}")
    if not dtypes.is_inexact(op.dtype):
        raise GradientError(
            op.explain(
                f"{what}: {path} is {op.dtype}, and only floats have derivatives: cast it, "
                "or choose other arguments by argnums="
            )
        )
    return IdentityOp(op)


def _alike(
    what: str, name: str, structure: Structure, tree: Any, values: Sequence[TensorOp]
) -> list[TensorOp]:
    """Return the leaves of a tree as ops with the axes and dtypes of values."""
    given = ops_like(structure, tree, what, f"the {name}", name)
    found = []
    for (op, where), value in zip(given, values, strict=True):
        if not op.axes.agrees_with(value.axes):
            raise AxesError(f"{where} has {op.axes}, not {value.axes}")
        op = cast(op, value.dtype) if dtypes.is_inexact(value.dtype) else op
        found.append(op if op.axes == value.axes else broadcast(op, value.axes))
    return found


def checked_function(transform: str, function: object, argnums: object) -> None:
    """Raise ArgumentError for what is not a function, or no number or numbers of arguments."""
    if not callable(function):
        problem = f"takes a function, as in {transform}(f)(x), not {function!r:.80}"
        raise ArgumentError(f"{transform} {problem}")
    numbers = argnums if isinstance(argnums, Sequence) else [argnums]
    if not all(type(number) is int for number in numbers):
        problem = f"argnums= counts arguments, as in {transform}(f, argnums=0), not {argnums!r:.80}"
        raise ArgumentError(f"{transform}: {problem}: the function that it returns takes these")


def chosen_arguments(what: str, argnums: Numbers, count: int) -> list[int]:
    """Return the arguments to differentiate by position.

    Raises ArgumentError for one that is not there, or that is named twice.
    """
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    if not all(-count <= number < count for number in numbers):
        raise ArgumentError(
            f"{what}: argnums={argnums!r}, but the call has {count} positional arguments: give "
            "what is differentiated by position"
        )
    chosen = [number % count for number in numbers]
    if len(set(chosen)) != len(chosen):
        raise ArgumentError(f"{what}: argnums={argnums!r} names an argument twice")
    return chosen
