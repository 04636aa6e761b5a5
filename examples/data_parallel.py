"""Train on a share of each batch in every process of MPI, and go on after a kill.

From the root of the repository::

    mpiexec -n 2 python examples/data_parallel.py --checkpoint out/digits
    mpiexec -n 2 python examples/data_parallel.py --checkpoint out/text --model text

Kill it at any moment and start it again: it goes on from the last checkpoint, and ends with the
weights of a run that nothing stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from pydoc_data.topics import topics
from typing import Annotated, Any, NamedTuple

import digits
import numpy as np
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import weft
from weft.communicators import Communicator, connected
from weft.errors import ArgumentError, CheckpointError, CommunicationError

Array = np.ndarray[Any, Any]

WIDTH, HEADS, LAYERS, LENGTH, CHARACTERS = 32, 4, 2, 32, 128
"""The size of the language model: it reads up to `LENGTH` characters of ASCII."""


class Task(NamedTuple):
    """A model and its data: the rows of the arrays are examples, with an array for each input."""

    inputs: tuple[weft.TensorOp, ...]
    loss: weft.TensorOp
    results: dict[str, weft.TensorOp]
    training: tuple[Array, ...]
    held_out: tuple[Array, ...]


class Training(NamedTuple):
    """A training step, and the state that counts the steps taken."""

    step: weft.Computation
    taken: weft.TensorOp


def reading_digits(seed: int) -> Task:
    """Return the perceptron of digits.py, with the digits of scikit-learn."""
    model = digits.perceptron(digits.initial_weights(seed), digits.Activation.TANH)
    results = {name: model.results[name] for name in ("loss", "accuracy")}
    return Task(model.inputs, model.loss, results, *digits.load())


def writing_text(seed: int) -> Task:
    """Return a decoder that predicts the next character, with the reference manual of Python."""
    codes = np.frombuffer(manual().encode("ascii", "ignore"), np.uint8).astype(np.int32)
    split = len(codes) * 9 // 10
    rows = np.lib.stride_tricks.sliding_window_view(codes[:split], LENGTH + 1)
    held_out = np.lib.stride_tricks.sliding_window_view(codes[split:], LENGTH + 1)[:: 4 * LENGTH]

    windows = weft.placeholder((weft.symbol("batch"), LENGTH + 1), weft.int32, name="windows")
    logits = decoder(windows[:, :-1], np.random.default_rng(seed))
    loss = weft.cross_entropy(logits, windows[:, 1:], axis=-1)
    return Task((windows,), loss, {"loss": loss}, (rows,), (held_out,))


def manual() -> str:
    """Return the words of the manual that ``help()`` shows, on one line."""
    words = " ".join(topics[name] for name in sorted(topics)).split()
    return " ".join(word for word in words if any(map(str.isalpha, word)))


def decoder(tokens: weft.TensorOp, random: np.random.Generator) -> Any:
    """Return logits of the characters that follow each of the tokens."""

    def matrix(name: str, rows: int, columns: int) -> weft.TensorOp:
        initial = random.normal(scale=columns**-0.5, size=(rows, columns))
        return weft.variable((rows, columns), initial_value=initial, name=name)

    def normalized(x: weft.TensorOp, name: str) -> Any:
        return weft.rms_norm(x, weft.variable((WIDTH,), initial_value=1.0, name=name))

    embeddings = matrix("embeddings", CHARACTERS, WIDTH)
    x = weft.embedding(embeddings, tokens)
    bias = weft.alibi_bias(HEADS, LENGTH)
    for layer in range(LAYERS):
        h = normalized(x, f"layer{layer}.attention.norm")
        projections = [
            matrix(f"layer{layer}.attention.{name}", WIDTH, WIDTH)
            for name in ("query", "key", "value", "output")
        ]
        x = x + weft.multi_head_attention(h, h, h, projections, HEADS, bias=bias, is_causal=True)
        h = normalized(x, f"layer{layer}.dense.norm")
        h = weft.gelu(h @ matrix(f"layer{layer}.dense.up", WIDTH, 4 * WIDTH), "tanh")
        x = x + h @ matrix(f"layer{layer}.dense.down", 4 * WIDTH, WIDTH)
    return normalized(x, "norm") @ embeddings.T


class Model(StrEnum):
    """What is trained."""

    DIGITS = "digits"
    TEXT = "text"


TASKS: dict[Model, Callable[[int], Task]] = {
    Model.DIGITS: reading_digits,
    Model.TEXT: writing_text,
}


def training(task: Task, backend: str | None, learning_rate: float, sharded: bool) -> Training:
    """Return a step that every rank takes with a share of the batch, and the count of steps."""
    taken = weft.persistent_tensor((), "int64", initial_value=0, name="steps")
    with weft.saved_user_deps():
        gradients, variables = weft.data_parallel(task.loss, sharded=sharded)
        update = weft.adam(gradients, variables, learning_rate=learning_rate)
        counted = weft.assign(taken, taken + 1)
        all_writes = weft.doall([update, counted])
    transformer = weft.make_transformer(backend)
    results = [weft.all_reduce(task.loss, "mean"), all_writes]
    return Training(transformer.computation(results, *task.inputs), taken)


def share(task: Task, size: int, seed: int, step: int, ranks: Communicator) -> list[Array]:
    """Return the part of this rank of the batch of a step.

    The batch depends on the seed and on the number of the step only: no state of a generator has
    to be in the checkpoint.
    """
    chosen = np.random.default_rng([seed, step]).integers(len(task.training[0]), size=size)
    mine = np.split(chosen, ranks.size)[ranks.rank]
    return [array[mine] for array in task.training]


def restore(run: Training, checkpoint: Path, ranks: Communicator) -> int:
    """Set all states to those of the checkpoint, if there is one, and return the steps taken.

    Raises CheckpointError if it does not fit, or if the ranks do not see the same one.
    """
    transformer = run.step.transformer
    if checkpoint.exists():
        transformer.load_states(checkpoint)
    taken = int(transformer.get_value(run.taken))
    found = ranks.gather_text(str(taken), "the number of steps in the checkpoint")
    if len(set(found)) > 1:
        problem = f"{checkpoint} has not the same steps on all ranks: {', '.join(found)}"
        raise CheckpointError(f"{problem}. Name a folder that all of them see")
    return taken


def progress(ranks: Communicator) -> Progress:
    """Return a progress bar, which the first rank shows."""
    step = TextColumn("step {task.completed:.0f} of {task.total:.0f}")
    loss = TextColumn("loss {task.fields[loss]:.4f}")
    return Progress(step, BarColumn(), loss, TimeElapsedColumn(), disable=ranks.rank != 0)


def report(task: Task, run: Training, first: int) -> None:
    """Print the steps taken before and now, results on held-out examples, and a digest."""
    transformer = run.step.transformer
    taken = int(transformer.get_value(run.taken))
    print(f"steps     {taken}, the first {first} of them in earlier runs")
    results = transformer.computation(task.results, *task.inputs)(*task.held_out)
    for name, result in results.items():
        print(f"{name:9} {float(result):.4f} on held-out examples")
    print(f"weights   {digest(task.loss.variables(), transformer)}")


def digest(variables: Iterable[weft.TensorOp], transformer: weft.Transformer) -> str:
    """Return a number in hexadecimal that tells whether weights are the same to the bit."""
    found = hashlib.sha256()
    for variable in variables:
        found.update(transformer.get_value(variable).tobytes())
    return found.hexdigest()[:16]


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    checkpoint: Annotated[Path, typer.Option(help="Folder of the checkpoint, seen by all ranks.")],
    model: Annotated[Model, typer.Option()] = Model.DIGITS,
    backend: Annotated[str | None, typer.Option(help="Backend; weft's default if none.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps in all, with those before.")] = 400,
    every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 50,
    batch: Annotated[int, typer.Option(min=1, help="Examples in a step, of all ranks.")] = 64,
    learning_rate: Annotated[float, typer.Option(min=0)] = 0.003,
    seed: Annotated[int, typer.Option(min=0, help="Decides weights and batches.")] = 0,
    sharded: Annotated[bool, typer.Option(help="Divide Adam's state among the ranks.")] = False,
) -> None:
    """Train a model in every process that mpiexec starts, each with a share of the batch."""
    ranks = connected()
    try:
        if batch % ranks.size:
            problem = f"a batch of {batch} has no equal shares for {ranks.size} ranks"
            raise ArgumentError(f"{problem}: give another --batch")
        checkpoint.mkdir(parents=True, exist_ok=True)
        path = checkpoint / f"{model}.checkpoint"
        task = TASKS[model](seed)
        run = training(task, backend, learning_rate, sharded)
        transformer = run.step.transformer
        first = restore(run, path, ranks)
        with progress(ranks) as bar:
            shown = bar.add_task("", total=max(steps, first), completed=first, loss=np.nan)
            for number in range(first, steps):
                loss = float(run.step(*share(task, batch, seed, number, ranks))[0])
                if not np.isfinite(loss):
                    raise FloatingPointError("the loss has diverged: try a lower --learning-rate")
                bar.update(shown, advance=1, loss=loss)
                if (number + 1) % every == 0 or number + 1 == steps:
                    transformer.save_states(path, communicator=ranks)
        if ranks.rank == 0:
            report(task, run, first)
    except CommunicationError:
        raise  # the communicator lets every rank say what it waits for, then ends all of them
    except (weft.WeftError, FloatingPointError, OSError) as error:
        ranks.abort(f"data_parallel.py: {error}")


if __name__ == "__main__":
    app()
