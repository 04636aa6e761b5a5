"""Train a multilayer perceptron on the handwritten digits of scikit-learn, with weft.

From the root of the repository::

    python examples/digits.py --backend numpy --epochs 30
    python examples/digits.py --weights out/digits.safetensors
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import weft
from weft.ir.ax import N

try:
    from matplotlib.figure import Figure
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import save
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ImportError as missing:
    raise SystemExit(f"This example needs {missing.name}: pip install 'weftc[demo]'") from None

Array = np.ndarray[Any, Any]

PIXEL = weft.make_axis(64, "pixel")
HIDDEN1 = weft.make_axis(128, "hidden1")
HIDDEN2 = weft.make_axis(64, "hidden2")
DIGIT = weft.make_axis(10, "digit")

PARAMETERS = {
    "weight1": (PIXEL, HIDDEN1), "bias1": (HIDDEN1,),
    "weight2": (HIDDEN1, HIDDEN2), "bias2": (HIDDEN2,),
    "weight3": (HIDDEN2, DIGIT), "bias3": (DIGIT,),
}  # fmt: skip


class Activation(StrEnum):
    """What bends the hidden layers: the name of a function of weft."""

    TANH = "tanh"
    RELU = "relu"


class Digits(NamedTuple):
    """Images of 64 pixels between 0 and 1, and the digit that each of them shows."""

    images: Array
    labels: Array


class Model(NamedTuple):
    """A graph of ops; nothing is computed until a transformer makes a computation of them."""

    inputs: tuple[weft.TensorOp, weft.TensorOp]
    variables: dict[str, weft.TensorOp]
    loss: weft.TensorOp
    results: dict[str, weft.TensorOp]


class Epoch(NamedTuple):
    """A point of the learning curve: mean loss of the training batches, then held-out results."""

    training_loss: float
    loss: float
    accuracy: float


class WeightsError(ValueError):
    """A file does not hold the weights of this perceptron."""


def perceptron(weights: dict[str, Array], activation: Activation) -> Model:
    """Return the model with variables that start as `weights`, for batches of any length N."""
    images = weft.placeholder([N, PIXEL], name="images")
    labels = weft.placeholder([N], weft.int32, name="labels")
    variables = {
        name: weft.variable(axes, initial_value=weights[name], name=name)
        for name, axes in PARAMETERS.items()
    }
    activate = getattr(weft, activation)

    hidden1 = activate(weft.dot(images, variables["weight1"]) + variables["bias1"])
    hidden2 = activate(weft.dot(hidden1, variables["weight2"]) + variables["bias2"])
    chances = weft.softmax(weft.dot(hidden2, variables["weight3"]) + variables["bias3"])

    loss = weft.mean(weft.cross_entropy_multi(chances, weft.one_hot(labels, DIGIT)), N)
    predicted = weft.argmax(chances, DIGIT)
    accuracy = weft.mean(predicted == labels, N)
    results = {"loss": loss, "accuracy": accuracy, "predicted": predicted}
    return Model((images, labels), variables, loss, results)


def descent(loss: weft.TensorOp, learning_rate: float, momentum: float) -> weft.Op:
    """Return an op that moves each variable of the loss downhill, with momentum.

    The guard keeps its writes apart: only a computation that names the op trains.
    """
    with weft.saved_user_deps():
        writes = []
        for variable in loss.variables():
            gradient = weft.deriv(loss, variable)
            velocity = weft.persistent_tensor(variable.axes, initial_value=0)
            writes.append(weft.assign(velocity, momentum * velocity - learning_rate * gradient))
            writes.append(weft.assign(variable, variable + velocity))
        return weft.doall(writes)


def initial_weights(seed: int) -> dict[str, Array]:
    """Return zero biases, and weights uniform up to Glorot's limit, sqrt(6 / (ins + outs))."""
    random = np.random.default_rng(seed)
    weights = {}
    for name, axes in PARAMETERS.items():
        shape = [axis.length for axis in axes]
        limit = np.sqrt(6 / sum(shape)) if len(shape) == 2 else 0
        weights[name] = random.uniform(-limit, limit, shape).astype(np.float32)
    return weights


