"""Branches and loops.

A branch that is known while tracing is traced in place, and so is each iteration of a loop. A
condition that a call computes ends the step of the program: the host then decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, lowers, numpy_dtype
from weft_onnx.tracing import Frame, Tracer
from weft_onnx.values import dtype_of, is_for_device, is_known, shape_of

MOST_ITERATIONS = 10_000
"""The iterations of a loop after which it is taken for one without an end."""


@lowers("If")
def if_rule(node: Node) -> Any:
    """Trace the branch of a condition."""
    is_true = bool(node.array(0).reshape(-1)[0])
    branch = node.required("then_branch" if is_true else "else_branch")
    return node.tracer.inner(node, branch, [], _finished)


def _finished(tracer: Tracer, caller: Frame, results: list[Any]) -> None:
    tracer.finish(caller, tuple(results))


@lowers("Loop")
def loop(node: Node) -> Any:
    """Trace iterations while the count and the condition last."""
    if "carried" not in node.frame.state:
        _require_operands(node)
        most = int(node.array(0).reshape(-1)[0]) if node.has(0) else -1
        node.remember(
            most=np.array(most), number=np.array(0),
            goes_on=node.raw(1) if node.has(1) else np.array(True),
            carried=list(node.inputs[2:]), stacked=[],
        )  # fmt: skip
    return _next_iteration(node)


def _next_iteration(node: Node) -> Any:
    state = node.frame.state
    number, most = int(state["number"]), int(state["most"])
    body = node.required("body")
    is_over = 0 <= most <= number
    if not is_over:
        is_over = not bool(np.asarray(node.known(state["goes_on"])).reshape(-1)[0])
    if is_over:
        return (*state["carried"], *_stacked(node, state["stacked"], body))
    is_endless = not 0 <= most <= MOST_ITERATIONS and _keeps_condition(body)
    if is_endless or number == MOST_ITERATIONS:
        raise node.error(
            f"it goes on after {MOST_ITERATIONS} iterations; each is traced, and more are refused"
        )
    values = [np.array(number, np.int64), state["goes_on"], *state["carried"]]
    return node.tracer.inner(node, body, values, _iterated)


def _require_operands(node: Node) -> None:
    """Raise NodeError if the body does not take and give a condition and what the loop carries."""
    body, count = node.required("body"), max(len(node.inputs) - 2, 0)
    if len(body.input) != 2 + count or len(body.output) < 1 + count:
        raise node.error(
            f"its body has {len(body.input)} inputs and {len(body.output)} outputs; with {count} "
            f"carried values it needs {2 + count} inputs and at least {1 + count} outputs"
        )


def _keeps_condition(body: Any) -> bool:
    """Whether each iteration hands the condition on as it got it."""
    copied = {each.output[0]: each.input[0] for each in body.node if each.op_type == "Identity"}
    name = body.output[0].name
    for _ in copied:
        name = copied.get(name, name)
    return bool(name == body.input[1].name)


def _iterated(tracer: Tracer, caller: Frame, results: list[Any]) -> None:
    state, (goes_on, *rest) = caller.state, results
    count = len(state["carried"])
    caller.resumed = {}
    caller.state = {
        **state,
        "number": np.array(int(state["number"]) + 1),
        "goes_on": goes_on,
        "carried": rest[:count],
        "stacked": [*state["stacked"], rest[count:]] if rest[count:] else [],
    }


def _stacked(node: Node, iterations: list[list[Any]], body: Any) -> list[Any]:
    count = len(body.output) - len(body.input) + 1
    if iterations:
        return [_stack(node, list(each)) for each in zip(*iterations, strict=True)]
    found = []
    for output in body.output[len(body.output) - count :] if count > 0 else ():
        kind = output.type.tensor_type
        lengths = [d.dim_value for d in kind.shape.dim]
        found.append(np.zeros((0, *lengths), numpy_dtype(kind.elem_type)))
    return found


def _stack(node: Node, parts: list[Any], axis: int = 0) -> Any:
    if all(map(is_known, parts)):
        return np.stack(parts, axis)
    if not is_for_device(dtype_of(parts[0])):
        return node.host(lambda *given: [np.stack(given, axis)], *parts)[0]
    return weft.stack([node.op(each) for each in parts], pos=axis)


@lowers("Scan")
def scan(node: Node) -> Any:
    """Trace an iteration for each slice of the scanned operands."""
    if node.version < 9:
        return NotImplemented
    if "carried" not in node.frame.state:
        count = len(node.inputs) - node.required("num_scan_inputs")
        node.remember(number=np.array(0), carried=list(node.inputs[:count]), stacked=[])
    return _next_slice(node)


def _next_slice(node: Node) -> Any:
    state, body = node.frame.state, node.required("body")
    scanned = node.required("num_scan_inputs")
    count = len(node.inputs) - scanned
    outputs = node.outputs - count
    axes = list(node.attr("scan_input_axes") or [0] * scanned)
    directions = list(node.choice("scan_input_directions") or [0] * scanned)
    number = int(state["number"])
    length = node.shape(count)[node.axis(axes[0], node.rank(count))]
    if number == length:
        axes = list(node.attr("scan_output_axes") or [0] * outputs)
        backwards = list(node.choice("scan_output_directions") or [0] * outputs)
        found = []
        for place, parts in enumerate(zip(*state["stacked"], strict=True)):
            several = list(parts)[::-1] if backwards[place] else list(parts)
            rank = len(shape_of(several[0])) + 1
            found.append(_stack(node, several, axes[place] % rank))
        return (*state["carried"], *found)
    values = list(state["carried"])
    for place in range(scanned):
        at = length - 1 - number if directions[place] else number
        axis = node.axis(axes[place], node.rank(count + place))
        values.append(_slice(node, node.raw(count + place), axis, at))
    return node.tracer.inner(node, body, values, _scanned)


def _slice(node: Node, x: Any, axis: int, at: int) -> Any:
    if is_for_device(dtype_of(x)):
        return weft.slice_along_axis(node.op(x), axis, at)
    return node.host(lambda given: [np.take(given, at, axis)], x)[0]


def _scanned(tracer: Tracer, caller: Frame, results: list[Any]) -> None:
    state = caller.state
    count = len(state["carried"])
    caller.resumed = {}
    caller.state = {
        "number": np.array(int(state["number"]) + 1), "carried": results[:count],
        "stacked": [*state["stacked"], results[count:]],
    }  # fmt: skip
