"""Ops that update a tensor in place, most of them a variable."""

from __future__ import annotations

from typing import Any

import weft
from weft import TensorOp
from weft_popxl import dtypes
from weft_popxl.arguments import real
from weft_popxl.building import apply, change
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception
from weft_popxl.ops.elementwise import add_
from weft_popxl.tensor import Tensor

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
    "copy_var_update_",
]


def _updated(kind: str, function: Any, t: Tensor, X: Any, *factors: Any) -> Tensor:  # noqa: N803
    t = as_tensor(t)
    new = as_tensor(X, t)
    if new.shape != t.shape:
        raise popart_exception(f"{kind} takes an update of the shape of {t!r}, not {new!r}")
    scales = [as_tensor(factor, dtypes.float32) for factor in factors]
    return change(kind, function, t, new, *scales)


def accumulate_(t: Tensor, X: Tensor, f: Any = None) -> Tensor:  # noqa: N803
    """Add f X to t in place; f is a number or a scalar, 1 if it is None."""
    return _updated("accumulate_", lambda t, x, f: t + f * x, t, X, 1.0 if f is None else f)


def accumulate_square_(t: Tensor, X: Tensor, f: Any = 1.0) -> Tensor:  # noqa: N803
    """Add f X² to t in place."""
    return _updated("accumulate_square_", lambda t, x, f: t + f * weft.square(x), t, X, f)


def accumulate_mean_(t: Tensor, X: Tensor, step: Any) -> Tensor:  # noqa: N803
    """Take X into the mean t of `step` tensors: set t to (step t + X) / (step + 1)."""

    def function(t: TensorOp, x: TensorOp, step: TensorOp) -> Any:
        count = weft.cast(step, t.dtype)
        return t * (count / (count + 1)) + x / (count + 1)

    return _updated("accumulate_mean_", function, t, X, step)


def accumulate_moving_average_(t: Tensor, X: Tensor, f: Any) -> Tensor:  # noqa: N803
    """Set t to f t + (1 - f) X."""
    return _updated("accumulate_moving_average_", lambda t, x, f: f * t + (1 - f) * x, t, X, f)


def accumulate_moving_average_square_(t: Tensor, X: Tensor, f: Any) -> Tensor:  # noqa: N803
    """Set t to f t + (1 - f) X²."""
    return _updated(
        "accumulate_moving_average_square_",
        lambda t, x, f: f * t + (1 - f) * weft.square(x),
        t,
        X,
        f,
    )


def accumulator_scale_(t: Tensor, f: Any) -> Tensor:
    """Multiply t by f in place, a number or a scalar."""
    return change(
        "accumulator_scale_", lambda t, f: t * f, as_tensor(t), as_tensor(f, dtypes.float32)
    )


def accumulator_zero_(t: Tensor) -> Tensor:
    """Set t to zeros."""
    return change("accumulator_zero_", weft.zeros_like, as_tensor(t))


def copy_var_update_(t: Tensor, X: Tensor) -> Tensor:  # noqa: N803
    """Set t to X."""
    return _updated("copy_var_update_", lambda _, x: x, t, X)


def adam_updater(
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

    It is ``m / (sqrt(v) + epsilon)``, with `weight_decay` plus that times the weight. With a
    `time_step`, which is increased by 1 in place, m and v are first divided by ``1 - beta1**t`` and
    ``1 - beta2**t``.
    """
    first = as_tensor(acc_first_order)
    if time_step is not None and (beta1 is None or beta2 is None):
        raise popart_exception("adam_updater needs beta1 and beta2 to correct for the time step")
    if weight_decay is not None and weight is None:
        raise popart_exception("adam_updater needs the weight for its decay")
    number = add_(time_step, 1) if time_step is not None else as_tensor(1.0)
    scales = [as_tensor(0.0 if each is None else each, dtypes.float32) for each in (beta1, beta2)]
    decay = as_tensor(0.0 if weight_decay is None else weight_decay, dtypes.float32)

    def function(
        m: TensorOp, v: TensorOp, w: TensorOp, t: TensorOp, b1: TensorOp, b2: TensorOp, *rest: Any
    ) -> Any:
        shrink, small = rest
        if time_step is not None:
            power = weft.cast(t, weft.float32)
            m, v = m / (1 - b1**power), v / (1 - b2**power)
        step = m / (weft.sqrt(v) + small)
        return step if weight_decay is None else step + shrink * w

    made: Tensor = apply(
        "adam_updater",
        function,
        first,
        as_tensor(acc_second_order),
        first if weight is None else as_tensor(weight),
        number,
        *scales,
        decay,
        as_tensor(epsilon, dtypes.float32),
    )
    return made


def adam_var_update(
    t: Tensor,
    X: Tensor,  # noqa: N803
    r1: Tensor,
    r2: Tensor,
    learning_rate: float | Tensor = 1.0,
    max_weight_norm: float | None = None,
) -> Tensor:
    """Take ``learning_rate * sqrt(r1 / r2) * X`` from t in place, the step of LAMB.

    r1 and r2 are the sums of squares of the weight and of the step (You et al., 2019); where one is
    0 the quotient is 1. `max_weight_norm` limits the root of r1.
    """
    limit = max_weight_norm
    if limit is not None:
        limit = real("adam_var_update: max_weight_norm", limit)

    def function(t: TensorOp, x: TensorOp, one: TensorOp, two: TensorOp, lr: TensorOp) -> Any:
        norm = weft.sqrt(one)
        if limit is not None:
            norm = weft.minimum(norm, limit)
        other = weft.sqrt(two)
        known = (norm > 0) & (other > 0)
        divisor = weft.where(known, other, weft.ones_like(other))
        return t - lr * weft.where(known, norm / divisor, weft.ones_like(norm)) * x

    return _updated("adam_var_update", function, t, X, r1, r2, learning_rate)