def load() -> tuple[Digits, Digits]:
    """Return the digits to train with and a held-out fifth; the same split at every call."""
    data = load_digits()
    images, labels = (data.data / 16).astype(np.float32), data.target.astype(np.int32)
    parts = train_test_split(images, labels, test_size=0.2, stratify=labels, random_state=0)
    return Digits(parts[0], parts[2]), Digits(parts[1], parts[3])


def batches(digits: Digits, size: int, random: np.random.Generator) -> Iterator[Digits]:
    """Yield all digits in a new random order, `size` at a time and what remains at the end."""
    order = random.permutation(len(digits.labels))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        yield Digits(digits.images[chosen], digits.labels[chosen])


def train(
    step: weft.Computation, evaluate: weft.Computation, epochs: int, batch: int, seed: int
) -> list[Epoch]:
    """Run the epochs behind a progress bar and return the learning curve.

    Raises FloatingPointError if a loss is infinite or not a number.
    """
    training, held_out = load()
    random = np.random.default_rng(seed)
    curve = []
    epoch = TextColumn("epoch {task.completed:.0f} of {task.total:.0f}")
    numbers = TextColumn("loss {task.fields[loss]:.4f}, accuracy {task.fields[accuracy]:.4f}")
    with Progress(epoch, BarColumn(), numbers, TimeElapsedColumn()) as progress:
        task = progress.add_task("", total=epochs, loss=np.nan, accuracy=np.nan)
        for _ in range(epochs):
            losses = [step(*digits)[0] for digits in batches(training, batch, random)]
            if not np.isfinite(losses).all():
                raise FloatingPointError("the loss has diverged: try a lower --learning-rate")
            found = evaluate(*held_out)
            loss, accuracy = float(found["loss"]), float(found["accuracy"])
            curve.append(Epoch(float(np.mean(losses)), loss, accuracy))
            progress.update(task, advance=1, loss=loss, accuracy=accuracy)
    return curve


def restored_accuracy(path: Path, backend: str | None) -> float:
    """Return the held-out accuracy of a new perceptron with the weights in a file."""
    model = perceptron(*read_weights(path))
    evaluate = weft.make_transformer(backend).computation(model.results, *model.inputs)
    _, held_out = load()
    return float(evaluate(*held_out)["accuracy"])


def draw(curve: list[Epoch], held_out: Digits, predicted: Array) -> bytes:
    """Return a PNG of the learning curve, and next to it the held-out digits that are misread."""
    figure = Figure(figsize=(12, 5.5), layout="constrained")
    left, right = figure.subfigures(1, 2)
    draw_curve(left, curve)
    draw_misread(right, held_out, predicted)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def draw_curve(figure: Any, curve: list[Epoch]) -> None:
    """Draw the losses into the upper panel and the held-out accuracy into the lower one."""
    above, below = panels = figure.subplots(2, 1, sharex=True)
    epochs = range(1, len(curve) + 1)
    above.plot(epochs, [epoch.training_loss for epoch in curve], ".-", label="training")
    above.plot(epochs, [epoch.loss for epoch in curve], ".-", label="held out")
    above.set(title="Learning curve", ylabel="cross entropy [nat]", yscale="log")
    above.legend()
    below.plot(epochs, [epoch.accuracy for epoch in curve], ".-", color="C1")
    below.set(xlabel="epoch", ylabel="held-out accuracy")
    below.xaxis.get_major_locator().set_params(integer=True)
    for panel in panels:
        panel.grid(alpha=0.3)


