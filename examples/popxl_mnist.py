"""Train two linear layers on the handwritten digits of scikit-learn, as a PopXL program.

It has the shape of PopXL's MNIST example: a module for the layers, a gradient graph for each by
autodiff, weights updated in place, and one program to train and another to test. From the root of
the repository::

    python examples/popxl_mnist.py --backend numpy --epochs 20
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import weft
import weft_popxl as popxl
from weft_popxl import ops, transforms

try:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ImportError as missing:
    raise SystemExit(f"This example needs {missing.name}: pip install 'weftc[demo]'") from None

Array = np.ndarray[Any, Any]
PIXELS, HIDDEN, DIGITS = 64, 64, 10


class Digits(NamedTuple):
    """Images of 64 pixels between 0 and 1, and the digit that each of them shows."""

    images: Array
    labels: Array


class Linear(popxl.Module):
    """A layer: x W + b, through gelu if it is wanted; it keeps the inputs of its graph."""

    W: popxl.Tensor
    b: popxl.Tensor

    def build(self, x: popxl.Tensor, out_features: int, gelu: bool = False) -> popxl.Tensor:
        """Build the layer's graph."""
        self.W = popxl.graph_input((x.shape[-1], out_features), popxl.float32, "W")
        self.b = popxl.graph_input((out_features,), popxl.float32, "b")
        y = x @ self.W + self.b
        return ops.gelu(y) if gelu else y


class Network(NamedTuple):
    """Two layers in the main graph: their calls, and their variables by name."""

    calls: tuple[Any, Any]
    variables: dict[str, popxl.Tensor]

    @property
    def logits(self) -> popxl.Tensor:
        """What the last layer yields."""
        result: popxl.Tensor = self.calls[1].outputs[0]
        return result


class Program(NamedTuple):
    """An Ir with its streams, and its variables by name."""

    ir: popxl.Ir
    inputs: tuple[popxl.HostToDeviceStream, ...]
    output: popxl.DeviceToHostStream
    variables: dict[str, popxl.Tensor]


def initial_weights(seed: int) -> dict[str, Array]:
    """Return zero biases, and weights uniform up to Glorot's limit, sqrt(6 / (ins + outs))."""
    random = np.random.default_rng(seed)
    weights: dict[str, Array] = {}
    for number, shape in enumerate([(PIXELS, HIDDEN), (HIDDEN, DIGITS)]):
        limit = np.sqrt(6 / sum(shape))
        weights[f"W{number}"] = random.uniform(-limit, limit, shape).astype(np.float32)
        weights[f"b{number}"] = np.zeros(shape[1], np.float32)
    return weights


def network(ir: popxl.Ir, images: popxl.Tensor, weights: Mapping[str, Array]) -> Network:
    """Return two layers, the first through gelu, called in the main graph."""
    variables = {name: popxl.variable(value, name=name) for name, value in weights.items()}
    calls, x = [], images
    for number, (features, gelu) in enumerate([(HIDDEN, True), (DIGITS, False)]):
        layer = Linear()
        graph = ir.create_graph(layer, x, out_features=features, gelu=gelu)
        given = {layer.W: variables[f"W{number}"], layer.b: variables[f"b{number}"]}
        calls.append(ops.call_with_info(graph, x, inputs_dict=given))
        x = calls[-1].outputs[0]
    return Network((calls[0], calls[1]), variables)


def gradients(layers: Network, gradient: popxl.Tensor) -> dict[popxl.Tensor, popxl.Tensor]:
    """Return the gradient of each variable, from that of the logits, layer by layer."""
    found: dict[popxl.Tensor, popxl.Tensor] = {}
    for call in reversed(layers.calls):
        info = transforms.autodiff(call.called_graph)
        activations = info.inputs_dict(call)
        grad_call = ops.call_with_info(info.graph, gradient, inputs_dict=activations)
        found |= info.fwd_parent_ins_to_grad_parent_outs(call, grad_call)
        gradient = found[call.inputs[0]]
    return found


