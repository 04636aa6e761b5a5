"""Everything that is refused: class and beginning of the message; and contexts are left clean."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
import weft_popxl as popxl
from weft_popxl import ops, transforms
from weft_popxl.transforms.autodiff import ExpectedConnection, GradGraphInfo

SPEC = popxl.TensorSpec((2,), popxl.float32)
WHOLE = popxl.TensorSpec((2,), popxl.int32)
popart = popxl.popart_exception


class House(SimpleNamespace):
    """A main graph, open, with what the cases below need."""


@pytest.fixture
def house() -> Any:
    made = House()
    made.ir = popxl.Ir()
    made.other = popxl.Ir()
    made.main = made.ir.main_graph
    with made.other.main_graph:
        made.foreign = popxl.variable([1.0, 2.0])
        made.foreign_graph = made.other.create_graph(lambda x: x + 1, SPEC)
        made.foreign_stream = popxl.h2d_stream((2,), popxl.float32)
    with made.main:
        made.v = popxl.variable([1.0, 2.0], name="v")
        made.i = popxl.variable([1, 2], name="i")
        made.c = popxl.constant([1.0, 2.0])
        made.m = popxl.constant([[1.0, 2.0], [3.0, 4.0]])
        made.load = popxl.h2d_stream((2,), popxl.float32, "load")
        made.store = popxl.d2h_stream((2,), popxl.float32, "store")
        made.one = made.ir.create_graph(lambda x: ops.exp(x) * x, SPEC)
        made.two = made.ir.create_graph(lambda x, y: ops.exp(x) * y, SPEC, SPEC)
        made.pair = made.ir.create_graph(lambda x: (x, x + 1), SPEC)
        made.detached = made.ir.create_graph(lambda x, y: ops.detach(x) * y, SPEC, SPEC)
        made.stopped = made.ir.create_graph(lambda x: ops.detach(x) * 2, SPEC)
        made.counted = made.ir.create_graph(lambda x, n: (x * 2, n + 1), SPEC, WHOLE)
        made.indexed = made.ir.create_graph(lambda x, n: ops.gather(x, n) * 2, SPEC, WHOLE)
        made.changing = made.ir.create_graph(added, SPEC)
        made.by_ref = made.ir.create_graph(added_by_ref, SPEC)
        made.info = ops.call_with_info(made.one, made.v)
        yield made
    assert popxl.context.current.get() == popxl.context.Context()


def added(x: popxl.Tensor) -> popxl.Tensor:
    x += 1
    return x


def added_by_ref(x: popxl.TensorByRef) -> popxl.Tensor:
    x += 1
    return x


def hidden(h: House) -> popxl.Tensor:
    return next(t for t in h.one.tensors if t not in (*h.one.inputs, *h.one.outputs))


def in_graph(build: Callable[[], Any]) -> popxl.Graph:
    return popxl.gir().create_graph(lambda: build() and None)


def recursive(h: House) -> None:
    graph = h.ir.create_empty_graph("loop")
    with graph:
        ops.call(graph)


def recursive_through_another(h: House) -> None:
    graph = h.ir.create_empty_graph("outer")
    with graph:
        h.ir.create_graph(lambda: ops.call(graph))


def modified_after_use(h: House) -> None:
    info = ops.call_with_info(h.changing, h.v)
    ops.exp(h.v)
    info.set_parent_input_modified(h.v)


def built_after_call(h: House) -> None:
    with h.one:
        popxl.graph_input((2,), popxl.float32)


def unsafe(h: House) -> None:
    h.one.can_be_recursively_autodiffed = False
    outer = h.ir.create_graph(lambda x: ops.call(h.one, x), SPEC)
    transforms.autodiff(outer)


def calling(h: House, graph: popxl.Graph) -> popxl.Graph:
    return h.ir.create_graph(lambda x: ops.call(graph, x), SPEC)


def conditional(h: House, one: str, other: str) -> None:
    ops.conditional(ops.sum(h.v) > 0, getattr(h, one), getattr(h, other), [h.v], [h.v])


def chosen(h: House) -> ops.ConditionalInfo:
    """Return what is known of a choice between a graph with one input and one with two."""
    return ops.conditional_with_info(ops.sum(h.v) > 0, h.one, h.two, [h.v], [h.v, h.v])


CASES: dict[str, tuple[type[Exception], str, Callable[[House], Any]]] = {
    # autodiff
    "nothing required": (
        popart,
        r"Calling Autodiff on Graph .*with defined but empty vector",
        lambda h: transforms.autodiff(h.one, grads_required=[]),
    ),
    "nothing provided": (
        popart,
        r"Calling Autodiff on Graph .*with defined but empty vector",
        lambda h: transforms.autodiff(h.one, grads_provided=[]),
    ),
    "provided from elsewhere": (
        popart,
        "this tensor is not in the forward graph",
        lambda h: transforms.autodiff(h.one, grads_provided=[h.v]),
    ),
    "required from elsewhere": (
        popart,
        "this tensor is not in the forward graph",
        lambda h: transforms.autodiff(h.one, grads_required=[h.two.inputs[0]]),
    ),
    "required from inside": (
        popart,
        "Unable to provide required gradient output for fwd id .*: it is no input",
        lambda h: transforms.autodiff(h.one, grads_required=[hidden(h)]),
    ),
    "required of an integer": (
        popart,
        "Unable to provide required gradient output for fwd id .*/n: no output",
        lambda h: transforms.autodiff(h.counted, grads_required=h.counted.inputs),
    ),
    "required of indices": (
        popart,
        "Unable to provide required gradient output for fwd id",
        lambda h: transforms.autodiff(h.indexed, grads_required=h.indexed.inputs),
    ),
    "required of what is detached": (
        popart,
        "Unable to provide required gradient output for fwd id .*/x",
        lambda h: transforms.autodiff(h.detached),
    ),
    "required of what is detached inside": (
        popart,
        "Unable to provide required gradient output for fwd id .*/x",
        lambda h: transforms.autodiff(calling(h, h.stopped)),
    ),
    "changed in place": (
        popart,
        r"The graph .*added.* contains a modifying op",
        lambda h: transforms.autodiff(h.changing),
    ),
    "changed in place inside": (
        popart,
        r"The graph .*added.* contains a modifying op",
        lambda h: transforms.autodiff(calling(h, h.changing)),
    ),
    "unsafe": (popart, "has been marked as unsafe to autodiff", unsafe),
    "the main graph": (popart, "has no inputs", lambda h: transforms.autodiff(h.main)),
    "no graph": (TypeError, "autodiff takes a graph", lambda h: transforms.autodiff(h.v)),
    "no way": (
        ValueError,
        "on_missing must be one of",
        lambda h: transforms.autodiff(h.one, on_missing="guess"),
    ),
    "provided is not a list": (
        TypeError,
        "grads_provided is a list of tensors, not 3",
        lambda h: transforms.autodiff(h.one, grads_provided=3),
    ),
    "required is not a list": (
        TypeError,
        "grads_required is a list of tensors, not 3",
        lambda h: transforms.autodiff(h.one, grads_required=3),
    ),
    "required is a tensor": (
        TypeError,
        "grads_required is a list of tensors, not ",
        lambda h: transforms.autodiff(h.one, grads_required=h.one.inputs[0]),
    ),
    "required holds no tensor": (
        TypeError,
        "grads_required holds tensors, not 3",
        lambda h: transforms.autodiff(h.one, grads_required=[3]),
    ),
    "known is not a mapping": (
        TypeError,
        "called_graphs_grad_info maps graphs to what autodiff returned for them, not 3",
        lambda h: transforms.autodiff(h.one, called_graphs_grad_info=3),
    ),
    "known of no graph": (
        TypeError,
        "called_graphs_grad_info maps graphs, not 3",
        lambda h: transforms.autodiff(h.one, called_graphs_grad_info={3: 3}),
    ),
    "known is no gradient graph": (
        TypeError,
        "called_graphs_grad_info maps .* to 3: give what autodiff returned",
        lambda h: transforms.autodiff(h.one, called_graphs_grad_info={h.two: 3}),
    ),
    "known of another graph": (
        popart,
        "called_graphs_grad_info maps .* to the gradient graph of another graph",
        lambda h: transforms.autodiff(
            h.one, called_graphs_grad_info={h.two: transforms.autodiff(h.one)}
        ),
    ),
    "inputs of another call": (
        TypeError,
        "The called graph does not match the graph that was differentiated",
        lambda h: transforms.autodiff(h.two).inputs_dict(h.info),
    ),
    "inputs of a repeat": (
        TypeError,
        "The called graph does not match the graph that was differentiated",
        lambda h: transforms.autodiff(h.one).inputs_dict(ops.repeat_with_info(h.one, 2, h.v)),
    ),
    "gradients of another call": (
        TypeError,
        "The called graph does not match the graph that was differentiated",
        lambda h: transforms.autodiff(h.one).fwd_graph_ins_to_grad_parent_outs(h.info),
    ),
    "info constructed": (TypeError, "missing", lambda h: GradGraphInfo()),
    "connection constructed": (TypeError, "missing", lambda h: ExpectedConnection()),
    # calls
    "too many": (
        ValueError,
        "Too many inputs have been provided",
        lambda h: ops.call(h.one, h.v, h.v),
    ),
    "twice": (
        ValueError,
        "Graph input tensor is specified twice",
        lambda h: ops.call(h.one, h.v, inputs_dict={h.one.inputs[0]: h.v}),
    ),
    "not enough": (
        ValueError,
        "Not enough inputs have been provided:\n.*/x.*\n.*missing",
        lambda h: ops.call(h.two, h.v),
    ),
    "key from elsewhere": (
        ValueError,
        "is not in the called graph",
        lambda h: ops.call(h.one, inputs_dict={h.v: h.v}),
    ),
    "key that is not an input": (
        ValueError,
        "is not an input of the called graph",
        lambda h: ops.call(h.one, inputs_dict={hidden(h): h.v}),
    ),
    "value from elsewhere": (
        ValueError,
        "is not in the current graph",
        lambda h: ops.call(h.one, h.one.inputs[0]),
    ),
    "text": (TypeError, "is not a number", lambda h: ops.call(h.one, "a")),
    "none": (TypeError, "is not a number", lambda h: ops.call(h.one, None)),
    "shape": (popart, "does not fit the input", lambda h: ops.call(h.one, np.ones(3))),
    "dtype": (popart, "does not fit the input", lambda h: ops.call(h.one, h.i)),
    "not a graph": (TypeError, "must be a graph", lambda h: ops.call(h.v, h.v)),
    "another Ir's": (ValueError, "another Ir", lambda h: ops.call(h.foreign_graph, h.v)),
    "recursion": (popart, "graphs are not recursive", recursive),
    "recursion through another": (popart, "graphs are not recursive", recursive_through_another),
    "the main graph called": (
        popart,
        "graphs are not recursive",
        lambda h: h.ir.create_graph(lambda: ops.call(h.main)),
    ),
    "built after a call": (popart, "it cannot change any more", built_after_call),
    "info input": (IndexError, "there is no input 1", lambda h: h.info.parent_input(1)),
    "info output": (IndexError, "there is no output -1", lambda h: h.info.parent_output(-1)),
    "info of another tensor": (
        ValueError,
        "neither an input nor an output",
        lambda h: h.info.graph_to_parent(hidden(h)),
    ),
    "info of the caller": (
        ValueError,
        "neither an input nor an output",
        lambda h: h.info.parent_to_graph(h.i),
    ),
    "modified, but no input": (
        ValueError,
        "is not an input of the call",
        lambda h: h.info.set_parent_input_modified(h.i),
    ),
    "modified after use": (popart, ".*was used after the call", modified_after_use),
    "modified constant": (
        popart,
        ".*is a constant",
        lambda h: ops.call(h.by_ref, h.c),
    ),
    # repeat and conditional
    "negative count": (
        ValueError,
        "Repeat count must be >= 0",
        lambda h: ops.repeat(h.one, -1, h.v),
    ),
    "count of text": (TypeError, "Repeat count must be", lambda h: ops.repeat(h.one, "3", h.v)),
    "more outputs than inputs": (
        ValueError,
        "To repeat the subgraph",
        lambda h: ops.repeat(h.pair, 2, h.v),
    ),
    "repeat, not enough": (
        ValueError,
        "Not enough inputs have been provided",
        lambda h: ops.repeat(h.two, 2, h.v),
    ),
    "outputs that differ in number": (
        ValueError,
        "both graphs of a conditional have as many outputs",
        lambda h: conditional(h, "one", "pair"),
    ),
    "conditional by reference": (
        NotImplementedError,
        ".*inputs by reference",
        lambda h: conditional(h, "one", "by_ref"),
    ),
    "number of the condition": (
        IndexError,
        "input 0 of the conditional is not one of its graphs: they have 1 to 3",
        lambda h: chosen(h).parent_to_graph_input_index(0),
    ),
    "number of the other graph": (
        IndexError,
        "input 1 of the conditional is not one of Graph",
        lambda h: chosen(h).parent_to_graph_input_index(1, then_branch=False),
    ),
    "input of a conditional": (
        IndexError,
        "there is no input 4: the call has 4",
        lambda h: chosen(h).parent_input(4),
    ),
    "output of a conditional": (
        IndexError,
        "there is no output 1: the call has 1",
        lambda h: chosen(h).parent_output(1),
    ),
    "tensor of neither graph": (
        ValueError,
        ".*is neither an input nor an output of",
        lambda h: chosen(h).graph_to_parent(h.pair.inputs[0]),
    ),
    "tensor of the other graph": (
        ValueError,
        ".*is neither an input nor an output of",
        lambda h: chosen(h).graph_to_parent(h.two.inputs[0], then_branch=True),
    ),
    "condition of floats": (
        popart,
        "the condition must be one bool",
        lambda h: ops.conditional(h.v, h.one, h.one, [h.v], [h.v]),
    ),
    # graphs and their building
    "Graph()": (TypeError, "graphs are not constructed", lambda h: popxl.Graph()),
    "Tensor()": (TypeError, "Tensors are made by ops", lambda h: popxl.Tensor()),
    "dtype()": (TypeError, "dtypes are not constructed", lambda h: popxl.dtype()),
    "Ir of others": (TypeError, "an Ir can be compared", lambda h: h.ir == 1),
    "in graph": (TypeError, "a graph contains tensors", lambda h: 1 in h.main),
    "unknown hook": (ValueError, ".*no hook", lambda h: h.main.remove_op_created_hook(-1)),
    "unknown tensor": (ValueError, "there is no tensor 'x'", lambda h: h.main.get_tensor("x")),
    "another Ir opened": (RuntimeError, ".*another Ir", lambda h: h.other.main_graph.__enter__()),
    "signature": (
        ValueError,
        "the arguments do not fit",
        lambda h: h.ir.create_graph(added, SPEC, SPEC),
    ),
    "nothing to call": (TypeError, "a graph is created from", lambda h: h.ir.create_graph(3)),
    "mixed list": (
        TypeError,
        "the argument 'xs' holds tensors and others",
        lambda h: h.ir.create_graph(lambda xs: None, [SPEC, 1]),
    ),
    "result": (ValueError, "a graph returns", lambda h: h.ir.create_graph(lambda: 3)),
    "results": (ValueError, "a graph returns", lambda h: h.ir.create_graph(lambda: "ab")),
    "result of another graph": (
        ValueError,
        ".*is not in the current graph",
        lambda h: h.ir.create_graph(lambda: h.v),
    ),
    "module without build": (
        NotImplementedError,
        "Module must define build",
        lambda h: h.ir.create_graph(popxl.Module()),
    ),
    "output from elsewhere": (
        ValueError,
        ".*is not in the current graph",
        lambda h: popxl.graph_output(h.foreign),
    ),
    "variable in a graph": (
        ValueError,
        "variables belong to the main graph",
        lambda h: in_graph(lambda: popxl.variable(1)),
    ),
    "in_sequence": (TypeError, "in_sequence takes", lambda h: popxl.in_sequence(None)),  # type: ignore[arg-type]
    # tensors and ops
    "operand from elsewhere": (
        ValueError,
        ".*is not in the current graph",
        lambda h: in_graph(lambda: h.v + 1),
    ),
    "operand without elements": (ValueError, ".*no elements", lambda h: ops.add(h.v, [])),
    "text operand": (TypeError, "is not a number|.*is not a number", lambda h: h.v + "a"),
    "dtypes": (popart, "add takes tensors of one dtype", lambda h: h.v + h.i),
    "shapes": (popart, "add: ", lambda h: h.v + np.ones(3)),
    "text key": (TypeError, "a tensor is indexed by", lambda h: h.v["a"]),
    "bool key": (TypeError, "a tensor is indexed by", lambda h: h.v[True]),
    "float key": (TypeError, "a tensor is indexed by", lambda h: h.v[1.0]),
    "float keys": (TypeError, "a tensor is indexed by", lambda h: h.v[[1.0]]),
    "index": (popart, "slice: ", lambda h: h.v[5]),
    "iteration": (TypeError, ".*cannot be iterated", lambda h: list(h.v)),
    "contains": (TypeError, "what .* contains", lambda h: 1.0 in h.v),
    "truth": (TypeError, ".*no truth value", lambda h: bool(h.v)),
    "len": (ValueError, ".*is a scalar", lambda h: len(ops.sum(h.v))),
    "attribute": (AttributeError, ".*is immutable", lambda h: setattr(h.v, "id", "w")),
    "reshape": (ValueError, "reshape: ", lambda h: h.v.reshape((3, -1))),
    "permutation": (popart, "transpose: ", lambda h: h.v.transpose((0, 0))),
    "squeeze": (ValueError, "squeeze: ", lambda h: h.v.squeeze((0,))),
    "slice": (ValueError, "slice takes", lambda h: ops.slice(h.v, [1, 2], [2])),
    "axis": (ValueError, "slice: .*no axis 3", lambda h: ops.slice(h.v, 1, axis=3)),
    "nothing to join": (ValueError, "concat takes", lambda h: ops.concat([])),
    "in place of a constant": (popart, "add_: .*is a constant", lambda h: ops.add_(h.c, 1.0)),
    "in place of less": (
        popart,
        "scaled_add_ takes tensors of one shape",
        lambda h: ops.scaled_add_(h.v, np.ones(1, np.float32)),
    ),
    "update of another shape": (
        popart,
        "accumulate_ takes an update",
        lambda h: ops.var_updates.accumulate_(h.v, np.ones(1, np.float32)),
    ),
    "reduction": (
        ValueError,
        "nll_loss_with_softmax_grad: the reduction must be .* not 'max'",
        lambda h: ops.nll_loss_with_softmax_grad(h.v, 1, reduction="max"),
    ),
    "labels": (popart, "nll_loss takes an integer", lambda h: ops.nll_loss(h.v, h.v)),
    "init": (ValueError, "init_type must be", lambda h: ops.init((2,), popxl.int8, "n", "one")),
    "seed": (popart, "a seed is", lambda h: ops.dropout(h.v, h.i, 0.5)),
    "chance": (ValueError, "dropout takes", lambda h: ops.dropout(h.v, [1, 2], 1.5)),
    "dtype name": (
        ValueError,
        "'f' is not a dtype|.*is not a dtype",
        lambda h: ops.cast(h.v, "float3"),
    ),
    "dtype value": (ValueError, "value: ", lambda h: popxl.variable(300, popxl.int8)),
    "adam": (
        ValueError,
        "adam_updater needs beta1 and beta2",
        lambda h: ops.var_updates.adam_updater(h.v, h.v, None, h.i),
    ),
    "lamb": (
        ValueError,
        "lamb_updater needs the weight",
        lambda h: ops.var_updates.lamb_updater(h.v, h.v, weight_decay=0.1),
    ),
    "adamax": (
        ValueError,
        "adamax_updater needs the time step",
        lambda h: ops.var_updates.adamax_updater(h.v, h.v),
    ),
    "sparse update of another shape": (
        popart,
        "sparse_accumulate_ takes an update",
        lambda h: ops.var_updates.sparse_accumulate_(h.v, h.v, [0]),
    ),
    "groups": (
        popart,
        "groupedgather takes 3 groups",
        lambda h: ops.groupedgather(h.m, [[0], [0]], 1, 3),
    ),
    "groups along their axis": (
        ValueError,
        "groupedgather: axis 0 .* counts the groups",
        lambda h: ops.groupedgather(h.m, [[0], [0]], 0, 2),
    ),
    "mask": (
        popart,
        "shaped_dropout: a mask of shape",
        lambda h: ops.shaped_dropout(h.v, [1, 2], (7,), 0.5),
    ),
    "levels": (ValueError, "histogram takes levels", lambda h: ops.histogram(h.v, [1.0, 1.0])),
    "scale factors": (
        ValueError,
        "interpolate takes a positive scale factor",
        lambda h: ops.interpolate(h.v, (1.0, 2.0)),
    ),
    **{
        f"scale factor {factor}": (
            ValueError,
            "interpolate takes a positive scale factor",
            lambda h, factor=factor: ops.interpolate(h.v, (factor,)),
        )
        for factor in (0, -1.0, 0.1, math.nan, math.inf, 1e308)
    },
    "an output of other images": (
        popart,
        r"has 2 images of 3 channels, not an output_shape of \[1, 3, 4\]",
        lambda h: ops.conv_transpose(
            ops.init((2, 2, 3), popxl.float32),
            ops.init((2, 3, 2), popxl.float32),
            (1,),
            (0, 0),
            (1,),
            output_shape=[1, 3, 4],
        ),
    ),
    "an output that no output padding reaches": (
        popart,
        r"output_shape asks for spatial axes of \[8\], and at most \[7\] are possible",
        lambda h: ops.conv_transpose(
            ops.init((2, 2, 3), popxl.float32),
            ops.init((2, 3, 2), popxl.float32),
            (2,),
            (0, 0),
            (1,),
            output_shape=[8],
        ),
    ),
    "crop and resize": (
        ValueError,
        "coordinate_transformation_mode must be",
        lambda h: ops.interpolate(h.v, (2.0,), coordinate_transformation_mode="tf_crop_and_resize"),
    ),
    "regions": (popart, "roi_align: ", lambda h: ops.roi_align(h.v, h.v, [0], (1, 1), 1.0, 1)),
    "filters laid out": (
        popart,
        "conv_transpose takes filters",
        lambda h: ops.conv_transpose(h.m, h.m),
    ),
    # streams
    "store of another shape": (
        ValueError,
        "host_store: ",
        lambda h: ops.host_store(h.store, ops.sum(h.v)),
    ),
    "store of another dtype": (ValueError, "host_store: ", lambda h: ops.host_store(h.store, h.i)),
    "store to a load": (TypeError, "host_store takes", lambda h: ops.host_store(h.load, h.v)),
    "load of another Ir": (
        ValueError,
        "host_load: .*another Ir",
        lambda h: ops.host_load(h.foreign_stream),
    ),
    "transfers": (
        ValueError,
        "num_host_transfers must",
        lambda h: setattr(h.ir, "num_host_transfers", 0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused(case: str, house: House) -> None:
    kind, message, function = CASES[case]
    before = popxl.context.current.get()
    with pytest.raises(kind, match=message) as caught:
        function(house)
    assert popxl.context.current.get() is before
    if message != "missing" and kind is not AttributeError:
        assert isinstance(caught.value, weft.WeftError)
        assert __file__ in str(caught.value), "the message names the user's line"


@pytest.mark.parametrize(
    "function",
    [popxl.gcg, popxl.gmg, popxl.gir, lambda: popxl.variable(1)],
    ids=["gcg", "gmg", "gir", "variable"],
)
def test_nothing_is_built_outside_of_graphs(function: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match="there is no open graph"):
        function()


def test_an_exception_leaves_every_context(house: House) -> None:
    before = popxl.context.current.get()
    graphs = house.ir.graphs

    def failing(x: popxl.Tensor) -> None:
        with popxl.name_scope("deep"), popxl.in_sequence(True), popxl.ipu(0), popxl.io_tiles():
            raise KeyError("on purpose")

    with pytest.raises(KeyError):
        house.ir.create_graph(failing, SPEC)
    assert popxl.context.current.get() is before
    assert house.ir.graphs == graphs
    assert (house.v + 1).name.startswith("t")


def test_popart_exception_is_an_error_of_weft() -> None:
    assert issubclass(popxl.popart_exception, weft.WeftError)


def test_two_changed_inputs_are_not_the_same_memory() -> None:
    def change(x: popxl.TensorByRef, y: popxl.TensorByRef) -> None:
        ops.add_(x, y)
        ops.add_(y, x)

    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable([1.0, 2.0])
        graph = ir.create_graph(change, v, v)
        with pytest.raises(popxl.popart_exception, match="the same memory"):
            ops.call(graph, v, v)
