"""A network for images of digits, built of HamKaas nodes: prints its script.

With ``--evaluate`` it is compiled as well and computed for random images, and what runs is printed:
the memory, the kernels, and how far the result is from NumPy's.

    python examples/hamkaas_mnist.py
    python examples/hamkaas_mnist.py --evaluate --backend opencl
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from weft_hamkaas import ConstantTensor, HamKaasNode, HamKaasPlugin, InputTensor, traverse_node

BATCH, PIXELS, UNITS, CLASSES = 128, 28, 1000, 10


def parameters() -> list[Any]:
    """Return random weights and biases of two layers."""
    random = np.random.default_rng(0)
    shapes = (PIXELS * PIXELS, UNITS), (1, UNITS), (UNITS, CLASSES), (1, CLASSES)
    return [0.05 * random.standard_normal(shape, np.float32) for shape in shapes]


def network(values: list[Any]) -> HamKaasNode:
    """Return the scores of each image as a node."""
    w1, b1, w2, b2 = map(ConstantTensor, values)
    images = InputTensor("input", "float32", [BATCH, PIXELS, PIXELS])
    hidden = (images.reshape([BATCH, PIXELS * PIXELS]) @ w1 + b1).relu()
    return hidden @ w2 + b2


def evaluate(node: HamKaasNode, values: list[Any], backend: str) -> None:
    """Compute the network for random images, and print what ran."""
    model = HamKaasPlugin(backend).compile_model(node)
    images = np.random.default_rng(1).random((BATCH, PIXELS, PIXELS), np.float32)
    scores = model.evaluate({"input": images})
    w1, b1, w2, b2 = values
    expected = np.maximum(images.reshape(BATCH, -1) @ w1 + b1, 0) @ w2 + b2
    print(f"\n{model.plan}\n{model.fusion_statistics}")
    print(f"farthest from NumPy: {np.abs(scores - expected).max():.1e}")


def main() -> None:
    """Print the script, and compute the network if that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--evaluate", action="store_true", help="compile and compute it, too")
    parser.add_argument("--backend", default="numpy", help="the backend that computes")
    options = parser.parse_args()
    values = parameters()
    node = network(values)
    print(traverse_node(node).script, end="")
    if options.evaluate:
        evaluate(node, values, options.backend)


if __name__ == "__main__":
    main()
