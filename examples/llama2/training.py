"""Training a small decoder, one character a token, on the text beside this module."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import weft
from llama2.checkpoint import Array, Config, rotation
from llama2.model import TABLES, Model
from llama2.tokenizer import Tokenizer

TEXT = Path(__file__).with_name("looms.txt")

WARMING = 20
"""The steps in which the learning rate grows to its full size."""

WEIGHT_DECAY = 0.05


class Plan(NamedTuple):
    """How to train: steps, sequences in each, their tokens, the largest rate, and a seed."""

    steps: int
    batch: int = 4
    sequence: int = 256
    rate: float = 5e-3
    seed: int = 0


def initial_weights(config: Config, seed: int) -> dict[str, Array]:
    """Return norms of 1, and normal numbers whose products with features keep their size.

    Where layers are added up they are smaller, and so are embeddings, which make logits too.
    """
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in config.shapes().items():
        layers = 2 * config.layers if name in ("wo", "w2") else 1
        deviation = 0.02 if name == "embedding" else 1 / np.sqrt(shape[-1] * layers)
        is_norm = name.endswith("norm")
        values = np.ones(shape) if is_norm else deviation * random.standard_normal(shape)
        weights[name] = values.astype(np.float32)
    tables = rotation(config.longest, config.depth)
    return weights | dict(zip(TABLES, tables, strict=True))


def paragraphs(text: str, tokenizer: Tokenizer) -> Array:
    """Return the tokens of all paragraphs, one after the other, each with its beginning."""
    parts = [part.strip() for part in text.split("\n\n")]
    return np.concatenate([tokenizer.encode(part) for part in parts if part]).astype(np.int32)


def batches(tokens: Array, plan: Plan) -> Iterator[tuple[Array, Array]]:
    """Yield sequences from anywhere in the text, and for each token the one that follows it.

    Raises ValueError if the text is shorter than a sequence.
    """
    room = len(tokens) - plan.sequence
    if room < 1:
        raise ValueError(f"a text of {len(tokens)} tokens is too short: use shorter sequences")
    random = np.random.default_rng(plan.seed)
    for _ in range(plan.steps):
        places = random.integers(room, size=(plan.batch, 1)) + np.arange(plan.sequence + 1)
        found = tokens[places]
        yield np.ascontiguousarray(found[:, :-1]), np.ascontiguousarray(found[:, 1:])


def learning_rate(step: int, plan: Plan) -> float:
    """Return the rate of a step: it grows for a while, and then falls along half a cosine."""
    warm = min(1.0, (step + 1) / WARMING)
    return plan.rate * warm * (0.55 + 0.45 * math.cos(math.pi * step / plan.steps))


class Trainer:
    """A model, and the computation that makes one step of its training.

    Raises what `weft.make_transformer` raises for a backend that cannot be used.
    """

    def __init__(self, config: Config, plan: Plan, backend: str | None = None) -> None:
        self.config, self.plan = config, plan
        self.model = Model(config)
        self.transformer = weft.make_transformer(backend)
        tokens, targets = (
            weft.placeholder((plan.batch, plan.sequence), weft.int32, name=name)
            for name in ("tokens", "targets")
        )
        hidden = self.model.hidden(tokens, np.arange(plan.sequence), _causal)
        loss = weft.cross_entropy(self.model.logits(hidden), targets, axis=-1)
        self.rate = weft.persistent_tensor(name="rate")
        update = weft.adamw(loss, None, self.rate, beta2=0.99, weight_decay=WEIGHT_DECAY)
        self.step = self.transformer.computation([loss, update], tokens, targets)
        self.model.load(self.transformer, initial_weights(config, plan.seed))

    def weights(self) -> dict[str, Array]:
        """Return the weights as a checkpoint holds them."""
        return self.model.save(self.transformer)


def _causal(layer: int, query: weft.TensorOp, key: weft.TensorOp, value: weft.TensorOp) -> object:
    return weft.attention(query, key, value, is_causal=True)


def train(trainer: Trainer, tokens: Array) -> float:
    """Take all steps behind a progress bar, and return the mean loss of the last tenth of them.

    Raises FloatingPointError if a loss is infinite or not a number.
    """
    plan, losses = trainer.plan, []
    columns = (
        TextColumn("step {task.completed:.0f} of {task.total:.0f}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}, {task.fields[rate]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        task = progress.add_task("", total=plan.steps, loss=np.nan, rate=0.0)
        started = time.perf_counter()
        for number, batch in enumerate(batches(tokens, plan)):
            trainer.transformer.set_value(trainer.rate, learning_rate(number, plan))
            losses.append(float(trainer.step(*batch)[0]))
            if not np.isfinite(losses[-1]):
                raise FloatingPointError("the loss has diverged: try a lower --learning-rate")
            seconds = time.perf_counter() - started
            rate = (number + 1) * plan.batch * plan.sequence / seconds
            progress.update(task, advance=1, loss=losses[-1], rate=rate)
    return float(np.mean(losses[-max(1, plan.steps // 10) :]))
