"""Numbers of 8 bits or fewer, which no device computes with: casts, and what moves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from weft.errors import DTypeError
from weft_onnx import load

FLOATS = (
    TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ,
)  # fmt: skip
KINDS = (
    *FLOATS, TensorProto.FLOAT8E8M0, TensorProto.FLOAT4E2M1, TensorProto.INT4, TensorProto.UINT4,
)  # fmt: skip
SHAPE = (2, 3, 4)


def name_of(kind: int) -> str:
    return str(TensorProto.DataType.Name(kind))


def dtype_of(kind: int) -> Any:
    return helper.tensor_dtype_to_np_dtype(kind)


def numbers_of(dtype: Any) -> Any:
    """Return all finite numbers of a dtype as float64, in order."""
    with np.errstate(all="ignore"):
        found = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    return np.unique(found[np.isfinite(found)] + 0.0)


def model(nodes: Any, inputs: Any, outputs: Any, constants: Any = (), opset: int = 24) -> Any:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "few bits", [info(*each) for each in inputs], [info(*each) for each in outputs],
        list(constants),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def cast(x: Any, source: int, target: int, **attributes: Any) -> Any:
    node = helper.make_node("Cast", ["x"], ["y"], to=target, **attributes)
    made = model([node], [("x", source, x.shape)], [("y", target, x.shape)])
    return load(made).run({"x": x})["y"]


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("target", FLOATS, ids=name_of)
def test_casts_of_float64_round_once_and_saturate(target: int, saturate: int) -> None:
    dtype = dtype_of(target)
    numbers = numbers_of(dtype)
    low, high = numbers[:-1], numbers[1:]
    middle = (low + high) / 2
    with np.errstate(all="ignore"):
        is_even = low.astype(dtype).view(np.uint8) & 1 == 0
    x = np.concatenate([middle, np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)])
    far = np.array([numbers[-1] * 1.5, -numbers[-1] * 1.5, np.inf, -np.inf, 1e300, np.nan])
    got = cast(np.concatenate([x, far]), TensorProto.DOUBLE, target, saturate=saturate)
    wide = got.astype(np.float64)
    want = np.concatenate([np.where(is_even, low, high), low, high])
    np.testing.assert_array_equal(wide[: x.size], want)
    most = numbers[-1] if saturate else np.float64(np.array(np.inf).astype(dtype))
    edge = np.array([most, -most, most, -most, most, np.nan])
    np.testing.assert_array_equal(wide[x.size :], edge)


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two_are_of_the_exact_number(mode: str) -> None:
    x = 3 * 2.0 ** np.arange(-100, 100)
    around = np.concatenate([np.nextafter(x, 0), x, np.nextafter(x, np.inf), x / 3])
    above = np.concatenate([x / 3 * 2 if mode == "down" else x / 3 * 4] * 3)
    if mode == "nearest":
        above[: x.size] = x / 3 * 2
    got = cast(around, TensorProto.DOUBLE, TensorProto.FLOAT8E8M0, round_mode=mode)
    np.testing.assert_array_equal(got.astype(np.float64), [*above, *(x / 3)])


def test_integers_of_4_bits_are_of_the_exact_number() -> None:
    x = np.array([3 - 2.0**-50, -3 + 2.0**-50, 7 - 2.0**-50, -8.0])
    got = cast(x, TensorProto.DOUBLE, TensorProto.INT4)
    np.testing.assert_array_equal(got.astype(int), [2, -2, 6, -8])


def bodies(kind: int) -> tuple[Any, Any]:
    """Return the body of a loop and that of a scan, which hand on what they are given."""

    def body(names: str, *inputs: Any) -> Any:
        nodes = [
            helper.make_node("Identity", [a], [f"{a}{n}"]) for n, a in enumerate(names.split())
        ]
        kinds = {each[0]: each[1:] for each in inputs}
        outputs = [(f"{a}{n}", *kinds[a]) for n, a in enumerate(names.split())]
        info = helper.make_tensor_value_info
        given, results = ([info(*each) for each in side] for side in (inputs, outputs))
        return helper.make_graph(nodes, "body", given, results)

    turn, on = ("turn", TensorProto.INT64, ()), ("on", TensorProto.BOOL, ())
    state, row = (("state", kind, SHAPE[1:]), ("row", kind, SHAPE[1:]))
    return body("on v v", turn, on, ("v", kind, SHAPE)), body("state row", state, row)


def moving(kind: int) -> dict[str, tuple[Any, Any, Any]]:
    """Return by name a node, its constants, and its last result as a function of the operand."""
    loop, scan = bodies(kind)
    dtype, node = dtype_of(kind), helper.make_node

    def ints(name: str, *numbers: int, shape: Any = None) -> Any:
        return helper.make_tensor(name, TensorProto.INT64, shape or [len(numbers)], numbers)

    number, widths = helper.make_tensor("c", kind, [], [2]), ints("w", 0, 1, 1, 0, 0, 1)
    pairs = ((0, 0), (1, 0), (1, 1))
    two = np.array(2).astype(dtype)
    quarter = helper.make_tensor("s", TensorProto.FLOAT, [], [0.25])
    return {
        "pad": (
            node("Pad", ["x", "w", "c"], ["y"]), [widths, number],
            lambda x: np.pad(x.view("u1"), pairs, constant_values=two.view("u1")).view(dtype),
        ),
        "edge": (
            node("Pad", ["x", "w"], ["y"], mode="edge"), [widths],
            lambda x: np.pad(x.view("u1"), pairs, "edge").view(dtype),
        ),
        "crop": (
            node("Pad", ["x", "w", "c"], ["y"]), [ints("w", 0, -1, 0, 0, 0, -1), number],
            lambda x: x[:, 1:, :-1],
        ),
        "dropout": (node("Dropout", ["x"], ["y"]), [], lambda x: x),
        "reshape": (
            node("Reshape", ["x", "w"], ["y"]), [ints("w", 6, 4)], lambda x: x.reshape(6, 4),
        ),
        "transpose": (node("Transpose", ["x"], ["y"]), [], lambda x: x.T),
        "loop": (
            node("Loop", ["w", "", "x"], ["last", "y"], body=loop), [ints("w", 3, shape=[1])],
            lambda x: np.stack([x] * 3),
        ),
        "scan": (
            node("Scan", ["c", "x"], ["last", "y"], body=scan, num_scan_inputs=1),
            [helper.make_tensor("c", kind, SHAPE[1:], [1] * 12)], lambda x: x,
        ),
        "dequantize": (
            node("DequantizeLinear", ["x", "s"], ["y"]), [quarter],
            lambda x: x.astype(np.float32) / 4,
        ),
    }  # fmt: skip


@pytest.mark.parametrize("form", list(moving(KINDS[0])))
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_they_are_moved_in_every_call(kind: int, form: str) -> None:
    dtype = dtype_of(kind)
    first = 120 if dtype.name.startswith("float8") else 0  # with infinities and NaN
    x = (np.arange(24, dtype=np.uint8) % (24 if first else 8) + first).view(dtype).reshape(SHAPE)
    node, constants, move = moving(kind)[form]
    want = move(x)
    result = TensorProto.FLOAT if want.dtype == np.float32 else kind
    loaded = load(model([node], [("x", kind, SHAPE)], [("y", result, want.shape)], constants))
    for _ in range(2):
        got = loaded.run({"x": x})["y"]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


@pytest.mark.parametrize("op_type", ["IsNaN", "IsInf"])
@pytest.mark.parametrize("kind", FLOATS, ids=name_of)
def test_what_is_no_number_is_found(kind: int, op_type: str) -> None:
    x = np.arange(256, dtype=np.uint8).view(dtype_of(kind))
    node = helper.make_node(op_type, ["x"], ["y"])
    made = model([node], [("x", kind, x.shape)], [("y", TensorProto.BOOL, x.shape)])
    want = (np.isnan if op_type == "IsNaN" else np.isinf)(x.astype(np.float32))
    np.testing.assert_array_equal(load(made).run({"x": x})["y"], want)


def test_complex_numbers_do_not_become_real() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    kinds = [("x", TensorProto.COMPLEX64, (1,))], [("y", TensorProto.FLOAT, (1,))]
    with pytest.raises(DTypeError, match="do not fit float32"):
        load(model([node], *kinds)).run({"x": np.ones(1, "complex64")})
