"""Wrong arguments of every function: an error of weft's that names the user's line, or a result."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import Context
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from popxl_programs import results

import weft
import weft_popxl as popxl
from weft.errors import UnknownPluginError
from weft_popxl import ops, transforms
from weft_popxl.tensor_arguments import axes_of, axis_of

pytestmark = pytest.mark.share(2)

Home = SimpleNamespace
Arguments = dict[str, Callable[[Home], Any]]
popart = popxl.popart_exception


def home() -> Home:
    """Return a main graph with what the functions below take; it is to be opened."""
    h = Home(ir=popxl.Ir(), text="23")
    h.main = h.ir.main_graph
    with h.main:
        h.x = popxl.variable(np.ones((2, 3)), name="x")
        h.column = popxl.variable(np.ones((2, 1)))
        h.two, h.three = popxl.variable([1.0, 2.0]), popxl.variable([1.0, 2.0, 3.0])
        h.scalar = popxl.variable(1.0)
        h.one, h.numbers = popxl.constant([1]), popxl.variable([1, 0])
        h.places = popxl.constant(np.zeros((2, 3), np.int32))
        h.bools, h.true = popxl.constant([True, False]), popxl.constant(True)
        h.seed = popxl.constant([1, 2], popxl.uint32)
        h.images = popxl.variable(np.ones((1, 2, 4, 4)))
        h.filters = popxl.variable(np.ones((2, 2, 3, 3)))
        h.load = popxl.h2d_stream((2,), popxl.float32)
        h.store = popxl.d2h_stream((2,), popxl.float32)
        h.graph = h.ir.create_graph(lambda a: a * 2.0, h.two)
        h.replicas = h.ir.replica_grouping()
    return h


def as_is(value: Any) -> Callable[[Home], Any]:
    return lambda h: value


def found(value: Any) -> Callable[[Home], Any]:
    """Return what gives a value: a text is a field of the home, a function is one of the home."""
    if isinstance(value, str):
        return lambda h: getattr(h, value)
    return value if callable(value) else as_is(value)


def given(**arguments: Any) -> Arguments:
    return {name: found(value) for name, value in arguments.items()}


def named(text: str) -> Callable[[Home], str]:
    return lambda h: text


def shared(names: str, arguments: Arguments) -> dict[str, Arguments]:
    return dict.fromkeys(names.split(), arguments)


def spread(names: str, **arguments: Any) -> dict[str, Arguments]:
    return shared(names, given(**arguments))


REDUCTIONS = "sum mean max min prod median logsum logsumexp l1 l2 sumsquare"
FLOAT = as_is(popxl.float32)
INPUTS = given(inputs_dict=lambda h: {h.graph.inputs[0]: h.two})
BRANCHES = given(
    cond="true",
    then_branch="graph",
    else_branch="graph",
    then_inputs=lambda h: [h.two],
    else_inputs=None,
    then_inputs_dict=None,
    else_inputs_dict=lambda h: {h.graph.inputs[0]: h.two},
)
UPDATE = given(index=lambda h: h.numbers[:1], axes=[0], sizes=[1])
PIXELS = given(stride=(1, 1), padding=(0, 0, 0, 0))
FACTORS = given(scale="two", bias="two", mean="two", var="two")

OPS: dict[str, Arguments] = {
    **spread(
        "abs ceil cos cosh detach detach_ exp exp_ flatten flatten_ floor gelu gelu_ geluerf "
        "geluerf_ isfinite isinf isnan lamb_square log log2 logical_not negate relu relu_ round "
        "sigmoid sign sin sinh sqrt swish swish_ tan tanh accumulator_zero_",
        t="x",
    ),
    **spread("identity rename", t="x", output_name=named("n")),
    **spread("bitwise_not", t="numbers"),
    **spread(
        "add add_ sub mul div fmod equal not_equal greater_equal less "
        "less_equal logical_and logical_or",
        lhs="two",
        rhs="two",
    ),
    **spread("bitwise_and bitwise_or bitwise_xor", lhs="numbers", rhs="numbers"),
    **spread("matmul", lhs="x", rhs="three", output_type=as_is(popxl.float16)),
    **spread("scaled_add scaled_add_", X="x", Y="x", a=2.0, b=2.0),
    **spread("where", condition="bools", lhs="two", rhs="two"),
    **spread("pow", t="two", e="two"),
    **spread("greater", input="two", other="two"),
    **spread("diag", t="x"),
    **spread("clip clamp clip_", t="x", min=0.0, max=1.0),
    **spread("cast", t="x", data_type=FLOAT),
    **spread("increment_mod increment_mod_", t="x", increment=1.0, modulus=2.0),
    **spread("softmax", t="x", axis=1),
    **spread(
        REDUCTIONS,
        t="x",
        axis=1,
        keepdims=True,
    ),
    **spread("argmax argmin", t="x", dim=1, keepdim=True),
    **spread("cumsum", t="x", dim=1),
    **spread("topk", t="x", k=2, axis=1, largest=True, sorted=True),
    **spread("transpose transpose_", t="x", permutation=(1, 0)),
    **spread("reshape reshape_", t="x", shape=(3, 2)),
    **spread("squeeze squeeze_", t="column", axes=1),
    **spread("slice slice_", t="x", start=0, stop=1, step=1, axis=1),
    **spread("subsample subsample_", t="x", strides=(1, 2)),
    **spread("concat concat_", ts=lambda h: [h.x, h.x], axis=0),
    **spread("split", t="x", splits=3, axis=1),
    **spread("getitem", t="x", key=0),
    **spread("gather tied_gather", t="x", indices="numbers", axis=1, zero_OOR=True),
    **spread("groupedgather", t="x", indices="places", axis=1, group_size=2, zero_OOR=True),
    **spread("scatter", t="x", indices="places", values="x", axis=0),
    **spread(
        "scatter_reduce",
        data="x",
        indices="places",
        reduction=named("sum"),
        initial_values=None,
        axis=0,
        axis_size=2,
    ),
    **spread("onehot", t="numbers", num_classes=3, values="two", axis=0),
    "dynamic_slice": {**given(t="x"), **UPDATE},
    **shared(
        "dynamic_update dynamic_update_",
        {**given(t="x", t_update=lambda h: h.x[:1]), **UPDATE},
    ),
    **spread("layer_norm", t="x", weight="three", bias="three", eps=1e-5),
    **spread("group_norm", t="images", weight="two", bias="two", num_groups=2, eps=1e-5),
    "batch_norm_inference": {**given(t="images", epsilon=1e-5, momentum=0.9), **FACTORS},
    "conv": {
        **given(t="images", weight="filters", dilation=(1, 1), groups=1, pad_type=named("not_set")),
        **PIXELS,
    },
    "conv_transpose": {
        **given(t="images", weight="filters", dilation=(1, 1), groups=1, pad_type=named("not_set")),
        **given(output_padding=(0, 0), output_shape=(6, 6)),
        **PIXELS,
    },
    **spread("histogram", t="x", levels=[0.0, 1.0], absolute_of_input=True),
    **spread(
        "interpolate",
        t="x",
        scale_factor=(1.0, 2.0),
        mode=named("nearest"),
        nearest_mode=named("floor"),
        coordinate_transformation_mode=named("asymmetric"),
    ),
    **spread(
        "roi_align",
        t="images",
        rois=lambda h: popxl.constant([[0.0, 0.0, 1.0, 1.0]]),
        batch_index=[0],
        output_size=(1, 2),
        spatial_scale=0.5,
        sampling_ratio=2,
    ),
    **shared(
        "max_pool average_pool",
        {
            **given(t="images", kernel_size=(2, 2), dilation=(1, 1), ceil_mode=True),
            **given(out_pads=(0, 0), in_dilations=(1, 1), auto_pad=named("same_upper")),
            **PIXELS,
        },
    ),
    **spread(
        "nll_loss",
        probs="x",
        labels="numbers",
        ignore_index=1,
        reduction=named("mean"),
        log_prob=True,
    ),
    **spread(
        "nll_loss_with_softmax_grad",
        probs="x",
        labels="numbers",
        loss_grad=1.0,
        ignore_index=1,
        reduction=named("mean"),
    ),
    **spread("dropout", t="x", seed_tensor="seed", p=0.5),
    **spread("shaped_dropout", t="x", seed_tensor="seed", shape=(3,), ratio=0.5),
    **spread("random_normal", seed_tensor="seed", shape=(2,), mean=0.0, std=1.0, dtype=FLOAT),
    **spread("random_uniform", seed_tensor="seed", shape=(2,), low=0.0, high=1.0, dtype=FLOAT),
    **spread("split_random_seed", seed="seed", n=2),
    **spread("init", shape=(2,), dtype=FLOAT, name=named("n"), init_type=named("zero")),
    **spread("arange", start=0, stop=3, step=1, dtype=FLOAT),
    **spread("print_tensor", t="x", title=named("x"), print_self=True, print_gradient=True),
    **spread("host_load", h2d_stream="load", name=named("n")),
    **spread("host_store", d2h_stream="store", t="two"),
    "call": {**given(graph="graph"), **INPUTS},
    "call_with_info": {**given(graph="graph", check_inputs=True), **INPUTS},
    "repeat": {**given(graph="graph", repeat_count=2), **INPUTS},
    "repeat_with_info": {**given(graph="graph", repeat_count=2, check_inputs=True), **INPUTS},
    "conditional": BRANCHES,
    "conditional_with_info": {**BRANCHES, **given(check_inputs=True)},
    **spread(
        "accumulate_ accumulate_square_ accumulate_moving_average_ "
        "accumulate_moving_average_square_",
        t="x",
        X="x",
        f=0.5,
    ),
    **spread("accumulate_mean_", t="x", X="x", step=2.0),
    **spread("accumulator_scale_", t="x", f=2.0),
    **spread("copy_var_update_", t="x", X="x"),
    **spread(
        "replicated_all_reduce replicated_all_reduce_ replicated_all_reduce_identical_inputs "
        "replicated_all_reduce_identical_grad_inputs",
        t="x",
        op=named("add"),
        group="replicas",
    ),
    **spread(
        "replicated_reduce_scatter",
        t="x",
        op=named("add"),
        group="replicas",
        configure_output_for_replicated_tensor_sharding=False,
    ),
    **spread(
        "replicated_all_gather", t="x", axis=1, group="replicas", output_shape=named("concat")
    ),
    **spread("replicated_slice", t="x", axis=1, group="replicas"),
    **spread("replica_sharded_slice", t="x", group="replicas"),
    **spread("sparse_accumulate_", t="three", X="two", indices="numbers", axis=0, f=0.5),
    **spread(
        "adamax_updater",
        acc_first_order="x",
        acc_second_order="x",
        weight="x",
        time_step="scalar",
        weight_decay=0.1,
        beta1=0.9,
        epsilon=1e-7,
    ),
    **spread(
        "adam_updater lamb_updater",
        acc_first_order="x",
        acc_second_order="x",
        weight="x",
        time_step="scalar",
        weight_decay=0.1,
        beta1=0.9,
        beta2=0.9,
        epsilon=1e-7,
    ),
    **spread(
        "adam_var_update",
        t="x",
        x="x",
        r1="scalar",
        r2="scalar",
        learning_rate=1.0,
        max_weight_norm=2.0,
    ),
}


def in_scope(name: str) -> None:
    with popxl.name_scope(name):
        popxl.constant(1.0)


def on_ipu(number: int) -> None:
    with popxl.ipu(number):
        pass


def session(ir: Any, device_desc: Any, weights_to_host_on_exit: Any) -> None:
    popxl.Session(ir, device_desc, weights_to_host_on_exit)


REPLACED = object()
"""Stands for an argument that fits the program of `on_session`."""


def on_session(method: str, **arguments: Any) -> None:
    """Call a method of the open session of a program that adds one to what it loads."""
    ir = popxl.Ir()
    with ir.main_graph:
        load = popxl.h2d_stream((2,), popxl.float32)
        store = popxl.d2h_stream((2,), popxl.float32)
        weight = popxl.variable([1.0, 1.0])
        ops.host_store(store, ops.host_load(load) + weight)
    proper: dict[str, Any] = {
        "inputs": {load: np.ones(2, np.float32)},
        "outputs": {store: np.ones(2, np.float32)},
        "downcast_inputs": True,
        "tensor": weight,
        "tensors": [weight],
    }
    with popxl.Session(ir) as opened:
        filled = {k: proper[k] if v is REPLACED else v for k, v in arguments.items()}
        getattr(opened, method)(**filled)


def session_method(name: str) -> Callable[..., Any]:
    # A context of its own: the graph of another program is open around the call.
    return lambda **arguments: Context().run(on_session, name, **arguments)


VARIADIC = ("maximum", "minimum")
PROPER = as_is(REPLACED)
OTHERS: dict[str, tuple[Callable[..., Any], Arguments]] = {
    **{
        function.__name__: (
            function,
            given(data=[1.0], dtype=FLOAT, name=named("n"), downcast=True),
        )
        for function in (popxl.variable, popxl.constant)
    },
    "replica_grouping of a variable": (
        lambda grouping: popxl.variable([1.0], replica_grouping=grouping),
        given(grouping="replicas"),
    ),
    **{
        function.__name__: (function, given(shape=(2,), dtype=FLOAT, name=named("n"), wrap=False))
        for function in (popxl.h2d_stream, popxl.d2h_stream)
    },
    **{
        name: (
            lambda one, other, name=name: getattr(ops, name)(one, other),
            given(one="two", other="two"),
        )
        for name in VARIADIC
    },
    "create_seeds": (
        popxl.create_seeds,
        given(seed=3, offset=1, batches_per_step=2, gradient_accumulation_factor=1, replicas=1),
    ),
    "from_name": (popxl.dtype.from_name, given(name=named("int8"))),
    "strides": (
        lambda owner, shape: owner.strides(shape),
        given(owner="x", shape=(2, 3)),
    ),
    "name_scope": (in_scope, given(name=named("n"))),
    "ipu": (on_ipu, given(number=1)),
    "in_sequence": (popxl.in_sequence, given(mode=True)),
    "TensorSpec": (popxl.TensorSpec, given(shape=(2,), dtype=FLOAT, meta_shape=())),
    "as_dtype": (popxl.dtype.as_dtype, given(type_value=named("int8"))),
    "Ir": (popxl.Ir, given(replication=1)),
    "replica_grouping": (
        lambda owner, stride, group_size: owner.replica_grouping(stride, group_size),
        given(owner="ir", stride=1, group_size=1),
    ),
    "replica_grouping_from_assignments": (
        lambda owner, assignment: owner.replica_grouping_from_assignments(assignment),
        given(owner="ir", assignment=[0]),
    ),
    "uint64_to_two_uint32": (popxl.random_seed.uint64_to_two_uint32, given(num=3)),
    "two_uint32_to_uint64": (popxl.random_seed.two_uint32_to_uint64, given(a=1, b=2)),
    "Session": (
        session,
        given(ir="ir", device_desc=named("cpu"), weights_to_host_on_exit=True),
    ),
    "run": (session_method("run"), given(inputs=PROPER, downcast_inputs=PROPER)),
    "run_with_outputs": (
        session_method("run_with_outputs"),
        given(inputs=PROPER, outputs=PROPER),
    ),
    "get_tensor_data": (session_method("get_tensor_data"), given(tensor=PROPER)),
    "get_tensors_data": (session_method("get_tensors_data"), given(tensors=PROPER)),
    "write_variable_data": (
        session_method("write_variable_data"),
        given(tensor=PROPER, data=[1.0, 2.0]),
    ),
    "write_variables_data": (session_method("write_variables_data"), given(tensors={})),
    "create_graph": (
        lambda owner, fn: owner.create_graph(fn),
        given(owner="ir", fn=as_is(lambda: None)),
    ),
    "create_empty_graph": (
        lambda owner, name: owner.create_empty_graph(name),
        given(owner="ir", name=named("n")),
    ),
    "get_tensor": (
        lambda owner, tensor_id: owner.get_tensor(tensor_id),
        given(owner="main", tensor_id=named("x")),
    ),
    "hooks": (
        lambda owner, hook: owner.remove_op_created_hook(owner.register_op_created_hook(hook)),
        given(owner="main", hook=as_is(lambda op: None)),
    ),
}
OWN = {"owner"}
"""The argument of the functions above that is the object whose method is called."""

WRONG: dict[str, Callable[[Home], Any]] = {
    **{
        repr(value): as_is(value)
        for value in (
            *("text", None, 1.5, 99, -99, [99], [-99], (0, 0), ["a"], [None], [], {}, {"a": 1}),
            *(float("nan"), 1j, True, 0, (1,) * 9, b"bytes", {1}, int, len, [[1], [1, 2]]),
        )
    },
    "object": as_is(object()),
    "array": as_is(np.ones(5)),
    "array of text": as_is(np.array(["a"])),
    "array of objects": as_is(np.array([None])),
    "empty array": as_is(np.ones(0)),
    "iterator": lambda h: iter((7,)),
    "matrix": lambda h: h.x,
    "integers": lambda h: h.numbers,
    "scalar": lambda h: h.scalar,
    "images": lambda h: h.images,
    "tensors": lambda h: [h.x, h.two],
    "another graph's": lambda h: h.graph.inputs[0],
    "graph": lambda h: h.graph,
    "Ir": lambda h: h.ir,
    "stream": lambda h: h.load,
}


FAMILIES: tuple[Any, ...] = (ops, ops.var_updates, ops.collectives)


def functions() -> Iterator[Any]:
    for name, arguments in OPS.items():
        family = next(each for each in FAMILIES if name in each.__all__)
        yield pytest.param(getattr(family, name), arguments, id=name)
    for name, (function, arguments) in OTHERS.items():
        yield pytest.param(function, arguments, id=name)


def test_the_table_has_every_op() -> None:
    infos = {"CallSiteInfo", "ConditionalInfo", "RepeatInfo"}
    elsewhere = {*infos, "PadType", "collectives", "var_updates", *VARIADIC}
    assert set(OPS) == {name for family in FAMILIES for name in family.__all__} - elsewhere


@pytest.mark.parametrize(("function", "arguments"), [*functions()])
def test_wrong_arguments_end_in_errors_of_weft(
    function: Callable[..., Any], arguments: Arguments
) -> None:
    h = home()

    def call(**changed: Callable[[Home], Any]) -> None:
        with h.main:
            function(**{k: value(h) for k, value in {**arguments, **changed}.items()})

    call()
    for argument in arguments:
        for label, wrong in WRONG.items():
            if argument in OWN:
                continue
            try:
                call(**{argument: wrong})
            except Exception as error:
                is_located = isinstance(error, weft.WeftError) and __file__ in str(error)
                if not is_located:
                    pytest.fail(f"{argument} of {label}: {error!r}")


# Axes


def reduced(name: str, h: Home, axis: Any) -> popxl.Tensor:
    made: popxl.Tensor = getattr(ops, name)(h.x, axis)
    return made


AXES: dict[str, Callable[[Home, Any], Any]] = {
    "transpose": lambda h, axis: ops.transpose(h.x, (axis, 1)),
    "transpose_": lambda h, axis: ops.transpose_(h.x, (0, axis)),
    "squeeze": lambda h, axis: ops.squeeze(h.column, [axis]),
    "squeeze_": lambda h, axis: ops.squeeze_(h.column, axis),
    "slice": lambda h, axis: ops.slice(h.x, 0, 1, axis=axis),
    "slice_": lambda h, axis: ops.slice_(h.x, [0], [1], axis=[axis]),
    "concat": lambda h, axis: ops.concat([h.x, h.x], axis),
    "concat_": lambda h, axis: ops.concat_([h.x, h.x], axis),
    "split": lambda h, axis: ops.split(h.x, 1, axis),
    "gather": lambda h, axis: ops.gather(h.x, [0], axis),
    "gather with zeros": lambda h, axis: ops.gather(h.x, [0], axis, zero_OOR=True),
    "scatter": lambda h, axis: ops.scatter(h.x, h.places, h.x, axis),
    "scatter_reduce": lambda h, axis: ops.scatter_reduce(
        h.x, h.places, "sum", axis=axis, axis_size=2
    ),
    "scatter_reduce to values": lambda h, axis: ops.scatter_reduce(
        h.x, h.places, "sum", h.x, axis=axis
    ),
    "dynamic_slice": lambda h, axis: ops.dynamic_slice(h.x, h.one, axes=[axis], sizes=[1]),
    "dynamic_update": lambda h, axis: ops.dynamic_update(h.x, h.one, h.x[:1], [axis], [1]),
    "dynamic_update_": lambda h, axis: ops.dynamic_update_(h.x, h.one, h.x[:1], [axis], [1]),
    "softmax": lambda h, axis: ops.softmax(h.x, axis),
    "argmax": lambda h, axis: ops.argmax(h.x, axis),
    "argmin": lambda h, axis: ops.argmin(h.x, axis),
    "cumsum": lambda h, axis: ops.cumsum(h.x, axis),
    "topk": lambda h, axis: ops.topk(h.x, 1, axis),
    **{name: functools.partial(reduced, name) for name in REDUCTIONS.split()},
}


@pytest.mark.parametrize("axis", [2, 9, -3, -99])
@pytest.mark.parametrize("case", AXES)
def test_axes_out_of_range_are_refused(case: str, axis: int) -> None:
    h = home()
    message = rf"{case.split()[0]}: .*shape=\(2, .\).* has no axis {axis}: say one from -2 to 1"
    with h.main, pytest.raises(popart, match=message) as caught:
        AXES[case](h, axis)
    assert __file__ in str(caught.value)


@pytest.mark.parametrize("axis", ["a", 1.0, True], ids=str)
@pytest.mark.parametrize("case", AXES)
def test_axes_are_whole_numbers(case: str, axis: Any) -> None:
    h = home()
    with h.main, pytest.raises(TypeError, match=f"{case.split()[0]}: .*must be"):
        AXES[case](h, axis)


def test_axes_count_from_both_ends() -> None:
    h = home()
    assert [axis_of("op", h.x, axis) for axis in (0, 1, -1, -2, np.int64(1))] == [0, 1, 1, 0, 1]
    assert [axis_of("op", h.x, axis, added=1) for axis in (2, -1, -3)] == [2, 2, 0]
    assert axes_of("op", h.x, (-1, 0)) == (1, 0)
    assert axes_of("op", h.x, 1) == (1,)
    with pytest.raises(popart, match=r"op: the axes \[1, -1\] name one of .* twice"):
        axes_of("op", h.x, (1, -1))
    with pytest.raises(popart, match="has no axis 0: it is a scalar, which has none"):
        axis_of("op", h.scalar, 0)
    with pytest.raises(popart, match="with a new axis has no axis 3: say one from -3 to 2"):
        axis_of("op", h.x, 3, added=1)


def test_the_new_axis_of_onehot_is_checked() -> None:
    h = home()
    with h.main:
        assert ops.onehot(h.numbers, 3, [0.0, 1.0], axis=-2).shape == (3, 2)
        with pytest.raises(popart, match=r"onehot: .* has no axis 2: say one from -2 to 1"):
            ops.onehot(h.numbers, 3, [0.0, 1.0], axis=2)


SIZES: dict[str, tuple[str, Callable[[Home], Any]]] = {
    "too many sizes": (
        "one index and one size for each",
        lambda h: ops.dynamic_slice(h.x, h.one, [0], [2, 3]),
    ),
    "too large": (
        "a block of size 5 along axis 0 does not fit",
        lambda h: ops.dynamic_slice(h.x, h.one, [0], [5]),
    ),
    "below 1": ("must be at least 1", lambda h: ops.dynamic_slice(h.x, h.one, [0], [0])),
    "a fraction in a shape": (
        "must be a whole number",
        lambda h: ops.reshape(h.x, np.array([3.0, 2.0])),
    ),
    "a text for a shape": ("must be a list", lambda h: popxl.h2d_stream(h.text, popxl.float32)),
    "an unknown padding": ("conv: pad_type", lambda h: ops.conv(h.images, h.filters, pad_type="x")),
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes_are_checked(case: str) -> None:
    message, function = SIZES[case]
    h = home()
    with h.main, pytest.raises((ValueError, TypeError), match=message):
        function(h)


# Values, devices, contexts

LOSSY: dict[str, Any] = {
    "number": 1.5,
    "NumPy's number": np.float32(1.5),
    "array": np.array([1.5, 2.0]),
    "list": [1.5, 2.0],
    "infinity": np.float64(np.inf),
}


@pytest.mark.parametrize("value", LOSSY.values(), ids=LOSSY)
def test_fractions_are_never_cut_off_in_silence(value: Any) -> None:
    h = home()
    with h.main:
        for build in (
            lambda: h.numbers + value,
            lambda: value - h.numbers,
            lambda: popxl.variable(value, popxl.int32),
            lambda: popxl.constant(value, popxl.uint8),
        ):
            with pytest.raises(ValueError, match=r"cannot: (cast|use)"):
                build()
        assert (h.numbers + np.float32(2)).dtype == popxl.int32


CUT: dict[str, Callable[[Home], Any]] = {
    "increment_mod": lambda h: ops.increment_mod(h.numbers, 0.5, 3),
    "increment_mod, modulus": lambda h: ops.increment_mod(h.numbers, 1, 2.5),
    "increment_mod_": lambda h: ops.increment_mod_(h.numbers, 0.5, 3),
    "clip": lambda h: ops.clip(h.numbers, 0.5, 1.7),
    "clip, NaN": lambda h: ops.clip(h.numbers, math.nan),
    "clamp": lambda h: ops.clamp(h.numbers, max=np.float32(1.7)),
    "clip_": lambda h: ops.clip_(h.numbers, 0.5),
    "scaled_add": lambda h: ops.scaled_add(h.numbers, h.numbers, 0.5),
    "scaled_add_": lambda h: ops.scaled_add_(h.numbers, h.numbers, b=0.5),
    "accumulate_": lambda h: ops.var_updates.accumulate_(h.numbers, h.numbers, 0.5),
    "accumulate_square_": lambda h: ops.var_updates.accumulate_square_(h.numbers, h.numbers, 0.5),
    "accumulate_mean_": lambda h: ops.var_updates.accumulate_mean_(h.numbers, h.numbers, 1.0),
    "accumulate_moving_average_": lambda h: ops.var_updates.accumulate_moving_average_(
        h.numbers, h.numbers, 0.5
    ),
    "accumulator_scale_": lambda h: ops.var_updates.accumulator_scale_(h.numbers, 0.5),
    "arange": lambda h: ops.arange(0, 3, 0.5, popxl.int32),
    "dropout": lambda h: ops.dropout(h.numbers, h.seed, 0.5),
    "pow": lambda h: ops.pow(h.numbers, 0.5),
    "where": lambda h: ops.where(h.bools, h.numbers, 0.5),
}


@pytest.mark.parametrize("case", CUT)
def test_tensors_of_integers_refuse_what_would_be_cut_off(case: str) -> None:
    h = home()
    with h.main, pytest.raises(ValueError, match=r"fraction|cannot|floats"):
        CUT[case](h)


def test_whole_floats_are_integers() -> None:
    def build(ir: popxl.Ir) -> list[popxl.Tensor]:
        n = popxl.variable([1, 5])
        return [ops.increment_mod(n, 2.0, 3.0), ops.clip(n, 2.0, 4.0), ops.scaled_add(n, n, 2.0)]

    found = results("cpu", build)
    assert [value.tolist() for value in found] == [[0, 1], [2, 4], [3, 15]]
    assert all(value.dtype == np.int32 for value in found)


def test_subsample_takes_strides_for_the_first_axes() -> None:
    h = home()
    with h.main:
        x = popxl.variable(np.ones((4, 3)))
        for strides, shape in ((2, (2, 3)), ([2], (2, 3)), ([], (4, 3)), ([3, 2], (2, 2))):
            assert ops.subsample(x, strides).shape == shape
            assert ops.subsample_(x, strides).shape == shape
        for wrong in ([2, 1, 1], -2, [1, 0]):
            with pytest.raises(ValueError, match="stride"):
                ops.subsample(x, wrong)


@pytest.mark.parametrize("device", ["ipu", "", "NumPy"])
def test_unknown_devices_are_refused_with_those_there_are(device: str) -> None:
    ir = popxl.Ir()
    with pytest.raises(UnknownPluginError) as caught:
        popxl.Session(ir, device)
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert all(name in message for name in (repr(device), "cpu, ipu_model, ipu_hw", "numpy"))
    assert __file__ in message


def test_devices_are_texts() -> None:
    with pytest.raises(TypeError, match=r"the device of a session must be a text, not \['cpu'\]"):
        popxl.Session(popxl.Ir(), ["cpu"])  # type: ignore[arg-type]


WRONG_NAME: Any = 1.5


@pytest.mark.parametrize(
    "context",
    [lambda: popxl.name_scope(WRONG_NAME), lambda: popxl.ipu(WRONG_NAME)],
    ids=["name_scope", "ipu"],
)
def test_contexts_refuse_where_they_are_made(
    context: Callable[[], AbstractContextManager[None]],
) -> None:
    with pytest.raises(TypeError, match="must be") as caught:
        context()
    assert __file__ in str(caught.value)


def test_name_scope_is_also_a_decorator() -> None:
    @popxl.name_scope("inner")
    def build() -> popxl.Tensor:
        return popxl.constant(1.0, name="c")

    ir = popxl.Ir()
    with ir.main_graph:
        assert [build().id for _ in range(2)] == ["inner/c", "inner/c__t1"]


class Weights(NamedTuple):
    W: Any
    b: Any


def test_named_tuples_stay_what_they_are() -> None:
    h = home()
    seen: list[Any] = []

    def build(weights: Any) -> popxl.Tensor:
        seen.append(weights)
        total: popxl.Tensor = weights.W + weights.b
        return total

    with h.main:
        graph = h.ir.create_graph(build, Weights(h.two, h.two))
    assert type(seen[0]) is Weights
    assert [tensor.name for tensor in graph.inputs] == ["weights_0", "weights_1"]


def gradients(h: Home) -> tuple[Any, Any, Any]:
    """Return a gradient graph with calls, in which the same tensor was passed twice."""
    graph = h.ir.create_graph(lambda x, y: x * y, h.two, h.two)
    call = ops.call_with_info(graph, h.two, h.two)
    info = transforms.autodiff(graph)
    grad = ops.call_with_info(info.graph, np.ones(2), inputs_dict=info.inputs_dict(call))
    return info, call, grad


def test_the_sum_of_gradients_is_built_where_the_call_is() -> None:
    h = home()
    with h.main:
        info, call, grad = gradients(h)
    total = info.fwd_parent_ins_to_grad_parent_outs(call, grad)[h.two]
    assert total in h.main

    def build(ir: popxl.Ir) -> list[popxl.Tensor]:
        inner = Home(ir=ir, two=popxl.variable([1.0, 2.0]))
        info, call, grad = gradients(inner)
        with ir.create_empty_graph():
            found = info.fwd_parent_ins_to_grad_parent_outs(call, grad)
        return [found[inner.two]]

    np.testing.assert_allclose(results("cpu", build)[0], [2, 4])


def test_no_sum_is_built_in_a_graph_that_was_called() -> None:
    h = home()
    kept: list[Any] = []

    def build(x: popxl.Tensor) -> popxl.Tensor:
        kept.extend(gradients(Home(ir=h.ir, two=x)))
        gradient: popxl.Tensor = kept[2].outputs[0]
        return gradient

    with h.main:
        outer = h.ir.create_graph(build, h.two)
        ops.call(outer, h.two)
    info, call, grad = kept
    with pytest.raises(popart, match="has been called or differentiated"):
        info.fwd_parent_ins_to_grad_parent_outs(call, grad)


# Streams that wrap around


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("uses", [3, 4, 5, 7])
def test_streams_wrap_around_on_request(uses: int, count: int) -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = count
    with ir.main_graph, popxl.in_sequence():
        load = popxl.h2d_stream((), popxl.float32, wrap=True)
        store = popxl.d2h_stream((), popxl.float32, wrap=True)
        for number in range(uses):
            ops.host_store(store, ops.host_load(load) + 10.0 * number)
    data = np.arange(count, dtype=np.float32) + 1
    expected = np.zeros(count)
    for number in range(uses):
        expected[number % count] = data[number % count] + 10 * number
    with popxl.Session(ir) as opened:
        for _ in range(2):
            found = opened.run({load: data if count > 1 else data[0]})[store]
            np.testing.assert_array_equal(np.atleast_1d(found), expected)


def test_streams_wrap_around_in_a_repeat() -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = 2
    with ir.main_graph:
        load = popxl.h2d_stream((), popxl.float32, wrap=True)
        store = popxl.d2h_stream((), popxl.float32, wrap=True)
        total = popxl.variable(0.0)

        def build(x: popxl.Tensor) -> popxl.Tensor:
            y = x + ops.host_load(load)
            ops.host_store(store, y)
            return y

        ops.repeat(ir.create_graph(build, total), 5, total)
    with popxl.Session(ir) as opened:
        found = opened.run({load: np.array([1, 10], np.float32)})[store]
    assert found.tolist() == [23, 22]
