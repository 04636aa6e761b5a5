"""Functions of batches, Jacobians and Hessians: what `weft.batching` and reverse walks make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.autodiff.reverse import jacobian_vector, vector_jacobian
from weft.batching.walk import Batch, Batched, batched, moved
from weft.errors import ArgumentError, AxesError, GradientError
from weft.functional import trees
from weft.functional.gradients import Numbers, Point, checked_function, chosen_arguments, grad
from weft.functional.jit import running_arrays
from weft.functional.tracing import Function, effects_among, name_of, op_of
from weft.ir import dtypes, scope
from weft.ir.axes import Axes, make_axis
from weft.ir.storage import placeholder
from weft.ir.tensor import TensorOp
from weft.ir.traced import close_arguments, open_arguments
from weft.ops.pointwise.elementwise import cast
from weft.ops.shape.creation import eye
from weft.ops.shape.movement import cast_axes, reshape


def vmap(function: Function, in_axes: Any = 0, out_axes: Any = 0) -> Function:
    """Return a function that computes another one for each example of a batch.

    The function is traced once, for one example. Each op becomes one on the whole batch, by the
    rules of `weft.batching`; what depends on no batched argument is computed once.

    Parameters
    ----------
    function
        A function of trees of arrays.
    in_axes
        The position of the batch axis in the leaves of the arguments: an integer or None, for
        arguments that are the same in all examples; or a tuple with one for each argument, each of
        which may be a tree of them. Arguments by keyword have it at 0.
    out_axes
        The position of the batch axis in the results, likewise.

    Returns
    -------
    Callable
        A function of the whole batch.

    Raises
    ------
    ArgumentError
        If no argument has a batch axis, or `in_axes` or `out_axes` do not fit.
    AxesError
        If the lengths of the batch axes differ.
    BatchingError
        For an op that has no rule; it is a ValueError.

    Examples
    --------
    >>> weft.vmap(lambda w, x: w @ x, in_axes=(None, 0))(np.eye(2), np.ones((3, 2))).shape
    (3, 2)
    >>> weft.vmap(weft.grad(lambda x: x**3))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    what = f"vmap of {name_of(function)}"

    def of_batch(*args: Any, **options: Any) -> Any:
        leaves, structure = trees.flatten((args, options))
        paths = trees.paths_of_call(structure)
        axes = [
            *_axes_of(f"{what}: in_axes", in_axes, args),
            *[0] * len(trees.flatten(options)[0]),
        ]
        given = list(map(op_of, leaves, (f"{what}: {path}" for path in paths)))
        examples, inputs, size = _examples(what, given, axes, paths)
        batched_paths = [path for path, axis in zip(paths, axes, strict=True) if axis is not None]
        open_arguments(inputs, name_of(function), batched_paths)
        args, options = trees.unflatten(structure, examples)
        with scope.captured_ops() as built:
            try:
                result = function(*args, **options)
            finally:
                close_arguments(inputs)
        outputs, returned = trees.flatten(result)
        names = trees.paths(returned, "result")
        ops = [op_of(leaf, f"{what}: {name}") for leaf, name in zip(outputs, names, strict=True)]
        effects = effects_among(built)
        found = batched([*ops, *effects], inputs, size)
        scope.record(each.op for each in found[len(ops) :] if not each.is_batched)
        places = _axes_of(f"{what}: out_axes", out_axes, result)
        return trees.unflatten(
            returned,
            [
                _result(what, name, each, place, size)
                for name, each, place in zip(names, found, places, strict=False)
            ],
        )

    return running_arrays(of_batch, function, "vmap")


def _examples(
    what: str, given: Sequence[TensorOp], axes: Sequence[int | None], paths: Sequence[str]
) -> tuple[list[TensorOp], dict[TensorOp, TensorOp], Any]:
    """Return the arguments of one example, what they are for the batch, and its size."""
    examples: list[TensorOp] = []
    inputs: dict[TensorOp, TensorOp] = {}
    size: Any = None
    first = ""
    for op, axis, path in zip(given, axes, paths, strict=True):
        if axis is None:
            examples.append(op)
            continue
        if not -op.rank <= axis < op.rank:
            problem = f"has {op.axes}, and no axis {axis} of examples"
            raise AxesError(f"{what}: {path} {problem}: in_axes= is None for what all share")
        whole = moved(op, axis % op.rank, 0)
        length = whole.axes[0].length
        if size is not None and length != size:
            problem = f"has {length} examples along axis {axis}, but {first} has {size}"
            raise AxesError(f"{what}: {path} {problem}")
        size, first = length, first or path
        example = placeholder(Axes(whole.axes[1:]), op.dtype, name=path)
        inputs[example] = whole
        examples.append(example)
    if size is None:
        raise ArgumentError(f"{what}: no argument has a batch axis: in_axes= names one")
    return examples, inputs, size


