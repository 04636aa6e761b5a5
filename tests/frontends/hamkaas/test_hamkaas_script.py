"""Nodes to text: the document's listing to the byte, names, sharing, and depth."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hamkaas_models import MNIST, floats, mnist

import weft_hamkaas as hk
from weft_hamkaas import BufferTensor, ConstantTensor, InputTensor, traverse_node

EVERY_NODE = """\
$1 = InputTensor(x, float32, [4, 2]);
$2 = PermuteNode($1, [1, 0]);
$3 = MatMulNode($1, $2);
$4 = SliceNode($3, 1, 3);
$5 = ReshapeNode($4, [8]);
$6 = BufferTensor(float32, [8]);
$7 = ReLUNode($6);
$8 = SiLUNode($7);
$9 = ConstantTensor(constant_0, int64, [1]);
$10 = ConstantTensor(constant_1, int64, [1]);
$11 = ReplaceSliceNode($5, $8, $9, $10);
$12 = BufferTensor(kept, float32, [8]);
$13 = RmsNormNode($11, $12);
$14 = ReshapeNode($13, [4, 2]);
$15 = HadamardProductNode($1, $1);
$16 = ComplexHadamardProductNode($14, $15);
$17 = InputTensor(length, int64, [1]);
$18 = SlicedSoftmaxNode($16, $17);
$19 = SumNode($18, $1);
result = $19;
"""


def every_node():
    x = InputTensor("x", "float32", [4, 2])
    part = (x @ x.permute([1, 0]))[1:3].reshape((8,))
    replaced = part.replace(BufferTensor("float32", [8]).relu().silu(), 0, 8)
    normal = replaced.rms_norm(BufferTensor("float32", [8], "kept")).reshape([4, 2])
    product = normal.complex_hadamard_product(x * x)
    return product.sliced_softmax(InputTensor("length", "int64", [1])) + x


def test_the_network_of_the_document_gives_its_listing():
    assert traverse_node(mnist()).script == MNIST


def test_a_traversal_holds_inputs_outputs_and_constants():
    found = traverse_node(
        mnist([floats(784, 1000), floats(1, 1000), floats(1000, 10), floats(1, 10)])
    )
    assert found.inputs == {"input": hk.TensorMeta("float32", [128, 28, 28])}
    assert (found.output.dtype, found.output.shape) == ("float32", [128, 10])
    assert list(found.constants) == [f"constant_{number}" for number in range(4)]
    np.testing.assert_array_equal(found.constants["constant_2"], floats(1000, 10))


def test_every_kind_of_node_is_written():
    assert traverse_node(every_node()).script == EVERY_NODE
    assert all(f" = {kind}(" in EVERY_NODE for kind in hk.nodes.KINDS)


@pytest.mark.parametrize("script", [MNIST, EVERY_NODE], ids=["mnist", "every node"])
def test_a_script_that_was_read_is_written_as_it_was(script: str):
    constants = {"constant_0": index_or_floats(script, 0), "constant_1": index_or_floats(script, 1)}
    constants |= {"constant_2": floats(1000, 10), "constant_3": floats(1, 10)}
    assert traverse_node(hk.parse_script(script, constants)).script == script
    assert traverse_node(hk.parse_script(script)).script == script


def index_or_floats(script: str, number: int):
    if script is EVERY_NODE:
        return np.array([0, 8][number : number + 1])
    return [floats(784, 1000), floats(1, 1000)][number]


def test_a_shared_node_is_written_once():
    x = InputTensor("x", "float32", [2])
    assert "$2 = HadamardProductNode($1, $1);\nresult = $2;\n" in traverse_node(x * x).script


def test_constants_without_a_name_get_the_next_that_is_free():
    a, b, c = (ConstantTensor(floats(2, seed=seed)) for seed in range(3))
    b.set_name("constant_0")
    found = traverse_node(a + b + c)
    assert list(found.constants) == ["constant_1", "constant_0", "constant_2"]
    assert [each.get_name() for each in (a, b, c)] == list(found.constants)


def test_a_constant_may_be_part_of_another_model():
    a, b = ConstantTensor(floats(2)), ConstantTensor(floats(2))
    traverse_node(a + b)
    assert list(traverse_node(ConstantTensor(floats(2)) + b).constants) == [
        "constant_0",
        "constant_1",
    ]


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("input", lambda: InputTensor("a", "float32", [2])),
        ("buffer", lambda: BufferTensor("float32", [2], "a")),
        ("constant", lambda: named_constant("a")),
    ],
)
def test_two_tensors_of_one_name_are_refused(kind: str, make: Callable[..., Any]):
    with pytest.raises(hk.NodeError, match=f"Multiple {kind} tensors with name a were found"):
        traverse_node(make() + make())


def named_constant(name: str):
    constant = ConstantTensor(floats(2))
    constant.set_name(name)
    return constant


@pytest.mark.parametrize(
    "name", ["my input", "a,b", "a)", "", "1x", "x;", "$1", "ü", "a\nb", None, 3]
)
def test_a_name_that_a_script_cannot_hold_is_refused(name: int | str | None):
    for build in (
        lambda: InputTensor(name, "float32", [2]),
        lambda: ConstantTensor(floats(2)).set_name(name),
    ):
        with pytest.raises(ValueError, match="is not a name"):
            build()


@pytest.mark.parametrize("name", ["x", "_", "layers.0.weight", "A1_b"])
def test_other_names_are_taken(name: str):
    assert f"({name}, float32, [2])" in traverse_node(InputTensor(name, "float32", (2,))).script


def test_deep_models_are_built_written_and_read():
    began = time.thread_time()
    node = InputTensor("x", "float32", [2])
    for _ in range(20_000):
        node = (node + node).relu().reshape([2])
    script = traverse_node(node).script
    assert script.endswith("result = $60001;\n")
    assert hk.parse_script(script).get_shape() == [2]
    assert time.thread_time() - began < 20


def test_effects_have_an_order_that_does_not_depend_on_depth():
    x = BufferTensor("float32", [2])
    for _ in range(2000):
        x = x.replace(x, 0, 2)
    assert len(traverse_node(x).script.splitlines()) == 3 * 2000 + 2


def test_nodes_point_at_the_line_that_built_them():
    node = InputTensor("x", "float32", [2]).relu()
    assert node.location[0] == __file__
    script = "$1 = InputTensor(x, float32,\n [2]);\n\n$2 = ReLUNode($1); result = $2;"
    parsed = hk.parse_script(script, filename="model.hk")
    assert parsed.location == ("model.hk", 4)
