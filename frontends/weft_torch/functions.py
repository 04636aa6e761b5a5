"""Computations of weft as functions of torch, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch

import weft
from weft.errors import ArgumentError
from weft.ir.dtypes import is_float
from weft.runtime.computation import Computation
from weft_torch.tensors import DTYPES, as_array, as_tensor, require_host

_numbers = count()


def function(computation: Computation) -> Callable[..., Any]:
    """Return a computation as a function of tensors; see `weft_torch.function`."""
    parameters, results = list(computation.parameters), list(computation.results)
    if not computation.is_static or not all(op.is_tensor for op in results):
        problem = f"{computation.name} has open lengths, or results that are not tensors"
        raise ArgumentError(
            f"{problem}: give the lengths by axes=, as transformer.computation does"
        )
    names = {name: dtype for dtype, name in DTYPES.items()}
    differentiable = [at for at, op in enumerate(parameters) if is_float(op.dtype)]
    usable = [at for at, op in enumerate(results) if is_float(op.dtype)]
    gradient: list[Computation] = []

    def gradient_of() -> Computation:
        if not gradient:
            errors = [weft.placeholder(results[at].axes, results[at].dtype) for at in usable]
            found = [_gradient(parameters[at], results, usable, errors) for at in differentiable]
            transformer: Any = computation.transformer
            gradient.append(transformer.computation(found, *parameters, *errors))
        return gradient[0]

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return _called(computation, inputs)

    def fake(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.empty(op.axes.lengths, dtype=names[op.dtype.name]) for op in results]

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[0])

    def backward(ctx: Any, errors: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        given = [*ctx.saved_tensors, *(errors[at] for at in usable)]
        found = iter(_gradients(given))
        return [next(found) if at in differentiable else None for at in range(len(parameters))]

    def run_gradient(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return _called(gradient_of(), inputs)

    def fake_gradient(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.empty_like(inputs[at]) for at in differentiable]

    title = f"weft::computation_{next(_numbers)}"
    op = _op(title, run, fake)
    _gradients = _op(f"{title}_gradient", run_gradient, fake_gradient)
    op.register_autograd(backward, setup_context=setup_context)

    def called(*tensors: torch.Tensor) -> Any:
        if len(tensors) != len(parameters):
            problem = f"takes {len(parameters)} tensors, not {len(tensors)}"
            raise ArgumentError(f"{computation.name} {problem}")
        found = op(list(tensors))
        return found[0] if len(results) == 1 else found

    return called


def _op(title: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    made = torch.library.custom_op(
        title, run, mutates_args=(), schema="(Tensor[] inputs) -> Tensor[]"
    )
    made.register_fake(fake)
    return made


def _gradient(parameter: Any, results: list[Any], usable: list[int], errors: list[Any]) -> Any:
    """Return the sum of the gradients of results for a parameter."""
    parts = [
        weft.deriv(results[at], parameter, error) for at, error in zip(usable, errors, strict=True)
    ]
    return sum(parts[1:], start=parts[0]) if parts else weft.zeros(parameter.axes, parameter.dtype)


def _called(computation: Computation, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    for tensor in inputs:
        require_host(tensor, f"An argument of {computation.name}")
    found = computation(*map(as_array, inputs))
    return [as_tensor(each) for each in (found if isinstance(found, list | tuple) else [found])]