def _axes_of(what: str, axes: Any, tree: Any) -> list[int | None]:
    """Return the axis for each leaf of a tree, given for it or for a tree that it is in."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return [axes] * len(trees.flatten(tree)[0])
    given, below = trees.one_level(axes), trees.one_level(tree)
    if given is None or below is None or given.keys() != below.keys():
        shown = trees.shown(trees.flatten(tree)[1])
        way = "give an integer or None for each part, or one for all"
        raise ArgumentError(f"{what} has {axes!r:.80} for {shown:.80}: {way}")
    return [found for key, part in below.items() for found in _axes_of(what, given[key], part)]


def _result(what: str, name: str, found: Batched, place: int | None, size: Any) -> TensorOp:
    """Return a result with the batch axis at a position, or without one."""
    if place is None:
        if found.is_batched:
            problem = "depends on a batched argument, and out_axes is None for it: give 0"
            raise ArgumentError(f"{what}: {name} {problem}")
        return found.op  # type: ignore[no-any-return]  # of a tensor, a tensor
    op = _repeated(found, size)
    if not -op.rank <= place < op.rank:
        raise AxesError(f"{what}: {name} has {op.axes}, and no axis {place} for the batch")
    return moved(op, 0, place % op.rank)


def jacobian(
    function: Function, argnums: Numbers = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """Return a function for the derivative of each element of a value by each of an argument.

    There is a reverse walk for a batch of all elements of a leaf of the value; or, where the
    arguments have fewer elements, one forward along these.

    Of a complex w by a real x the derivative is ∂w/∂x. Of a real u by a complex z = x + iy it is
    ∂u/∂x - i ∂u/∂y, as for `grad`. Of a complex w by a complex z it is dw/dz, which only a
    holomorphic function has: `holomorphic` says that it is one.

    Parameters
    ----------
    function
        A function of trees of arrays that returns a tree of floats.
    argnums
        The argument that is differentiated, by position, or a sequence of them. Its leaves are
        floats.
    has_aux
        Whether the function returns a pair of the value and anything else, which is returned too.
    holomorphic
        Whether each complex leaf of the value is a holomorphic function of the complex leaves of
        the arguments. For a function that is not, dw/dz is undefined, and the result is not
        specified.

    Returns
    -------
    Callable
        A function whose result has the structure of the value, and in the place of each leaf the
        structure of the argument, or a tuple of these where `argnums` is a sequence. Its leaves
        have the axes of the value's leaf, then those of the argument's, without names, and the
        promoted dtype of both. With `has_aux` it is in a pair with what the function returned
        besides.

    Raises
    ------
    ArgumentError
        At the call, for an argument that does not exist or is named twice.
    GradientError
        At the call, for a leaf that is not a float, an op without a gradient on the way, or complex
        values of complex arguments without `holomorphic`.
    BatchingError
        At the call, for an op that has no rule for a batch.

    Examples
    --------
    >>> weft.jacobian(lambda x: x * x)(np.array([1.0, 3.0]))
    array([[2., 0.],
           [0., 6.]])
    >>> weft.jacobian(lambda z: z * z, holomorphic=True)(1 + 2j)
    array(2.+4.j, dtype=complex64)
    """
    checked_function("jacobian", function, argnums)

    def derivative(*args: Any, **options: Any) -> Any:
        chosen = chosen_arguments(f"jacobian of {name_of(function)}", argnums, len(args))
        point = Point.of("jacobian", function, args, options, chosen, has_aux)
        rows = _rows(point, holomorphic)
        structure = point.arguments
        parts = [trees.unflatten(structure, row) for row in rows]
        if isinstance(argnums, int):
            parts = [part[0] for part in parts]
        found = trees.unflatten(point.structure, parts)
        return (found, point.aux) if has_aux else found

    return running_arrays(derivative, function, "jacobian")


def hessian(function: Function, argnums: Numbers = 0, has_aux: bool = False) -> Function:
    """Return a function for the second derivatives of a scalar function.

    It is the `jacobian` of `grad`. Complex arguments are refused, since the gradient by them is not
    holomorphic: take their real and imaginary parts as arguments.

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
        A function whose result has the structure of the argument, and in the place of each leaf
        that structure again. Its leaves have the axes of both leaves, without names. With `has_aux`
        it is in a pair with what the function returned besides.

    Raises
    ------
    ArgumentError, GradientError, BatchingError
        At the call, as for `grad` and `jacobian`.

    Examples
    --------
    >>> weft.hessian(lambda x: x[0] ** 2 * x[1])(np.array([3.0, 2.0]))
    array([[4., 6.],
           [6., 0.]])
    """
    return jacobian(grad(function, argnums, has_aux), argnums, has_aux)


def _rows(point: Point, holomorphic: bool) -> list[list[TensorOp]]:
    """Return for each leaf of a value its derivatives by each leaf of the arguments."""
    of_complex = any(_is_complex(x) for x in point.inputs)
    for output in point.outputs:
        problem = ""
        if not dtypes.is_inexact(output.dtype):
            problem = f"a result is {output.dtype}, and only floats have derivatives"
            way = "return it by has_aux=True"
        elif of_complex and _is_complex(output) and not holomorphic:
            problem = "a result and an argument are complex, and not every function has dw/dz"
            way = "give holomorphic=True if this one does, else take real and imaginary parts"
        if problem:
            raise GradientError(output.explain(f"{point.what}: {problem}: {way}"))
    sizes = [
        sum(op.size for op in each) if all(op.axes.is_static for op in each) else 0
        for each in (point.outputs, point.inputs)
    ]
    is_smaller = 0 < sizes[1] < sizes[0]
    # An adjoint is real where the argument is, a tangent where the value is: parts would be lost.
    is_forward = [
        [y if y != x else is_smaller for x in map(_is_complex, point.inputs)]
        for y in map(_is_complex, point.outputs)
    ]
    columns = [
        _along(point, x) if any(row[place] for row in is_forward) else []
        for place, x in enumerate(point.inputs)
    ]
    rows = [
        [] if all(row) else _back_from(point, output)
        for output, row in zip(point.outputs, is_forward, strict=True)
    ]
    return [
        [columns[n][m] if forward else rows[m][n] for n, forward in enumerate(row)]
        for m, row in enumerate(is_forward)
    ]


def _is_complex(op: TensorOp) -> bool:
    return bool(op.dtype.kind == "c")


def _back_from(point: Point, output: TensorOp) -> list[TensorOp]:
    """Return the derivatives of one output: adjoints of the inputs for a batch of unit vectors."""
    adjoint = placeholder(output.axes, output.dtype, name="adjoint")
    found = vector_jacobian([output], [adjoint], point.inputs)
    return [
        _element(_repeated(each, output.size), output, x)
        for each, x in zip(_for_units(found, adjoint), point.inputs, strict=True)
    ]


def _along(point: Point, x: TensorOp) -> list[TensorOp]:
    """Return the derivatives by one input: tangents of the outputs for a batch of unit vectors."""
    tangent = placeholder(x.axes, x.dtype, name="tangent")
    found = _for_units(jacobian_vector(point.outputs, [x], [tangent]), tangent)
    return [
        _element(moved(_flat(_repeated(each, x.size), x.size), 0, 1), output, x)
        for each, output in zip(found, point.outputs, strict=True)
    ]


def _for_units(outputs: Sequence[TensorOp], example: TensorOp) -> list[Batched]:
    """Return ops for all unit vectors in the place of one that they depend on."""
    size = example.size
    units = cast(eye(size), example.dtype)
    axes = _batch(size).before(example.axes)
    return batched(outputs, {example: cast_axes(units, axes)}, size)


def _repeated(found: Batched, size: Any) -> TensorOp:
    """Return a tensor with the batch axis, repeated along it if it depends on no batched one."""
    op: Any = found.op
    return op if found.is_batched else _batch(size).repeated(op)


def _batch(size: Any) -> Batch:
    return Batch(size, str(make_axis(size).name))


def _flat(x: TensorOp, size: Any) -> TensorOp:
    return reshape(cast_axes(x, x.axes.lengths), (size, -1))


def _element(x: TensorOp, output: TensorOp, argument: TensorOp) -> TensorOp:
    """Return derivatives with the axes of both, without names, and the promoted dtype."""
    dtype = dtypes.promote(output.dtype, argument.dtype)
    return cast(cast_axes(x, (*output.axes.lengths, *argument.axes.lengths)), dtype)
