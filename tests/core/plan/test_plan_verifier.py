"""The verifier: it finds whatever is wrong with a plan, and names the op and its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planned import graph_of, plan_of, target, with_kernels

import weft
from weft.errors import MemoryLimitError, PlanError
from weft.ir.results import ResultOp
from weft.plan.buffers import Buffer
from weft.plan.plan import ARENA, CONSTANT, INPUT, RESULT, STATE, make_plan
from weft.plan.steps import Plan


def planned():
    """Return a plan with an arena of several buffers, workspaces, a constant, a state, an effect,
    kernels with one and with two results, and two results.
    """  # fmt: skip
    w, x = weft.variable((8, 8)), weft.placeholder((8, 8))
    table = weft.constant(np.arange(64).reshape(8, 8), dtype="float32")
    y = weft.tanh(x @ table)
    both = weft.sin(y)
    z = weft.exp(y.T @ (both * 2)) @ both
    shown = weft.print_op(weft.sum(z), "z")
    weft.assign(w, w @ z + weft.sum(z))
    graph = with_kernels(graph_of([weft.sum(y @ z) + shown, w], x))
    plan = make_plan(graph, target(alignment=64, workspace=lambda op: 100))
    plan.verify()
    assert sum(buffer.kind == ARENA for buffer in plan.buffers) > 4
    assert any(len(step.outs) > 1 for step in plan.steps)
    return plan


def limited():
    """Return a plan in which ops run twice."""
    x = h = weft.placeholder((8, 8))
    for _ in range(8):
        h = weft.tanh(h @ h)
    loss = weft.sum(h, (0, 1))
    graph = graph_of([loss, weft.deriv(loss, x)], x)
    with pytest.raises(MemoryLimitError) as caught:
        make_plan(graph, target(), 0)
    plan = make_plan(graph, target(), caught.value.smallest)
    plan.verify()
    assert len(plan.steps) > len(make_plan(graph, target()).steps)
    return plan


def step_writing(plan: Plan, kind: str, last: bool = False):
    """Return the place of a step that writes to a kind of buffer."""
    places = [n for n, s in enumerate(plan.steps)
              if not s.op.has_effect and s.out.base.kind == kind]  # fmt: skip
    return places[-1 if last else 0]


def move(plan: Plan, place: int, to: int):
    plan.steps.insert(to, plan.steps.pop(place))


def swap_steps(plan: Plan):
    plan.steps.reverse()


def drop_a_step(plan: Plan):
    del plan.steps[0]


def drop_the_effect(plan: Plan):
    del plan.steps[next(n for n, step in enumerate(plan.steps) if step.op.has_effect)]


def run_a_step_twice(plan: Plan):
    plan.steps.insert(1, plan.steps[0])


def put_all_at_zero(plan: Plan):
    moved(plan, lambda buffer: 0)


def move_by_a_byte(plan: Plan):
    moved(plan, lambda buffer: buffer.offset + 1)


def move_beyond_the_end(plan: Plan):
    moved(plan, lambda buffer: buffer.offset + plan.arena_size // 64 * 64)


def moved(plan: Plan, offset: Callable[..., Any]):
    """Move every buffer of the arena, and what lies in them."""
    for buffer in plan.buffers:
        if buffer.kind != ARENA:
            continue
        by = offset(buffer) - buffer.offset
        buffer.offset += by

        def shifted(tensor: weft.TensorDescription, buffer: Buffer = buffer, by: int = by):
            here = tensor is not None and tensor.base is buffer
            return replace(tensor, offset=tensor.offset + by) if here else tensor

        for op, tensor in plan.tensors.items():
            plan.tensors[op] = shifted(tensor)
        for number, step in enumerate(plan.steps):
            outs, args = (tuple(map(shifted, each)) for each in (step.outs, step.args))
            plan.steps[number] = replace(
                step, outs=outs, args=args, workspace=shifted(step.workspace)
            )


def shrink_the_arena(plan: Plan):
    plan.arena_size -= 64


def write_the_input(plan: Plan):
    step = plan.steps[0]
    (tensor,) = (t for t in step.args if t.base.kind == INPUT)
    plan.steps[0] = replace(step, outs=(tensor,))


def write_the_constant(plan: Plan):
    step = plan.steps[0]
    (tensor,) = (t for t in step.args if t.base.kind == CONSTANT)
    plan.steps[0] = replace(step, outs=(tensor,))


def write_to_a_wrong_buffer(plan: Plan):
    one, *others = (step for step in plan.steps if step.out.base.kind == ARENA)
    wrong = next(step.out.base for step in others if step.out.base is not one.out.base)
    plan.steps[plan.steps.index(one)] = replace(one, outs=(replace(one.out, base=wrong),))


def lose_a_result(plan: Plan):
    place = step_writing(plan, RESULT)
    arena = next(b for b in plan.buffers if b.kind == ARENA)
    step = plan.steps[place]
    plan.steps[place] = replace(step, outs=(replace(step.out, base=arena),))


def lose_an_update(plan: Plan):
    del plan.steps[step_writing(plan, STATE, last=True)]


def write_the_state_before_the_effect(plan: Plan):
    place = next(n for n, step in enumerate(plan.steps) if step.op.has_effect)
    move(plan, place, step_writing(plan, STATE, last=True))


def put_the_workspace_over_an_operand(plan: Plan):
    number, operand = next(
        (number, arg)
        for number, step in enumerate(plan.steps)
        for arg in step.args
        if arg.base.kind == ARENA and all(out.base is not arg.base for out in step.outs)
    )
    step = plan.steps[number]
    space = replace(step.workspace, base=operand.base, offset=operand.base.offset)
    plan.steps[number] = replace(step, workspace=space)


def put_the_workspace_over_the_result(plan: Plan):
    place = step_writing(plan, ARENA)
    step = plan.steps[place]
    space = replace(step.workspace, base=step.out.base, offset=step.out.base.offset)
    plan.steps[place] = replace(step, workspace=space)


def put_the_workspace_over_what_waits(plan: Plan):
    for number, step in enumerate(plan.steps):
        touched = {t.base for t in (*step.args, *step.outs)}
        for base in plan.buffers:
            waits = base.kind == ARENA and base.first < number < base.last
            if waits and base not in touched and base.nbytes >= 100:
                space = replace(step.workspace, base=base, offset=base.offset)
                plan.steps[number] = replace(step, workspace=space)
                return
    raise AssertionError("nothing waits while a step runs")


def put_two_results_into_one(plan: Plan):
    number, step = next((n, s) for n, s in enumerate(plan.steps) if len(s.outs) > 1)
    plan.steps[number] = replace(step, outs=(step.outs[0],) * len(step.outs))
    for value in plan.results[step.op]:
        plan.tensors[value] = step.outs[0]


def exchange_two_results(plan: Plan):
    number, step = next((n, s) for n, s in enumerate(plan.steps) if len(s.outs) > 1)
    plan.steps[number] = replace(step, outs=step.outs[::-1])


def overwrite_an_operand_of_a_product(plan: Plan):
    for step in plan.steps:
        operand = next((t for t in step.args if t.base.kind == ARENA), None)
        if type(step.op).__name__ == "MatmulOp" and operand and step.out.base.kind == ARENA:
            out = replace(step.out, base=operand.base, offset=operand.base.offset)
            old = step.out
            for op, tensor in plan.tensors.items():
                if tensor == old:
                    plan.tensors[op] = out
            steps = [replace(s, args=tuple(out if t == old else t for t in s.args),
                             outs=tuple(out if t == old else t for t in s.outs))
                     for s in plan.steps]  # fmt: skip
            plan.steps[:] = steps
            return
    raise AssertionError("no product of a value in the arena")


def end_a_lifetime_early(plan: Plan):
    buffer = max((b for b in plan.buffers if b.kind == ARENA), key=lambda b: b.last - b.first)
    buffer.last -= 1


def describe_a_view_as_another(plan: Plan):
    for op in plan.graph.ops:
        if type(op).__name__ == "TransposeOp":
            plan.tensors[op] = plan.tensors[op.args[0]]
            return
    raise AssertionError("no transposed view")


def read_another_constant(plan: Plan):
    for tensor in plan.tensors.values():
        if tensor.base.kind == CONSTANT and tensor.shape:
            tensor.base.owner = weft.constant(0)


def compute_something_else(plan: Plan):
    first, *others = plan.graph.outputs
    plan.graph = plan.graph.replace(outputs=[*others, first])


def forget_an_update(plan: Plan):
    plan.graph = plan.graph.replace(updates=[])


def forget_an_effect(plan: Plan):
    plan.graph = plan.graph.rewrite(lambda op: op.args[0] if op.has_effect else op)


def wait_for_what_comes_later(plan: Plan):
    first, last = plan.steps[0].op, plan.steps[-1].op
    plan.graph = plan.graph.replace(after={first: (last,)})


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (swap_steps, "before one of its predecessors"),
        (drop_a_step, "leaves it out"),
        (drop_the_effect, "leaves it out"),
        (run_a_step_twice, "runs an op twice"),
        (put_all_at_zero, "while both are alive"),
        (move_by_a_byte, "not aligned"),
        (move_beyond_the_end, "outside the arena"),
        (shrink_the_arena, "outside the arena"),
        (write_the_input, "writes into a input"),
        (write_the_constant, "writes into a constant"),
        (write_to_a_wrong_buffer, "write other layouts"),
        (lose_a_result, "write other layouts"),
        (lose_an_update, "leaves it out"),
        (write_the_state_before_the_effect, "writes a state at step"),
        (put_the_workspace_over_an_operand, "workspace over operand"),
        (put_the_workspace_over_the_result, "results and workspace overlap"),
        (put_the_workspace_over_what_waits, "from memory with another value"),
        (put_two_results_into_one, "results and workspace overlap"),
        (exchange_two_results, "write other layouts"),
        (overwrite_an_operand_of_a_product, "while it reads it|while both are alive"),
        (end_a_lifetime_early, "lets it use"),
        (describe_a_view_as_another, "describes it as"),
        (read_another_constant, "from memory with another value"),
        (compute_something_else, "which has another value"),
        (forget_an_update, "does not update"),
        (forget_an_effect, "0 effects instead of 1"),
        (wait_for_what_comes_later, "before one of its predecessors|has a cycle"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
def test_a_corrupted_plan_is_found(corrupt: Callable[..., Any], message: str):
    plan = planned()
    corrupt(plan)
    with pytest.raises((PlanError, weft.errors.GraphError), match=message):
        plan.verify()


def read_the_first_again(plan: Plan):
    """Let a reader of what was computed again read what was there before that."""
    seen = {}
    for step in plan.steps:
        key = (type(step.op), step.op.order, step.out.shape)
        if key in seen:
            old, new = seen[key].out, step.out
            for number, other in enumerate(plan.steps):
                args = tuple(old if t == new else t for t in other.args)
                plan.steps[number] = replace(other, args=args)
            plan.tensors[step.op] = old
            return
        seen[key] = step
    raise AssertionError("nothing runs twice")


def run_it_again_too_late(plan: Plan):
    seen = set()
    for number, step in enumerate(plan.steps):
        key = (type(step.op), step.op.order, step.out.shape)
        if key in seen:
            move(plan, number, len(plan.steps) - 1)
            return
        seen.add(key)


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (read_the_first_again, "other layouts|from memory with another value|lets it use"),
        (run_it_again_too_late, "before one of its predecessors"),
    ],
)
def test_a_corrupted_plan_in_which_ops_run_again_is_found(
    corrupt: Callable[..., Any], message: str
):
    plan = limited()
    corrupt(plan)
    with pytest.raises(PlanError, match=message):
        plan.verify()


def test_an_op_that_runs_again_on_other_operands_is_found():
    """The planned graph must compute what was asked for, whatever it does twice."""
    plan = limited()
    swapped = {}
    for op in plan.graph.ops:
        if type(op).__name__ == "TanhOp" and not swapped:
            swapped[op] = op.args[0]
    plan.graph = plan.graph.rewrite(lambda op: swapped.get(op, op))
    with pytest.raises(PlanError, match="which has another value"):
        plan.verify()


def test_the_error_names_the_op_and_its_line():
    plan = planned()
    write_the_input(plan)
    with pytest.raises(PlanError, match=r"MatmulOp: the plan writes into a input") as caught:
        plan.verify()
    assert f'File "{__file__}", line' in str(caught.value)


def test_values_that_nobody_takes_have_memory_of_their_own():
    x = weft.placeholder((8,))
    y = weft.tanh(x)
    graph = with_kernels(weft.capture([weft.exp(y), y], [x]))
    first = graph.outputs[0]
    assert isinstance(first, ResultOp)
    plan = make_plan(graph.replace(outputs=[first]), target())
    plan.verify()
    assert [out.base.kind for out in plan.steps[0].outs].count(ARENA) == 1


def test_empty_tensors_lie_anywhere():
    x = weft.placeholder((0, 4))
    plan = plan_of(weft.sum(weft.tanh(x) + weft.exp(x), 0), x)
    plan.verify()
    assert all(buffer.offset % plan.alignment == 0 for buffer in plan.buffers)
