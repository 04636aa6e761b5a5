"""Models, and a way to evaluate many nodes in one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft_hamkaas import ConstantTensor, HamKaasNode, InputTensor
from weft_hamkaas.lowering import lower

MNIST = """\
$1 = InputTensor(input, float32, [128, 28, 28]);
$2 = ReshapeNode($1, [128, 784]);
$3 = ConstantTensor(constant_0, float32, [784, 1000]);
$4 = MatMulNode($2, $3);
$5 = ConstantTensor(constant_1, float32, [1, 1000]);
$6 = SumNode($4, $5);
$7 = ReLUNode($6);
$8 = ConstantTensor(constant_2, float32, [1000, 10]);
$9 = MatMulNode($7, $8);
$10 = ConstantTensor(constant_3, float32, [1, 10]);
$11 = SumNode($9, $10);
result = $11;
"""


def mnist(values: Sequence[Any] | None = None) -> HamKaasNode:
    """Return the network of the document, with weights of zeros unless they are given."""
    shapes = (784, 1000), (1, 1000), (1000, 10), (1, 10)
    arrays = [np.zeros(shape, np.float32) for shape in shapes] if values is None else values
    w1, b1, w2, b2 = map(ConstantTensor, arrays)
    x = InputTensor("input", "float32", [128, 28, 28]).reshape([128, 784])
    return (x @ w1 + b1).relu() @ w2 + b2


def fibonacci(count: int = 100, shape: Sequence[int] = (8,)) -> HamKaasNode:
    """Return the last of so many sums of the two before."""
    a, b = (InputTensor(name, "float32", shape) for name in ("first", "second"))
    last: list[HamKaasNode] = [a, b]
    for _ in range(count):
        last.append(last[-2] + last[-1])
    return last[-1]


def values_of(
    backend: str, nodes: Sequence[HamKaasNode], inputs: Mapping[str, Any] | None = None
) -> list[Any]:
    """Return the values of nodes without effects, all computed by one program."""
    lowered = [lower(node) for node in nodes]
    parameters = [(name, op) for each in lowered for name, op in each.inputs.items()]
    with weft.make_transformer(backend) as transformer:
        results = [each.result for each in lowered]
        call = transformer.computation(results, *(op for _, op in parameters))
        return list(call(*((inputs or {})[name] for name, _ in parameters)))


def floats(*shape: int, seed: int = 0) -> Any:
    """Return numbers between -2 and 2, all different."""
    random = np.random.default_rng((seed, *shape))
    return random.uniform(-2, 2, shape).astype(np.float32)


def index(*values: int) -> Any:
    """Return an int64 array."""
    return np.array(values, np.int64)
