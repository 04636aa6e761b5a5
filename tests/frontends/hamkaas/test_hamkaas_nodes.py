"""Every node: what it takes, what it refuses while it is built, and what it computes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hamkaas_models import floats, index, values_of

import weft
import weft_hamkaas as hk
from weft.errors import WeftError
from weft_hamkaas import BufferTensor, ConstantTensor, InputTensor


def x(*shape: Any, type: Any = "float32", name: str = "x"):
    return InputTensor(name, type, shape)


def const(*shape: Any, seed: int = 0):
    return ConstantTensor(floats(*shape, seed=seed))


def number(value: int):
    return ConstantTensor(index(value))


INVALID = {
    # tensors
    "0 axes": (lambda: x(), "Unsupported tensor dimension: 0"),
    "4 axes": (lambda: x(1, 2, 3, 4), "Unsupported tensor dimension: 4"),
    "length 0": (lambda: x(2, 0), "Invalid tensor shape"),
    "negative length": (lambda: x(-2), "Invalid tensor shape"),
    "no integer": (lambda: x(2.5), "Invalid tensor shape"),
    "bool": (lambda: x(True), "Invalid tensor shape"),
    "no list": (lambda: InputTensor("x", "float32", 3), "Invalid tensor shape"),
    "int32": (lambda: x(2, type="int32"), "Unsupported tensor type: int32"),
    "float64": (lambda: x(2, type=np.float64), "Unsupported tensor type: float64"),
    "no type": (lambda: x(2, type=None), "Unsupported tensor type"),
    "Python's float": (lambda: x(2, type=float), "Unsupported tensor type"),
    "buffer, 0 axes": (lambda: BufferTensor("float32", []), "Unsupported tensor dimension: 0"),
    "buffer, 4 axes": (lambda: BufferTensor("float32", [1] * 4), "Unsupported tensor dimension"),
    "buffer, length 0": (lambda: BufferTensor("float32", [0]), "Invalid tensor shape"),
    "buffer, negative length": (lambda: BufferTensor("float32", [3, -2]), "Invalid tensor shape"),
    "buffer, int32": (lambda: BufferTensor("int32", [1]), "Unsupported tensor type: int32"),
    "buffer, float64": (lambda: BufferTensor("float64", [1]), "Unsupported tensor type"),
    "constant, 0 axes": (lambda: const(), "Unsupported tensor dimension: 0"),
    "constant, 4 axes": (lambda: const(1, 1, 1, 1), "Unsupported tensor dimension: 4"),
    "constant, empty": (lambda: const(2, 0), "Empty tensors are not supported"),
    "constant, int32": (lambda: ConstantTensor(np.ones(2, "i4")), "Unsupported tensor type: int32"),
    "constant, float64": (lambda: ConstantTensor(np.ones(2)), "Unsupported tensor type: float64"),
    "constant, list": (lambda: ConstantTensor([1.0]), "made of a tensor"),
    "constant, None": (lambda: ConstantTensor(None), "made of a tensor .* not of None"),
    "constant, op": (lambda: ConstantTensor(weft.placeholder((2,))), "made of a tensor"),
    # sums and products
    "sum, mixed": (lambda: x(2) + x(2, type="int64", name="y"), "Mixed-precision"),
    "sum, int64": (lambda: x(2, type="int64") + number(1), "Sum is supported for float32"),
    "sum, ranks": (lambda: x(2, 3) + x(3), "Shapes do not match for addition"),
    "sum, left is spread": (lambda: x(1, 7) + x(5, 7), "Shapes do not match for addition"),
    "sum, lengths": (lambda: x(5, 7) + x(2, 7), r"addition: \[5, 7\] vs \[2, 7\]"),
    "product, mixed": (lambda: x(2) * x(2, type="int64"), "Mixed-precision"),
    "product, int64": (lambda: x(2, type="int64") * number(1), "supported for float32"),
    "product, left is spread": (lambda: x(1) * x(2), "do not match for Hadamard product"),
    "relu, int64": (lambda: x(2, type="int64").relu(), "Only float32 tensors .* ReLU"),
    "silu, int64": (lambda: x(2, type="int64").silu(), "Only float32 tensors .* SiLU"),
    # matrix products
    "matmul, mixed": (lambda: x(2, 2) @ x(2, 2, type="int64"), "Mixed-precision"),
    "matmul, int64": (lambda: x(2, 2, type="int64") @ x(2, 2, type="int64"), "float32"),
    "matmul, lengths": (lambda: x(2, 3) @ x(2, 3), "do not match for multiplication"),
    "matmul, vector by matrix": (lambda: x(3) @ x(2, 4), "do not match for multiplication"),
    "matmul, vectors": (lambda: x(3) @ x(3), "Only matrices"),
    "matmul, matrix by vector": (lambda: x(2, 3) @ x(3), "Only matrices"),
    "matmul, batch by matrix": (lambda: x(2, 3, 4) @ x(4, 5), "Only matrices"),
    "matmul, vector by batch": (lambda: x(4) @ x(2, 4, 5), "Only matrices"),
    "matmul, batches": (lambda: x(2, 3, 4) @ x(3, 4, 5), r"Incompatible shapes .*\[2, 3, 4\]"),
    "matmul, batched lengths": (lambda: x(2, 3, 4) @ x(2, 3, 4), "do not match"),
    # views
    "slice, int64": (lambda: x(5, type="int64")[1:2], "Only float32 tensors .* slice"),
    "slice beyond the end": (lambda: x(5)[1:6], "End index 6 is out of bounds"),
    "slice backwards": (lambda: x(5)[2:1], "Start index 2 is greater or equal to end index 1"),
    "empty slice": (lambda: x(5)[0:0], "Start index 0 is greater or equal"),
    "slice after the end": (lambda: x(5)[5:5], "Start index 5 is out of bounds"),
    "slice from the end": (lambda: x(5)[-2:5], "Start index -2 is out of bounds"),
    "last element": (lambda: x(5)[-1], "Start index -1 is out of bounds"),
    "slice with a step": (lambda: x(5)[::2], "no step"),
    "index of floats": (lambda: x(5)[1.0], "is an integer"),
    "several indices": (lambda: x(5, 5)[1, 2], "is an integer"),
    "index of a bool": (lambda: x(5)[True], "is an integer"),
    "reshape, int64": (lambda: x(6, type="int64").reshape([2, 3]), "Only float32 .* reshape"),
    "reshape to less": (lambda: x(2, 3).reshape([4]), "Reshape tensor size mismatch: 6 vs 4"),
    "reshape to more": (lambda: x(2).reshape([2, 3]), "Reshape tensor size mismatch: 2 vs 6"),
    "reshape to 0": (lambda: x(2).reshape([0]), "Invalid shape"),
    "reshape to -1": (lambda: x(1).reshape([-1, -1]), "Invalid shape"),
    "reshape to what is left": (lambda: x(6).reshape([2, -1]), "every length is written out"),
    "reshape to None": (lambda: x(2).reshape(None), "a list of integers is wanted.*, not None"),
    "reshape to floats": (lambda: x(2).reshape([2.0]), r"integers is wanted.*, not \[2.0\]"),
    "reshape to a set": (lambda: x(6).reshape({2, 3}), "integers is wanted, as in .*, not {2, 3}"),
    "reshape to 4 axes": (lambda: x(2).reshape([1, 1, 1, 2]), "Unsupported tensor dimension"),
    "reshape to a number": (lambda: x(2).reshape(2), "Invalid shape"),
    "permute, int64": (lambda: x(2, type="int64").permute([0]), "Only float32 .* permute"),
    "permute too few": (lambda: x(2, 3).permute([0]), "same length as the input shape"),
    "permute twice": (lambda: x(2, 3).permute([0, 0]), "must be a permutation"),
    "permute from the end": (lambda: x(2, 3).permute([0, -1]), "must be a permutation"),
    "permute by a number": (lambda: x(2, 3).permute(1), "is a list of integers, as in .*, not 1"),
    "permute by None": (lambda: x(2, 3).permute(None), "is a list of integers, as in .*, not None"),
    "permute by text": (lambda: x(2, 3).permute("10"), "is a list of integers, as in .*, not '10'"),
    "permute by a set": (lambda: x(2, 3).permute({0, 1}), "is a list of integers, as in .*, not "),
    "permute by lists": (lambda: x(2, 3).permute([[0], 1]), r"a list of integers, .*, not \[\[0\]"),
    # replacements
    "replace, mixed": (lambda: x(4).replace(x(2, type="int64"), 0, 2), "Mixed-precision"),
    "replace, int64": (lambda: x(4, type="int64").replace(number(1), 0, 1), "float32"),
    "replace, ranks": (lambda: x(4, 2).replace(x(2), 0, 1), "Shapes do not match for replace"),
    "replace, lengths": (lambda: x(4, 2).replace(x(2, 3), 0, 2), "Shapes do not match"),
    "replace by more": (lambda: x(2).replace(x(3), 0, 3), "Shapes do not match for replace"),
    "replace at floats": (lambda: x(4).replace(x(2), const(1), const(1)), "must be of type int64"),
    "replace at a vector": (
        lambda: x(4).replace(x(2), x(2, type="int64"), 2), "must be scalars",
    ),
    "replace from 1.5": (lambda: x(4).replace(x(2), 1.5, 3), "is an integer"),
    "replace from None": (
        lambda: x(4).replace(x(2), None, 2), "begin of a slice is an integer, a node or a tensor",
    ),
    "replace to text": (lambda: x(4).replace(x(2), 0, "2"), "end of a slice is an .*, not '2'"),
    "replace by None": (lambda: x(4).replace(None, 0, 2), "a node or a tensor, not None"),
    "replace beyond": (lambda: x(4).replace(x(2), 3, 5), "begin is from 0 to 2"),
    "replace before": (lambda: x(4).replace(x(2), -1, 1), "begin is from 0 to 2"),
    "replace too many": (lambda: x(4).replace(x(2), 0, 3), "cannot be replaced by 2"),
    "replace in a constant": (lambda: const(4).replace(x(2), 0, 2), "ConstantTensor cannot be"),
    "replace in its view": (
        lambda: const(4).reshape([2, 2])[1:2].replace(x(1, 2), 0, 1), "ConstantTensor cannot be",
    ),
    # the later lab's
    "complex, mixed": (
        lambda: x(3, 2).complex_hadamard_product(x(3, 2, type="int64")), "Mixed-precision",
    ),
    "complex, int64": (
        lambda: x(2, type="int64").complex_hadamard_product(x(2, type="int64")), "float32",
    ),
    "complex, last axis": (lambda: x(3).complex_hadamard_product(x(3)), "real and imaginary"),
    "complex, its length": (lambda: x(2, 2).complex_hadamard_product(x(2, 1)), "real and imag"),
    "complex, shapes": (lambda: x(3, 2).complex_hadamard_product(x(4, 2)), "do not match"),
    "complex, left": (lambda: x(1, 2).complex_hadamard_product(x(4, 2)), "do not match"),
    "norm, mixed": (lambda: x(3).rms_norm(x(3, type="int64")), "Mixed-precision"),
    "norm, int64": (lambda: x(3, type="int64").rms_norm(x(3, type="int64")), "float32"),
    "norm, rank": (lambda: x(2, 3).rms_norm(x(2, 3)), "two vectors of one length"),
    "norm, lengths": (lambda: x(3).rms_norm(x(1)), "two vectors of one length"),
    "softmax, int64": (lambda: x(3, type="int64").sliced_softmax(1), "float32"),
    "softmax, prefix": (lambda: x(3).sliced_softmax(4), "4 elements are not a prefix"),
    "softmax, -1": (lambda: x(3).sliced_softmax(-1), "-1 elements are not a prefix"),
    "softmax, floats": (lambda: x(3).sliced_softmax(const(1)), "must be of type int64"),
    "softmax, vector": (lambda: x(3).sliced_softmax(x(3, type="int64")), "must be scalars"),
    "softmax, 1.0": (lambda: x(3).sliced_softmax(1.0), "prefix is an integer, .*, not 1.0"),
    "softmax, None": (lambda: x(3).sliced_softmax(None), "prefix is an integer, .*, not None"),
    "softmax, 65 bits": (lambda: x(3).sliced_softmax(2**63), "A prefix .* outside of -2\\*\\*63"),
    "softmax, all of 64 bits": (lambda: x(3).sliced_softmax(2**63 - 1), "922337203.* elements"),
    "replace, begin of 71 bits": (lambda: x(3).replace(x(1), 2**70, 2**70 + 1), "begin .* outside"),
    "replace, end of 71 bits": (lambda: x(3).replace(x(1), 0, -(2**70)), "end of .* outside"),
    "slice, 10,001 digits": (lambda: x(3)[10**10000], "An index .* outside of"),
    "reshape, 10,001 digits": (lambda: x(3).reshape([10**10000]), "Invalid shape: .* outside of"),
    "length of 71 bits": (lambda: x(2**70), "Invalid tensor shape: .* outside of"),
    "permutation, 71 bits": (lambda: x(3).permute([2**70]), "A permutation .* outside of"),
    "None for a node": (lambda: hk.ReLUNode(None), "An operand is a node, not None"),
    "no operand": (lambda: hk.SumNode(x(2), 1.0), "An operand is a node"),
    "no tensor": (lambda: x(2).rms_norm(1.0), "a node or a tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_what_a_node_cannot_take_is_refused_while_it_is_built(name: str):
    build, words = INVALID[name]
    with pytest.raises(ValueError, match=words) as caught:
        build()
    assert isinstance(caught.value, WeftError)
    assert __file__ in str(caught.value), "the user's line is named"


@pytest.mark.parametrize(
    "apply",
    [
        lambda x: x + 1,
        lambda x: 1 + x,
        lambda x: x * 2.0,
        lambda x: x @ [1],
        lambda x: floats(2) + x,
        lambda x: floats(2, 2) @ x,
    ],
)
def test_operators_take_nodes_and_tensors_on_the_right_only(apply: Callable[..., Any]):
    with pytest.raises(TypeError):
        apply(x(2))


REFUSED_OPERANDS = {
    "array + node": (
        lambda x: floats(2) + x,
        r"not float32 \[2\]: write ConstantTensor\(array\) \+",
    ),
    "array * node": (lambda x: floats(2) * x, r"write ConstantTensor\(array\) \* node"),
    "array @ node": (lambda x: floats(2, 2) @ x, r"write ConstantTensor\(array\) @ node"),
    "number of NumPy + node": (lambda x: np.float32(2) + x, r"not float32 \[\]"),
    "number * node": (lambda x: 2 * x, "The left operand of \\* is a node, not 2"),
    "list + node": (lambda x: operator.add([1, 2], x), r"is a node, not \[1, 2\]"),
    "array - node": (lambda x: floats(2) - x, r"no operator -: there are \+, \* and @"),
    "node - array": (lambda x: x - floats(2), "no operator -"),
    "node / number": (lambda x: x / 2, "no operator /"),
    "number ** node": (lambda x: 2**x, r"no operator \*\*"),
    "node % node": (lambda x: x % x, "no operator %"),
    "asarray": (np.asarray, "has no elements before"),
    "concatenate": (lambda x: np.concatenate([floats(2), x]), "functions of NumPy do not take"),
}


@pytest.mark.parametrize("name", REFUSED_OPERANDS)
def test_operands_that_nodes_do_not_take_are_named_with_what_to_write(name: str):
    apply, words = REFUSED_OPERANDS[name]
    with pytest.raises(hk.KindError, match=words) as caught:
        apply(x(2))
    assert __file__ in str(caught.value), "the user's line is named"


def test_nodes_are_not_iterated_over():
    with pytest.raises(TypeError):
        list(x(2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (hk.plan_memory, "A model is a node, .* not 5"),
        (hk.traverse_node, "A model is a node, .* not 5"),
        (hk.HamKaasPlugin("numpy").compile_model, "A model is a node, .* not 5"),
        (hk.parse_script, "A script is text, str or bytes, not 5"),
        (lambda value: hk.parse_script("", value), "a mapping of names to tensors, or None, not 5"),
        (hk.HamKaasPlugin, "given by its name, or as a path, not as 5"),
        (hk.ConstantTensor, "made of a tensor of NumPy or torch, not of 5"),
        (hk.ReLUNode, "An operand is a node, not 5"),
        (lambda value: x(2, 3).permute(value), "is a list of integers, .* not 5"),
        (lambda value: x(2, 3).reshape(value), "a list of integers is wanted, .* not 5"),
    ],
)
def test_a_value_of_another_kind_is_a_type_error_that_says_what_is_wanted(call: Any, words: str):
    with pytest.raises(TypeError, match=words) as caught:
        call(5)
    assert isinstance(caught.value, hk.NodeError)


@pytest.mark.parametrize("type", ["float32", np.float32, np.dtype("f4"), "torch.float32"])
def test_a_type_is_named_in_any_way(type: Any):
    node = x(2, 3, type=type).relu() + floats(2, 3)
    assert (node.get_type(), node.get_shape()) == (type, [2, 3])
    assert "InputTensor(x, float32, [2, 3])" in hk.traverse_node(node).script


def test_shapes_and_permutations_are_written_as_lists():
    node = InputTensor("x", "float32", (np.int64(2), 3)).permute((1, 0)).reshape((6,))
    script = hk.traverse_node(node).script
    assert "float32, [2, 3]" in script
    assert "PermuteNode($1, [1, 0])" in script
    assert "ReshapeNode($2, [6])" in script


INDEX = InputTensor("index", "int64", [1])
OWNERS = {
    "InputTensor": (x(4, 2), "itself"),
    "ConstantTensor": (const(4, 2), "itself"),
    "BufferTensor": (BufferTensor("float32", [4, 2]), "itself"),
    "SumNode": (x(4, 2) + x(1, 2), "itself"),
    "HadamardProductNode": (x(4, 2) * x(1, 2), "itself"),
    "ReLUNode": (x(4).relu(), "itself"),
    "SiLUNode": (x(4).silu(), "itself"),
    "MatMulNode": (x(4, 2) @ x(2, 3), "itself"),
    "SliceNode": (x(4, 2)[1:3], "the input"),
    "ReshapeNode": (x(4, 2).reshape([8]), "the input"),
    "PermuteNode": (x(4, 2).permute([1, 0]), "itself"),
    "ReplaceSliceNode": (x(4, 2).replace(x(1, 2), INDEX, INDEX), "the input"),
    "ComplexHadamardProductNode": (x(4, 2).complex_hadamard_product(x(1, 2)), "itself"),
    "RmsNormNode": (x(4).rms_norm(x(4)), "itself"),
    "SlicedSoftmaxNode": (x(4, 2).sliced_softmax(INDEX), "itself"),
}
"""A node of each kind, and in whose memory its value lies."""


@pytest.mark.parametrize("kind", hk.nodes.KINDS)
def test_a_value_lies_in_memory_of_its_own_or_in_that_of_the_first_input(kind: str):
    node, owner = OWNERS[kind]
    assert type(node).__name__ == kind
    assert node.owner is (node if owner == "itself" else node.inputs[0])
    if owner == "the input":
        assert node[0].reshape(node[0].get_shape()).owner is node.inputs[0]
    blocks = hk.plan_memory(node, in_place=False).blocks
    lies_alone = owner == "itself" and kind not in ("ConstantTensor", "BufferTensor")
    assert any(len(node_and_inputs(node)) in block.nodes for block in blocks) == lies_alone


def node_and_inputs(node: hk.HamKaasNode):
    return hk.traversal.evaluation_order(node)


def test_a_constant_is_made_contiguous():
    node = ConstantTensor(floats(3, 4).T) + ConstantTensor(floats(8, 3)[::2])
    for value in hk.traverse_node(node).constants.values():
        assert value.flags.c_contiguous
        assert value.shape == (4, 3)


def silu(v: np.ndarray):
    return v / (1 + np.exp(-v.astype("f8")))


def sliced(v: np.ndarray, prefix: int):
    v = v.astype("f8")
    e = np.exp(v[..., :prefix])
    return np.concatenate([e / e.sum(-1, keepdims=True), v[..., prefix:]], -1) if prefix else v


def normal(v: np.ndarray, w: np.ndarray):
    v = v.astype("f8")
    return w * v / np.sqrt(np.mean(v**2) + 1e-5)


def complex_product(a: np.ndarray, b: np.ndarray):
    found = (a[..., 0] + 1j * a[..., 1]) * (b[..., 0] + 1j * b[..., 1])
    return np.stack([found.real, found.imag], -1)


A, B = floats(3, 4), floats(3, 4, seed=1)
COMPLEX, TURN = floats(3, 5, 2), floats(1, 5, 2)
VALID = [
    (lambda n: n.relu(), np.maximum(A, 0)),
    (lambda n: n.silu(), silu(A)),
    (lambda n: (n * floats(1, 4)).silu(), silu(A * floats(1, 4))),
    (lambda n: n + B, A + B),
    (lambda n: n * B, A * B),
    (lambda n: n + n, A + A),
    (lambda n: n @ floats(4, 2), A @ floats(4, 2)),
    (lambda n: n.reshape([12]) @ floats(12, 2), A.reshape(12) @ floats(12, 2)),
    (lambda n: n.reshape([2, 3, 2]) @ floats(2, 2, 5), A.reshape(2, 3, 2) @ floats(2, 2, 5)),
    (lambda n: n[1], A[1:2]),
    (lambda n: n[:], A),
    (lambda n: n.reshape([2, 2, 3])[1:2].reshape([3, 2])[1:], A.reshape(-1)[8:].reshape(2, 2)),
    (lambda n: n[1:3].relu()[0], np.maximum(A[1:2], 0)),
    (lambda n: n.replace(floats(2, 4), 1, 3), np.concatenate([A[:1], floats(2, 4)])),
    (lambda n: const(3, 5, 2).complex_hadamard_product(const(1, 5, 2)),
     complex_product(COMPLEX, TURN)),
    (lambda n: const(5, 2).complex_hadamard_product(const(1, 2)),
     complex_product(floats(5, 2), floats(1, 2))),
    (lambda n: const(2).complex_hadamard_product(const(2, seed=3)),
     complex_product(floats(2), floats(2, seed=3))),
    (lambda n: n.reshape([12]).rms_norm(floats(12)), normal(A.reshape(12), floats(12))),
    *((lambda n, p=p: n.sliced_softmax(p), sliced(A, p)) for p in range(5)),
    (lambda n: n.reshape([12]).sliced_softmax(number(5)), sliced(A.reshape(12), 5)),
    (lambda n: n.reshape([1, 2, 6]).sliced_softmax(3), sliced(A.reshape(1, 2, 6), 3)),
]  # fmt: skip


def test_every_node_computes_what_it_should(backend: str):
    nodes = [
        build(ConstantTensor(A)) if number < 13 else build(x(3, 4))
        for number, (build, _) in enumerate(VALID)
    ]
    found = values_of(backend, nodes, {"x": A})
    for number, (node, value, (_, expected)) in enumerate(zip(nodes, found, VALID, strict=True)):
        assert list(value.shape) == node.get_shape() == list(np.shape(expected)), number
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6, err_msg=str(number))


def test_silu_and_softmax_stay_finite_far_out(backend: str):
    far = np.array([-1e4, -100, 0, 100, 1e4], np.float32)
    silu_of, softmax_of = values_of(backend, [x(5).silu(), x(5).sliced_softmax(5)], {"x": far})
    np.testing.assert_allclose(silu_of, [0, 0, 0, 100, 1e4], atol=1e-30)
    np.testing.assert_allclose(softmax_of, [0, 0, 0, 0, 1], atol=1e-30)


def grid():
    """Yield all pairs of shapes of one to three axes whose lengths are 1 or more."""
    lengths = (3, 2, 4)
    for rank in (1, 2, 3):
        shapes = list(product(*((1, n) for n in lengths[:rank])))
        yield from product(shapes, shapes)


def test_the_right_side_is_broadcast_as_by_numpy_and_the_left_is_not(backend: str):
    nodes, expected = [], []
    for left, right in grid():
        a, b = floats(*left), floats(*right, seed=1)
        fits = np.broadcast_shapes(left, right) == left
        for build, apply in ((hk.SumNode, np.add), (hk.HadamardProductNode, np.multiply)):
            operands = ConstantTensor(a), InputTensor(str_of(right), "float32", right)
            if fits:
                nodes.append(build(*operands))
                expected.append(apply(a, b))
            else:
                with pytest.raises(hk.NodeError, match="Shapes do not match"):
                    build(*operands)
    inputs = {str_of(right): floats(*right, seed=1) for _, right in grid()}
    assert len(nodes) == 2 * (3 + 9 + 27)
    for value, wanted in zip(values_of(backend, nodes, inputs), expected, strict=True):
        np.testing.assert_array_equal(value, wanted)


def str_of(shape: tuple[int, ...]):
    return "x" + "_".join(map(str, shape))


def test_every_permutation_and_every_slice(backend: str):
    shapes = [(4,), (4, 3), (4, 3, 2)]
    nodes, expected = [], []
    for shape in shapes:
        value, node = floats(*shape), x(*shape, name=str_of(shape))
        for order in permutations(range(len(shape))):
            nodes.append(node.permute(order))
            expected.append(value.transpose(order))
        for begin, end in product(range(4), range(5)):
            if begin < end:
                nodes.append(node[begin:end])
                expected.append(value[begin:end])
    inputs = {str_of(shape): floats(*shape) for shape in shapes}
    for value, wanted in zip(values_of(backend, nodes, inputs), expected, strict=True):
        np.testing.assert_array_equal(value, wanted)
