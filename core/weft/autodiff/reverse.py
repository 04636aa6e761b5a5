"""Reverse-mode differentiation: builds gradients as ops from the ops' adjoint rules.

Given an adjoint of ``y``, the walk visits the ops from y backwards. Each op's rule turns the
adjoint of its result into contributions to the adjoints of its operands, which are summed. (Reverse
accumulation; Griewank and Walther, Evaluating Derivatives, chapter 3.) Rules run with the reads of
the forward op pinned, so that a gradient reads the same version of a state as the forward op.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from weft import ops
from weft.errors import ArgumentError, AxesError, GradientError
from weft.ir import dtypes, scope, upcalls
from weft.ir.dtypes import accumulator_dtype
from weft.ir.op import Op
from weft.ir.results import ResultOp, TupleOp
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorOp
from weft.ir.traversal import operands, postorder
from weft.support import source
from weft.support.gc_pause import gc_paused


class Missing:
    """Marks an adjoint that does not exist, because an op on the path has no rule.

    Attributes
    ----------
    op, path
        The op without a rule, and the ops from it back to the operand.
    problem
        The error text about that op.
    """

    def __init__(self, op: Op, path: tuple[Op, ...], problem: str = "has no gradient") -> None:
        self.op = op
        self.path = path
        self.problem = problem

    def through(self, op: Op) -> Missing:
        """Return the mark with an op added to the path."""
        return Missing(self.op, (*self.path, op), self.problem)


def deriv(y: TensorOp, x: TensorOp, error: TensorOp | None = None) -> TensorOp:
    """Return an op for the derivative of `y` with respect to `x`.

    The derivative with respect to a state is for the value that the ops between them read.

    Parameters
    ----------
    y
        The tensor that is differentiated; a scalar unless `error` is given.
    x
        The tensor that it is differentiated by.
    error
        The adjoint of y, with its axes in any order; by default 1.

    Returns
    -------
    TensorOp
        A tensor with the axes and dtype of x; zero if y does not depend on x.

    Raises
    ------
    GradientError
        If y is not a scalar and has no adjoint, a dtype is not a float, or an op on the way has no
        gradient; it is a ValueError.
    AxesError
        If the adjoint has other axes.
    ArgumentError
        If y or x is not a tensor op.

    Examples
    --------
    >>> x = weft.placeholder((2,), "float64")
    >>> slope = weft.deriv(weft.sum(x**3), x)
    >>> weft.make_transformer().computation(slope, x)([1.0, 2.0])
    array([ 3., 12.])
    """
    _check(y, x)
    error = None if error is None else as_op(error, y.dtype if _is_number(error) else None)
    if error is None and y.axes:
        raise GradientError(
            y.explain(f"deriv needs a scalar, but this has {y.axes}: sum it, or give error=")
        )
    if error is not None and not y.axes.agrees_with(error.axes):
        raise AxesError(y.explain(f"error has {error.axes}, but must have the axes {y.axes}"))
    return _adjoint_of(x, [y], _adjoints(y, error))


def _adjoint_of(x: TensorOp, ys: Iterable[TensorOp], adjoints: Mapping[Op, Any]) -> TensorOp:
    """Return the adjoint of `x`, zeros where no y depends on it; raises where it is not known."""
    for y in ys:
        _check_not_recomputed(y, x)
        if x not in adjoints:
            _check_not_bypassed(y, x, adjoints)
    found = adjoints.get(x)
    if isinstance(found, Missing):
        path = " <- ".join(f"{op}" for op in found.path[-8:])
        way = "give the class a generate_adjoints, or a rule by gradient_of"
        if isinstance(found.op, ops.WhileOp):
            way = "take scan or fori_loop with a known number of iterations"
        problem = f"has no gradient, and {x} is reached through it ({path})"
        raise GradientError(
            found.op.explain(f"{problem}: {way}, or cut the path with stop_gradient")
        )
    return ops.zeros_like(x) if found is None else found


def vector_jacobian(
    ys: Sequence[TensorOp], errors: Sequence[TensorOp], xs: Sequence[TensorOp]
) -> list[TensorOp]:
    """Return the product of adjoints with the Jacobian of several values, for each of `xs`.

    `errors` are the adjoints of `ys`, with their axes and dtypes. It is the sum over the ys of what
    `deriv` returns, in one reverse walk, and raises the same errors.
    """
    seeds: dict[Op, Any] = {}
    for y, error in zip(ys, errors, strict=True):
        if dtypes.is_inexact(y.dtype):
            seeds[y] = _collected(y, y, seeds.get(y), error)
    with scope.located(source.user_location()), gc_paused():
        adjoints = walk_back(postorder([*seeds], operands), seeds, ())
    return [_adjoint_of(x, ys, adjoints) for x in xs]


def jacobian_vector(
    ys: Sequence[TensorOp], xs: Sequence[TensorOp], tangents: Sequence[TensorOp]
) -> list[TensorOp]:
    """Return the product of the Jacobian of several values with tangents, for each of `ys`.

    `tangents` are those of `xs`, with their axes and dtypes. It takes two reverse walks and needs
    no forward rules: the vector-Jacobian product is linear in the adjoints of the ys, and its
    derivative by these is the Jacobian-vector product (J. Townsend, 2017). The result is zero where
    a value is not a float.
    """
    # The value of these is irrelevant: the result does not depend on it.
    errors = [ops.IdentityOp(ops.zeros_like(y)) for y in ys]
    found = vector_jacobian(vector_jacobian(ys, errors, xs), tangents, errors)
    return [
        tangent if dtypes.is_inexact(y.dtype) else ops.zeros_like(y)
        for y, tangent in zip(ys, found, strict=True)
    ]


def jvp(y: TensorOp, x: TensorOp, tangent: TensorOp) -> TensorOp:
    """Return an op for the directional derivative of `y` as `x` changes along `tangent`.

    The result has the axes and dtype of `y`; `tangent` has the axes of `x`. Raises the errors of
    `deriv`.
    """
    _check(y, x)
    tangent = as_op(tangent, x.dtype if _is_number(tangent) else None)
    if not x.axes.agrees_with(tangent.axes):
        raise AxesError(x.explain(f"tangent has {tangent.axes}, but must have the axes {x.axes}"))
    return jacobian_vector([y], [x], [_laid_out(tangent, x)])[0]


def _laid_out(error: TensorOp, y: TensorOp) -> TensorOp:
    """Return an adjoint or a tangent of `y` with the order of its axes and its dtype."""
    return ops.cast(ops.transpose(error, y.axes) if y.axes.is_named else error, y.dtype)


Rule = Callable[..., Iterable[Any]]
_rules: dict[type[Op], Rule] = {}


def gradient_of(kind: type[Op]) -> Callable[[Rule], Rule]:
    """Register a function as the gradient rule of an op class, overriding its own.

    The function is called as ``rule(op, delta, *args)`` and returns the same as
    `Op.generate_adjoints`: for each operand an op with the contribution of the adjoint `delta`, or
    None. The rule is global and covers subclasses without their own gradient, so it is meant for
    new op classes and for those without a gradient. To override the gradient of a single expression
    write ``x + stop_gradient(f(x) - x)``, which has the value of f and the gradient of x. Raises
    ArgumentError for anything but an op class, and for a second rule.

    Examples
    --------
    >>> class TwiceOp(weft.CompositeOp):
    ...     def infer(self):
    ...         return self.args[0].axes, self.args[0].dtype
    ...
    ...     def decompose(self, x):
    ...         return x + x
    >>> @weft.gradient_of(TwiceOp)
    ... def rule(op, delta, x):
    ...     return [delta * 2]
    >>> x = weft.placeholder((), "float64")
    >>> weft.make_transformer().computation(weft.deriv(TwiceOp(x), x), x)(3.0)
    array(2.)
    """
    if not (isinstance(kind, type) and issubclass(kind, Op)):
        raise ArgumentError(f"gradient_of takes an op class, not {kind!r}")

    def mark(rule: Rule) -> Rule:
        if _rules.setdefault(kind, rule) is not rule:
            raise ArgumentError(f"{kind.__name__} has a rule of gradient_of already")
        return rule

    return mark


def _rule_of(kind: type[Op]) -> Rule | None:
    """Return the rule of the nearest base class, unless a nearer one has a method for it."""
    for base in kind.__mro__:
        if base in _rules:
            return _rules[base]
        if "generate_adjoints" in vars(base) or "partials" in vars(base):
            return None
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float | complex)


def _check(y: object, x: object) -> None:
    for what, op in (("of", y), ("with respect to", x)):
        if not isinstance(op, TensorOp):
            raise ArgumentError(f"deriv takes tensor ops, cannot differentiate {what} {op!r}")
        if not dtypes.is_inexact(op.dtype):
            raise GradientError(op.explain(f"a derivative {what} {op.dtype} values does not exist"))


def _check_not_recomputed(y: TensorOp, x: TensorOp) -> None:
    """Refuse a derivative by a value inside of a checkpoint, whose gradient is that of a copy."""

    def recomputed() -> dict[Op, Op]:
        found: dict[Op, Op] = {}
        for op in postorder([y], operands):
            if isinstance(op.meaning, ops.CheckpointOp):
                inner, *starts = op.meaning.args
                reached = _order_to(inner, frozenset(starts))
                found |= dict.fromkeys(set(reached).difference(starts), op)
        return found

    checkpoint = y.memo("recomputed", recomputed).get(x)
    if checkpoint is not None:
        problem = f"is computed inside of the checkpoint {checkpoint} ({checkpoint.file_info})"
        raise GradientError(x.explain(f"{problem}: make it one of its inputs"))


def _check_not_bypassed(y: TensorOp, x: TensorOp, adjoints: Mapping[Op, Any]) -> None:
    """Refuse a derivative by probabilities that a loss bypassed by reading their logits."""
    kinds = getattr(x.meaning, "bypassed_by", ())
    if not kinds or x.meaning.args[0] not in adjoints:
        return
    logits = x.meaning.args[0]
    for op in postorder([y], operands):
        if isinstance(op.meaning, kinds) and op.meaning.args[0] is logits:
            raise GradientError(
                x.explain(
                    f"{op} was computed from the logits {logits}, not from it: differentiate "
                    "with respect to the logits"
                )
            )


def _adjoints(y: TensorOp, error: TensorOp | None) -> dict[Op, Any]:
    """Return the adjoints of everything that y depends on, cached for each error."""
    cache: dict[Any, dict[Op, Any]] = y.memo("adjoints", dict)
    found = cache.get(error)
    if found is None:
        with scope.located(source.user_location()):
            seed = constant(1, dtype=y.dtype) if error is None else _laid_out(error, y)
            with gc_paused():
                found = cache[error] = reverse_walk(y, seed)
    return found


def reverse_walk(y: Op, delta: TensorOp, stops: Iterable[Op] = ()) -> dict[Op, Any]:
    """Return the adjoint of every op that `y` depends on, without going past `stops`."""
    ends = frozenset(stops)
    return walk_back(_order_to(y, ends), {y: delta}, ends)


def _order_to(y: Op, ends: Collection[Op]) -> list[Op]:
    """Return what `y` depends on in order, without going past `ends`."""
    return postorder([y], lambda op: () if op in ends else operands(op))


def walk_back(order: Sequence[Op], adjoints: dict[Op, Any], ends: Collection[Op]) -> dict[Op, Any]:
    """Propagate adjoints to all ops of a postorder, without going past `ends`.

    `order` has each op after its operands. The adjoint of an op with several results is a mapping
    from the index of the result, or the key of the saved value. Contributions to an adjoint are
    listed until its op is reached, and summed there.
    """
    for op in reversed(order):
        adjoint = adjoints.get(op)
        if adjoint is None:
            continue
        with scope.differentiating(op):
            if isinstance(adjoint, list):
                adjoint = adjoints[op] = total(adjoint)
            meaning = op.meaning
            if op in ends or not meaning.args:
                continue
            key = _result_key(op)
            if key is not None:
                _add_to_results(op, adjoints, key, adjoint)
                continue
            contributions = _contributions(op, meaning, adjoint)
            for arg, contribution in zip(meaning.args, contributions, strict=True):
                if contribution is not None and arg.is_tensor and dtypes.is_inexact(arg.dtype):
                    adjoints[arg] = _collected(op, arg, adjoints.get(arg), contribution)
    return adjoints


def _result_key(op: Op) -> Any:
    """Return the key of one of several results, or of a saved value; None for any other op."""
    if isinstance(op, ResultOp):
        return op.index
    return getattr(op, "key", None) if op.args and isinstance(op.args[0], TupleOp) else None


def _add_to_results(op: Op, adjoints: dict[Op, Any], key: Any, adjoint: Any) -> None:
    made = op.args[0]
    found = adjoints.setdefault(made, {})
    if isinstance(found, Missing) or isinstance(adjoint, Missing):
        adjoints[made] = found if isinstance(found, Missing) else adjoint
    else:
        found[key] = total([found[key], adjoint]) if key in found else adjoint


def _contributions(op: Op, meaning: Op, adjoint: Any) -> list[Any]:
    if isinstance(adjoint, Missing):
        return [adjoint.through(op)] * len(meaning.args)
    rule = _rule_of(type(meaning))
    try:
        if rule is not None:
            return list(rule(meaning, adjoint, *meaning.args))
        return list(meaning.generate_adjoints(adjoint, *meaning.args))
    except NotImplementedError:
        return [Missing(op, (op,))] * len(meaning.args)


def _collected(op: Op, arg: Op, found: Any, delta: Any) -> Any:
    """Return an adjoint, or the list of its contributions, with one contribution more."""
    if isinstance(found, Missing) or isinstance(delta, Missing):
        return found if isinstance(found, Missing) else delta
    if not isinstance(delta, TensorOp) or delta.dtype != arg.dtype:
        delta = ops.cast(delta, arg.dtype)
    if not delta.axes and arg.axes:
        delta = ops.broadcast(delta, arg.axes)
    if delta.axes != arg.axes:
        raise GradientError(
            op.explain(f"generate_adjoints returned {delta.axes} for an operand with {arg.axes}")
        )
    if found is None:
        return delta
    return [*found, delta] if isinstance(found, list) else [found, delta]


def total(contributions: Sequence[Any]) -> Any:
    """Return the sum of contributions to an adjoint; `Missing` if one is.

    More than two of 16 bits are summed in float32, which two need not be to be rounded once.
    """
    missing = next((each for each in contributions if isinstance(each, Missing)), None)
    if missing is not None or len(contributions) == 1:
        return contributions[0] if missing is None else missing
    dtype = contributions[0].dtype
    wide = accumulator_dtype(dtype) if len(contributions) > 2 else dtype
    return ops.cast(reduce(ops.add, (ops.cast(each, wide) for each in contributions)), dtype)


@upcalls.adjoints_through.provide
def adjoints_through(y: TensorOp, delta: TensorOp, args: Iterable[Op]) -> list[Any]:
    """Return the adjoints of `args`, by differentiating the ops between them and `y`."""
    wanted = list(args)
    adjoints = reverse_walk(y, delta, wanted)
    for arg in wanted:
        if isinstance(adjoints.get(arg), Missing):
            raise NotImplementedError
    return [adjoints.get(arg) for arg in wanted]