def draw_misread(figure: Any, digits: Digits, predicted: Array) -> None:
    """Draw up to 12 digits that are not what was predicted, each with both readings."""
    wrong = np.flatnonzero(predicted != digits.labels)
    panels = figure.subplots(3, 4).ravel()
    limit = f" (the first {len(panels)})" if len(wrong) > len(panels) else ""
    figure.suptitle(f"{len(wrong)} of {len(predicted)} held-out digits misread{limit}")
    for panel in panels:
        panel.set_axis_off()
    for panel, index in zip(panels, wrong, strict=False):
        panel.imshow(digits.images[index].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        panel.set_title(f"{digits.labels[index]} read as {predicted[index]}", fontsize=10)


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: under another name, which is then changed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_weights(path: Path) -> tuple[dict[str, Array], Activation]:
    """Return the weights in a safetensors file and the activation that they were trained with.

    Raises WeightsError for a damaged file and for other names, shapes or dtypes than expected.
    """
    try:
        with safe_open(path, "numpy") as file:
            parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            check_weights(path, {n: f"{p.get_dtype()} {p.get_shape()}" for n, p in parts.items()})
            activation = (file.metadata() or {}).get("activation")
            if activation not in list(Activation):
                raise WeightsError(f"{path} does not say whether it was trained with tanh or relu")
            return {name: file.get_tensor(name) for name in PARAMETERS}, Activation(activation)
    except SafetensorError as error:
        raise WeightsError(f"{path} is damaged, or not a safetensors file: {error}") from None


def check_weights(path: Path, found: dict[str, str]) -> None:
    """Raise WeightsError unless the dtypes and shapes, by name, are those of the parameters."""
    wanted = {name: f"F32 {[a.length for a in axes]}" for name, axes in PARAMETERS.items()}
    for name in {**wanted, **found}:
        here, there = found.get(name, "absent"), wanted.get(name, "absent")
        if here != there:
            raise WeightsError(f"{path} does not fit: {name!r} is {here} and should be {there}")


app = typer.Typer(add_completion=False)


@app.command()
def main(
    backend: Annotated[str | None, typer.Option(help="Backend; weft's default if none.")] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 30,
    batch: Annotated[int, typer.Option(min=1, help="Digits in a training step.")] = 64,
    learning_rate: Annotated[float, typer.Option(min=0)] = 0.05,
    momentum: Annotated[float, typer.Option(min=0, max=1)] = 0.9,
    seed: Annotated[int, typer.Option(min=0, help="Decides weights and order.")] = 0,
    activation: Annotated[Activation, typer.Option(help="Of the hidden layers.")] = Activation.TANH,
    out: Annotated[Path, typer.Option(help="Folder for picture and weights.")] = Path("out"),
    weights: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Do not train: evaluate this file, with its activation."),
    ] = None,
) -> None:
    """Train a perceptron to read handwritten digits, or evaluate one that was trained."""
    try:
        if weights is not None:
            print(f"accuracy  {restored_accuracy(weights, backend):.4f} on held-out digits")
            return
        out.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        model = perceptron(initial_weights(seed), activation)
        update = descent(model.loss, learning_rate, momentum)
        transformer = weft.make_transformer(backend)
        step = transformer.computation([model.loss, update], *model.inputs)
        evaluate = transformer.computation(model.results, *model.inputs)
        curve = train(step, evaluate, epochs, batch, seed)
        print(f"accuracy  {curve[-1].accuracy:.4f} on held-out digits")
        print(f"time      {time.perf_counter() - started:.1f} s for {epochs} epochs")

        picture, weights = out / "digits.png", out / "digits.safetensors"
        write(weights, save(transformer.computation(model.variables)(), {"activation": activation}))
        if restored_accuracy(weights, backend) != curve[-1].accuracy:
            raise WeightsError(f"{weights} does not give the same accuracy again")
        print(f"weights   {weights}, which give the same accuracy again")
        _, held_out = load()
        write(picture, draw(curve, held_out, evaluate(*held_out)["predicted"]))
        print(f"picture   {picture}")
    except (weft.WeftError, WeightsError, FloatingPointError, OSError) as error:
        raise SystemExit(f"digits.py: {error}") from None


if __name__ == "__main__":
    app()