def training(weights: Mapping[str, Array], batch: int, learning_rate: float) -> Program:
    """Return the program that takes a batch, moves the weights downhill and gives the loss."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        image_stream = popxl.h2d_stream((batch, PIXELS), popxl.float32, "images")
        label_stream = popxl.h2d_stream((batch,), popxl.int32, "labels")
        images, labels = ops.host_load(image_stream), ops.host_load(label_stream)
        layers = network(ir, images, weights)
        chances = ops.softmax(layers.logits, axis=-1)
        loss, gradient = ops.nll_loss_with_softmax_grad(chances, labels)
        found = gradients(layers, gradient)
        for variable in layers.variables.values():
            ops.scaled_add_(variable, found[variable], b=-learning_rate)
        output = popxl.d2h_stream(loss.shape, loss.dtype, "loss")
        ops.host_store(output, loss)
    return Program(ir, (image_stream, label_stream), output, layers.variables)


def testing(weights: Mapping[str, Array], count: int) -> Program:
    """Return the program that takes images and gives the digits that it reads in them."""
    ir = popxl.Ir()
    with ir.main_graph:
        image_stream = popxl.h2d_stream((count, PIXELS), popxl.float32, "images")
        layers = network(ir, ops.host_load(image_stream), weights)
        read = ops.argmax(layers.logits, dim=-1)
        output = popxl.d2h_stream(read.shape, read.dtype, "read")
        ops.host_store(output, read)
    return Program(ir, (image_stream,), output, layers.variables)


def load() -> tuple[Digits, Digits]:
    """Return the digits to train with and a held-out fifth; the same split at every call."""
    data = load_digits()
    images, labels = (data.data / 16).astype(np.float32), data.target.astype(np.int32)
    parts = train_test_split(images, labels, test_size=0.2, stratify=labels, random_state=0)
    return Digits(parts[0], parts[2]), Digits(parts[1], parts[3])


def batches(digits: Digits, size: int, random: np.random.Generator) -> Iterator[Digits]:
    """Yield digits in a new random order, `size` at a time; what remains at the end is left out."""
    order = random.permutation(len(digits.labels))
    for start in range(0, len(order) - size + 1, size):
        chosen = order[start : start + size]
        yield Digits(digits.images[chosen], digits.labels[chosen])


def train(
    digits: Digits, backend: str, epochs: int, batch: int, learning_rate: float, seed: int
) -> tuple[dict[str, Array], list[float]]:
    """Return trained weights by name, and the mean loss of each epoch.

    Raises FloatingPointError if a loss is infinite or not a number.
    """
    program = training(initial_weights(seed), batch, learning_rate)
    random = np.random.default_rng(seed)
    curve = []
    with popxl.Session(program.ir, backend) as session:
        for _ in range(epochs):
            losses = [
                session.run(dict(zip(program.inputs, each, strict=True)))[program.output].item()
                for each in batches(digits, batch, random)
            ]
            curve.append(float(np.mean(losses)))
            if not np.isfinite(curve[-1]):
                raise FloatingPointError("the loss has diverged: try a lower --learning-rate")
    data = session.get_tensors_data(program.variables.values())
    return {name: data[each] for name, each in program.variables.items()}, curve


def accuracy(digits: Digits, backend: str, weights: Mapping[str, Array]) -> float:
    """Return the share of digits that are read right; the weights are written to the session."""
    program = testing(initial_weights(0), len(digits.labels))
    with popxl.Session(program.ir, backend) as session:
        session.write_variables_data({program.variables[n]: w for n, w in weights.items()})
        read = session.run({program.inputs[0]: digits.images})[program.output]
    return float(np.mean(read == digits.labels))


app = typer.Typer(add_completion=False)


@app.command()
def main(
    backend: Annotated[str, typer.Option(help="A PopXL device, or a backend of weft.")] = "cpu",
    epochs: Annotated[int, typer.Option(min=1)] = 20,
    batch: Annotated[int, typer.Option(min=1, max=1437, help="Digits in a step.")] = 32,
    learning_rate: Annotated[float, typer.Option(min=0)] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Decides weights and order.")] = 0,
) -> None:
    """Train two layers to read handwritten digits."""
    try:
        started = time.perf_counter()
        digits, held_out = load()
        weights, curve = train(digits, backend, epochs, batch, learning_rate, seed)
        print(f"loss      {curve[0]:.4f} in the first epoch, {curve[-1]:.4f} in the last")
        print(f"accuracy  {accuracy(held_out, backend, weights):.4f} on held-out digits")
        print(f"time      {time.perf_counter() - started:.1f} s for {epochs} epochs")
    except (weft.WeftError, FloatingPointError) as error:
        raise SystemExit(f"popxl_mnist.py: {error}") from None


if __name__ == "__main__":
    app()
