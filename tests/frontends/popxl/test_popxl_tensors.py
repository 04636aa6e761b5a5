"""Handles: their attributes, operators and keys; dtypes, and tensors from values."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pickle
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from popxl_programs import results

import weft_popxl as popxl
from weft_popxl import ops

DATA = np.arange(24, dtype=np.float32).reshape(4, 2, 3)


@pytest.fixture
def ir() -> Any:
    made = popxl.Ir()
    with made.main_graph:
        yield made


def test_what_a_tensor_says_of_itself(ir: popxl.Ir) -> None:
    x = popxl.variable(DATA, name="x")
    assert (x.shape, x.rank, x.nelms, len(x), x.dtype) == ((4, 2, 3), 3, 24, 4, popxl.float32)
    assert x.strides() == DATA.astype(np.float32).strides == (24, 12, 4)
    assert x.strides((2, 5)) == (20, 4)
    assert x.meta_shape == ()
    assert x.spec == popxl.TensorSpec((4, 2, 3), popxl.float32)
    assert x.ir is ir
    assert x.T.shape == (3, 2, 4)
    assert repr(x) == "Variable[id=x shape=(4, 2, 3) dtype=float32]"
    assert x == x
    assert len({x, x, x + 1}) == 2


@pytest.mark.parametrize(
    ("data", "options", "dtype"),
    [
        (1, {}, popxl.int32),
        (1.5, {}, popxl.float32),
        (True, {}, popxl.bool),
        ([1, 2], {}, popxl.int32),
        (np.float64(1), {}, popxl.float32),
        (np.int64(1), {}, popxl.int32),
        (np.uint64(1), {}, popxl.uint32),
        (np.int64(1), {"downcast": False}, popxl.int64),
        (np.float64(1), {"dtype": popxl.float64}, popxl.float64),
        (1, {"dtype": popxl.float16}, popxl.float16),
        (np.float16(1), {}, popxl.float16),
        (np.ones(2, np.int8), {"dtype": "float32"}, popxl.float32),
    ],
)
def test_dtypes_of_variables_and_constants(
    ir: popxl.Ir, data: Any, options: dict[str, Any], dtype: popxl.dtype
) -> None:
    assert popxl.variable(data, **options).dtype is dtype
    assert popxl.constant(data, **options).dtype is dtype


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.float32, popxl.float32),
        (np.dtype("int8"), popxl.int8),
        ("bool", popxl.bool),
        (float, popxl.float32),
        (int, popxl.int64),
        (bool, popxl.bool),
        (popxl.uint16, popxl.uint16),
        ("torch.float16", popxl.float16),
        (np.zeros(1, np.uint8), popxl.uint8),
    ],
)
def test_dtypes_are_found(value: Any, dtype: popxl.dtype) -> None:
    assert popxl.dtype.as_dtype(value) is dtype


def test_what_a_dtype_says_of_itself() -> None:
    assert popxl.float32.as_numpy() == np.float32
    assert [d.name for d in (popxl.bool, popxl.int64)] == ["bool", "int64"]
    assert (popxl.float16.is_float, popxl.float16.is_int, popxl.float16.is_signed) == (
        True,
        False,
        True,
    )
    assert (popxl.uint8.is_int, popxl.uint8.is_signed, popxl.bool.is_int) == (True, False, False)
    assert popxl.float64.itemsize == 8
    assert pickle.loads(pickle.dumps(popxl.int8)) is popxl.int8
    assert repr(popxl.int8) == "popxl.int8"


KEYS: list[Any] = [
    0,
    -1,
    np.int64(2),
    np.array(1),
    slice(1, 3),
    slice(None, None, -1),
    slice(10, 0, -2),
    (1, 0),
    (slice(None), -1, slice(0, 2)),
    (..., 0),
    (1, ..., slice(None, None, 2)),
    [3, 0, 3],
    np.array([[0, 1], [2, 3]]),
]
MASKS: list[Any] = [
    np.array([True, False, True, False]),
    DATA[:, :, :1] > 5,
    DATA > 7,
    [True, True, False, False],
]


def test_keys_are_those_of_numpy_and_masks_leave_zeros(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        x = popxl.variable(DATA)
        index = popxl.constant([1, 2])
        masked = [x[mask] for mask in MASKS]
        return [*(x[key] for key in KEYS), x[index], *masked, x[x > 7.0]]

    found = results(backend, build)
    expected = [DATA[key] for key in KEYS] + [DATA[[1, 2]]]
    for mask in [*MASKS, DATA > 7]:
        chosen = np.asarray(mask)
        chosen = chosen.reshape(chosen.shape + (1,) * (3 - chosen.ndim))
        expected.append(np.where(chosen, DATA, 0))
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, wanted)


OPERATORS: list[Any] = [
    lambda x: x + 1,
    lambda x: 1 + x,
    lambda x: x - 2,
    lambda x: 2 - x,
    lambda x: x * 3,
    lambda x: 3 * x,
    lambda x: x / 4,
    lambda x: 4 / (x + 1),
    lambda x: x % 5,
    lambda x: 7 % (x + 1),
    lambda x: x**2,
    lambda x: 1.1**x,
    lambda x: -x,
    lambda x: abs(x - 3),
    lambda x: x > 3,
    lambda x: x >= 3,
    lambda x: x < 3,
    lambda x: x <= 3,
    lambda x: ~(x > 3),
    lambda x: (x > 3) & (x < 9),
    lambda x: (x < 3) | (x > 9),
    lambda x: x @ np.ones((3, 2), np.float32),
    lambda x: np.ones((5, 2), np.float32) @ x,
    lambda x: x * [1.0, 2.0, 3.0],
    lambda x: np.ones(3, np.float32) - x,
    lambda x: x.T,
    lambda x: x.reshape((2, -1)),
    lambda x: x.transpose((1, 0, 2)),
    lambda x: x.flatten(),
    lambda x: x[:1].squeeze(),
]


def test_operators_and_methods(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        x = popxl.variable(DATA)
        return [function(x) for function in OPERATORS]

    for number, (found, function) in enumerate(
        zip(results(backend, build), OPERATORS, strict=True)
    ):
        wanted = function(DATA)
        assert found.shape == wanted.shape, number
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=str(number))


def test_integers_stay_integers(backend: str) -> None:
    values = np.array([7, -7, 5], np.int32)

    def build(ir: popxl.Ir) -> Any:
        x = popxl.variable(values)
        return [x / 2, x % 3, x * 2, 1 + x, ops.cast(x, popxl.float32) / 2]

    found = results(backend, build)
    assert [each.dtype.name for each in found] == ["int32"] * 4 + ["float32"]
    np.testing.assert_array_equal(found[0], [3, -3, 2])
    np.testing.assert_array_equal(found[1], [1, -1, 2])


EXPORTED = """
Ir Graph Module Session Tensor TensorSpec TensorByRef HostToDeviceStream DeviceToHostStream
variable constant graph_input graph_output h2d_stream d2h_stream in_sequence name_scope gcg gmg
gir get_current_graph get_main_graph bool int8 int16 int32 int64 uint8 uint16 uint32 uint64
float16 float32 float64 dtype ops transforms ipu io_tiles popart_exception
"""
OPS = """
add sub mul div pow negate abs exp log sqrt tanh sin cos relu gelu softmax matmul sum mean max
where cast transpose reshape flatten squeeze slice concat split gather detach identity call
call_with_info repeat repeat_with_info host_load host_store init nll_loss
nll_loss_with_softmax_grad scaled_add scaled_add_ conditional conditional_with_info add_ relu_
gelu_ reshape_ transpose_ slice_ concat_ geluerf swish min prod logsumexp l1 l2 sumsquare median
argmax argmin maximum clip sign floor ceil fmod equal greater logical_and logical_or logical_not
isnan isinf isfinite onehot topk cumsum scatter scatter_reduce dynamic_slice dynamic_update
layer_norm group_norm conv average_pool max_pool dropout random_normal random_uniform subsample
increment_mod print_tensor tied_gather groupedgather shaped_dropout conv_transpose histogram
interpolate roi_align
"""
UPDATES = """
accumulate_ copy_var_update_ accumulate_mean_ accumulate_square_ accumulate_moving_average_
accumulate_moving_average_square_ accumulator_scale_ accumulator_zero_ adam_updater
adam_var_update lamb_updater adamax_updater sparse_accumulate_
"""


def test_everything_promised_is_there() -> None:
    assert [name for name in EXPORTED.split() if not hasattr(popxl, name)] == []
    assert [name for name in OPS.split() if name not in ops.__all__] == []
    assert [name for name in UPDATES.split() if name not in ops.var_updates.__all__] == []
    assert popxl.tensor.Variable is popxl.Variable
    assert ops.call.CallSiteInfo is ops.CallSiteInfo
    module = importlib.import_module("weft_popxl.ops.call")
    assert module.CallSiteInfo is ops.CallSiteInfo
    assert set(popxl.__all__) <= set(dir(popxl))


def test_every_public_op_says_what_it_does() -> None:
    functions = set(ops.__all__) - {"PadType"}
    missing = [name for name in functions if not getattr(ops, name).__doc__]
    assert missing == []


def written(name: str, function: Any) -> str:
    """Return a function with its parameters and their defaults as the page has it."""
    parts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(p.startswith("*") for p in parts):
            parts.append("*")
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        star = "**" if parameter.kind is parameter.VAR_KEYWORD else star
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parts.append(f"{star}{parameter.name}{default}")
    return f"`{name}({', '.join(parts)})`"


def test_every_function_is_on_the_page_with_its_parameters() -> None:
    text = (Path(__file__).parents[3] / "docs" / "popxl.md").read_text()
    infos = {"CallSiteInfo", "ConditionalInfo", "PadType", "RepeatInfo", "getitem"}
    families = {"collectives", "var_updates"}
    aliases = {"clamp", "rename"}
    owners = {each: each.__all__ for each in (ops, ops.var_updates, ops.collectives)}
    functions = {
        name: getattr(owner, name)
        for owner, names in owners.items()
        for name in set(names) - infos - families - aliases
    }
    functions.update(autodiff=popxl.transforms.autodiff, create_seeds=popxl.create_seeds)
    of_popxl = (
        "variable constant graph_input graph_output h2d_stream d2h_stream in_sequence Session"
    )
    functions.update({name: getattr(popxl, name) for name in of_popxl.split()})
    methods = {
        popxl.Session: ("run", "run_with_outputs", "write_variables_data"),
        popxl.Ir: ("create_graph", "dot_checkpoint", "replica_grouping_from_assignments"),
        popxl.Tensor: ("diag", "strides"),
    }
    for owner, names in methods.items():
        functions.update({name: getattr(owner, name) for name in names})
    missing = [
        wanted for wanted in map(written, functions, functions.values()) if wanted not in text
    ]
    assert missing == []
    names = {*aliases, *popxl.transforms.__all__, "half", "from_name"}
    assert [name for name in names if f"`{name}`" not in text and f"`{name}(" not in text] == []


def test_examples_in_docstrings_run() -> None:
    found = pkgutil.walk_packages(popxl.__path__, "weft_popxl.")
    modules = [popxl, *(importlib.import_module(module.name) for module in found)]
    outcomes = [doctest.testmod(module) for module in modules]
    assert sum(each.failed for each in outcomes) == 0
    assert sum(each.attempted for each in outcomes) > 3
