"""Fine-tune an ONNX model on the handwritten digits of scikit-learn, and write it back.

A small network learns the digits 0 to 4 and is written as an ONNX model. It is read again, its
initializers become variables, and it learns all ten digits::

    python examples/onnx_digits.py --backend numpy --epochs 20
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import weft
import weft_onnx

try:
    from sklearn.datasets import load_digits
except ImportError as missing:
    raise SystemExit(f"This example needs {missing.name}: pip install 'weftc[demo]'") from None

Array = np.ndarray[Any, Any]
PIXELS, HIDDEN, DIGITS, BATCH = 64, 32, 10, 64


def data() -> tuple[Array, Array]:
    """Return images of 64 pixels between 0 and 1, and their digits, shuffled."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order] / 16).astype("f4"), labels[order].astype("i4")


def train(
    transformer: Any, logits: Any, x: Any, images: Array, labels: Array, epochs: int
) -> float:
    """Train the variables that logits of a batch depend on, and return the last loss."""
    digits = weft.placeholder((BATCH,), dtype="int32")
    loss = weft.cross_entropy(logits, weft.one_hot(digits, DIGITS, pos=1), axis=1)
    step = transformer.computation([loss, weft.adam(loss, learning_rate=0.01)], x, digits)
    last = np.inf
    for _ in range(epochs):
        for first in range(0, len(labels) - BATCH + 1, BATCH):
            batch = slice(first, first + BATCH)
            last = float(step(images[batch], labels[batch])[0])
    return last


def accuracy(model: weft_onnx.Model, images: Array, labels: Array, backend: str) -> float:
    """Return the share of images that a model reads right."""
    with weft.make_transformer(backend) as transformer:
        program, count = model.prepare(transformer), len(labels) // BATCH * BATCH
        found = [
            program.run({"x": images[at : at + BATCH]})["logits"].argmax(1)
            for at in range(0, count, BATCH)
        ]
    return float((np.concatenate(found) == labels[:count]).mean())


def pretrained(path: Path, images: Array, labels: Array, backend: str, epochs: int) -> None:
    """Write a model that has learned the digits 0 to 4."""
    few = labels < 5
    x = weft.placeholder((BATCH, PIXELS), name="x")
    random = np.random.default_rng(1)
    weights = [
        weft.variable(shape, initial_value=random.standard_normal(shape).astype("f4") / 8)
        for shape in ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, DIGITS), (DIGITS,))
    ]
    w1, b1, w2, b2 = weights
    logits = weft.relu(x @ w1 + b1) @ w2 + b2
    with weft.make_transformer(backend) as transformer:
        train(transformer, logits, x, images[few], labels[few], epochs)
        values = {w: transformer.get_value(w) for w in weights}
    weft_onnx.export({"logits": logits}, {"x": x}, path, values)


def main(
    backend: Annotated[str, typer.Option(help="The backend that computes.")] = "numpy",
    epochs: Annotated[int, typer.Option(min=1, help="How often each image is seen.")] = 20,
    output: Annotated[Path | None, typer.Option(help="Write the tuned model here.")] = None,
) -> None:
    """Train on five digits, fine-tune the exported model on ten, and print what both read right."""
    images, labels = data()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.onnx"
        pretrained(path, images, labels, backend, epochs)
        model = weft_onnx.load(path)
    typer.echo(f"before: {accuracy(model, images, labels, backend):.1%} of all digits")
    variables = model.trainable()
    x = weft.placeholder((BATCH, PIXELS), name="x")
    logits = model.build({"x": x})["logits"]
    with weft.make_transformer(backend) as transformer:
        train(transformer, logits, x, images, labels, epochs)
        values = {w: transformer.get_value(w) for w in variables.values()}
    tuned = weft_onnx.export({"logits": logits}, {"x": x}, output, values)
    share = accuracy(weft_onnx.load(tuned), images, labels, backend)
    typer.echo(f"after: {share:.1%} of all digits")


if __name__ == "__main__":
    typer.run(main)
