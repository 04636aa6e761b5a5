"""In-place updates of tensors, usually of variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft import TensorOp
from weft_popxl import dtypes
from weft_popxl.building import apply, change
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.ops.elementwise import add_
from weft_popxl.ops.families import named, unary
from weft_popxl.program import Tensor
from weft_popxl.tensor_arguments import axis_of

__all__ = [
    "accumulate_",
    "accumulate_mean_",
    "accumulate_moving_average_",
    "accumulate_moving_average_square_",
    "accumulate_square_",
    "accumulator_scale_",
    "accumulator_zero_",
    "adam_updater",
    "adam_var_update",
    "adamax_updater",
    "copy_var_update_",
    "lamb_updater",
    "sparse_accumulate_",
]


def _updated(kind: str, function: Any, t: Tensor, X: Any, *factors: Any) -> Tensor:  # noqa: N803
    t = as_tensor(t)
    new = as_tensor(X, t)
    if new.shape != t.shape:
        raise popart_exception(f"{kind} takes an update of the shape of {t!r}, not {new!r}")
    return change(kind, function, t, new, *(_factor(factor, t) for factor in factors))


def _factor(factor: Any, t: Tensor) -> Tensor:
    """Return a factor as a tensor; for an integer tensor it must be an integer."""
    return as_tensor(factor, dtypes.float32 if t.dtype.is_float else t.dtype)


def accumulate_(t: Tensor, X: Tensor, f: Any = None) -> Tensor:  # noqa: N803
    """Add f X to t in place; f is a number or a scalar, 1 for None."""
    return _updated("accumulate_", lambda t, x, f: t + f * x, t, X, 1.0 if f is None else f)


def accumulate_square_(t: Tensor, X: Tensor, f: Any = 1.0) -> Tensor:  # noqa: N803
    """Add f X² to t in place."""
    return _updated("accumulate_square_", lambda t, x, f: t + f * weft.square(x), t, X, f)


def accumulate_mean_(t: Tensor, X: Tensor, step: Any) -> Tensor:  # noqa: N803
    """Update the mean t of `step` tensors by X: set t to (step t + X) / (step + 1)."""
    t = as_tensor(t)
    if not t.dtype.is_float:
        raise popart_exception(f"accumulate_mean_ takes floats, not {t!r}: ops.cast it")

    def function(t: TensorOp, x: TensorOp, step: TensorOp) -> Any:
        count = weft.cast(step, t.dtype)
        return t * (count / (count + 1)) + x / (count + 1)

    return _updated("accumulate_mean_", function, t, X, step)


def accumulate_moving_average_(t: Tensor, X: Tensor, f: Any) -> Tensor:  # noqa: N803
    """Set t to f t + (1 - f) X."""
    return _updated("accumulate_moving_average_", lambda t, x, f: f * t + (1 - f) * x, t, X, f)


def accumulate_moving_average_square_(t: Tensor, X: Tensor, f: Any) -> Tensor:  # noqa: N803
    """Set t to f t + (1 - f) X²."""
    kind = "accumulate_moving_average_square_"
    return _updated(kind, lambda t, x, f: f * t + (1 - f) * weft.square(x), t, X, f)


def accumulator_scale_(t: Tensor, f: Any) -> Tensor:
    """Multiply t by a number or a scalar f in place."""
    t = as_tensor(t)
    return change("accumulator_scale_", lambda t, f: t * f, t, _factor(f, t))


accumulator_zero_ = unary("accumulator_zero_", weft.zeros_like, "Set t to zeros.")


def copy_var_update_(t: Tensor, X: Tensor) -> Tensor:  # noqa: N803
    """Set t to X."""
    return _updated("copy_var_update_", lambda _, x: x, t, X)


def sparse_accumulate_(
    t: Tensor,
    X: Tensor,  # noqa: N803
    indices: Tensor,
    axis: int = 0,
    f: Any = None,
    W: Tensor | None = None,  # noqa: N803
) -> Tensor:
    """Add f X in place to the slices of t at indices along an axis; repeated indices accumulate.

    X has the shape of `ops.gather` of t at the indices, and f is a number or a scalar, 1 for None.
    W has no effect.
    """
    kind = "sparse_accumulate_"
    t, new = as_tensor(t), as_tensor(X, as_tensor(t))
    where = as_tensor(indices, dtypes.int32)
    place = axis_of(kind, t, axis)
    shape = (*t.shape[:place], *where.shape, *t.shape[place + 1 :])
    if not where.dtype.is_int or new.shape != shape:
        raise popart_exception(
            f"{kind} takes an update of shape {shape} for {where!r} along axis {place} of {t!r}, "
            f"not {new!r}"
        )

    def function(t: TensorOp, x: TensorOp, index: TensorOp, f: TensorOp) -> Any:
        return weft.scatter(t, index, f * x, axis=place, reduction="add")

    return change(kind, function, t, new, where, _factor(1.0 if f is None else f, t))


def _adam_updater(
    kind: str,
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: float | Tensor | None = None,
    beta1: float | Tensor | None = None,
    beta2: float | Tensor | None = None,
    epsilon: float | Tensor = 1e-7,
) -> Tensor:
    """Return the step of Adam (Kingma and Ba, 2014) from its moving averages m and v.

    It is ``m / (sqrt(v) + epsilon)``, plus `weight_decay` times the weight. With a `time_step`,
    which is increased by 1 in place, m and v are first divided by ``1 - beta1**t`` and ``1 -
    beta2**t``. Raises ValueError for a decay without a weight, and for a time step without both
    betas.
    """
    return _step(
        kind, weft.sqrt, acc_first_order, acc_second_order, weight, time_step,
        weight_decay, (beta1, beta2), epsilon,
    )  # fmt: skip


adam_updater = named(_adam_updater, "adam_updater")
lamb_updater = named(
    _adam_updater,
    "lamb_updater",
    "Return the step of LAMB (You et al., 2019) before scaling, which equals `adam_updater`.\n\n"
    "`adam_var_update` scales it by the norms of weight and step.",
)


def adamax_updater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: float | Tensor | None = None,
    beta1: float | Tensor = 0.9,
    epsilon: float | Tensor = 1e-7,
) -> Tensor:
    """Return the step of Adamax (Kingma and Ba, 2014) from a moving average m and a norm v.

    It is ``m / (1 - beta1**t) / (v + epsilon)``, plus `weight_decay` times the weight. The time
    step t is increased by 1 in place. Raises ValueError without it, and for a decay without a
    weight.
    """
    if time_step is None:
        refuse_value("adamax_updater needs the time step")
    return _step(
        "adamax_updater", lambda v: v, acc_first_order, acc_second_order, weight, time_step,
        weight_decay, (beta1,), epsilon,
    )  # fmt: skip


def _step(
    kind: str,
    root: Callable[[TensorOp], TensorOp],
    m: Tensor,
    v: Tensor,
    weight: Tensor | None,
    time_step: Tensor | None,
    weight_decay: Any,
    betas: Sequence[Any],
    epsilon: Any,
) -> Tensor:
    """Return m / (root(v) + epsilon) + weight_decay * weight.

    With a time step t, m and v are first divided by 1 - beta**t for the given betas.
    """
    is_zero = isinstance(weight_decay, int | float) and weight_decay == 0
    has_decay = weight_decay is not None and not is_zero
    if has_decay and weight is None:
        refuse_value(f"{kind} needs the weight for its decay")
    corrected = betas if time_step is not None else ()
    if any(beta is None for beta in corrected):
        refuse_value(f"{kind} needs beta1 and beta2 to correct for the time step")
    first = as_tensor(m)
    number = add_(time_step, 1) if time_step is not None else as_tensor(1.0)
    scales = [epsilon, weight_decay if has_decay else 0.0, *corrected]

    def function(m: TensorOp, v: TensorOp, w: TensorOp, t: TensorOp, *rest: TensorOp) -> Any:
        small, decay, *bases = rest
        averages: list[Any] = [m, v]
        for place, base in enumerate(bases):
            averages[place] /= 1 - base ** weft.cast(t, weft.float32)
        step = averages[0] / (root(averages[1]) + small)
        return step + decay * w if has_decay else step

    return apply(
        kind,
        function,
        first,
        as_tensor(v),
        first if weight is None else as_tensor(weight),
        number,
        *(as_tensor(scale, dtypes.float32) for scale in scales),
    )


def adam_var_update(
    t: Tensor,
    x: Tensor,
    r1: Tensor,
    r2: Tensor,
    learning_rate: float | Tensor | None = None,
    max_weight_norm: float | Tensor | None = None,
) -> Tensor:
    """Subtract ``learning_rate * sqrt(r1 / r2) * x`` from t in place, the step of LAMB.

    r1 and r2 are the sums of squares of the weight and of the step (You et al., 2019); if one is 0
    the quotient is 1. `learning_rate` is 1 for None; `max_weight_norm` limits the root of r1.
    """
    limit = np.inf if max_weight_norm is None else max_weight_norm
    rate = 1.0 if learning_rate is None else learning_rate

    def function(t: TensorOp, x: TensorOp, one: TensorOp, two: TensorOp, *rest: TensorOp) -> Any:
        lr, most = rest
        norm, other = weft.minimum(weft.sqrt(one), most), weft.sqrt(two)
        known = (norm > 0) & (other > 0)
        divisor = weft.where(known, other, weft.ones_like(other))
        return t - lr * weft.where(known, norm / divisor, weft.ones_like(norm)) * x

    return _updated("adam_var_update", function, t, x, r1, r2, rate, limit)
