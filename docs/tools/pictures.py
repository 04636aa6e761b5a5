"""Draws the plans that the pages show."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import weft

IMAGES = Path(__file__).parents[1] / "images"
BATCH, SEQUENCE, FEATURES, HEADS, UNITS = 4, 128, 256, 4, 1024


def dense(x: Any, units: int, name: str) -> Any:
    """Return a layer with a weight and a bias of its own."""
    inputs = x.shape[-1]
    weight = weft.variable((inputs, units), initial_value=1 / math.sqrt(inputs), name=f"w_{name}")
    bias = weft.variable((units,), initial_value=0, name=f"b_{name}")
    return weft.matmul(x, weight) + bias


def normalized(x: Any, name: str) -> Any:
    """Return a layer normalization."""
    scale = weft.variable((FEATURES,), initial_value=1, name=f"scale_{name}")
    offset = weft.variable((FEATURES,), initial_value=0, name=f"offset_{name}")
    return weft.layer_norm(x, scale, offset)


def transformer_block(x: Any) -> Any:
    """Return attention and a network of two layers, each added to what it reads."""
    heads = dense(normalized(x, "attention"), 3 * FEATURES, "heads")
    heads = weft.reshape(heads, (BATCH, SEQUENCE, 3, HEADS, FEATURES // HEADS))
    attended = weft.attention(*weft.unstack(weft.transpose(heads, (2, 0, 3, 1, 4))))
    mixed = weft.reshape(weft.transpose(attended, (0, 2, 1, 3)), (BATCH, SEQUENCE, FEATURES))
    x = x + dense(mixed, FEATURES, "mixed")
    h = weft.gelu(dense(normalized(x, "network"), UNITS, "up"))
    return x + dense(h, FEATURES, "down")


def draw(folder: Path = IMAGES) -> None:
    """Write every picture into a folder."""
    x = weft.placeholder((BATCH, SEQUENCE, FEATURES), name="x")
    with weft.make_transformer("numpy") as transformer:
        block = transformer.computation(transformer_block(x), x, name="transformer block")
        block.plan.picture(folder / "transformer_block_plan.svg")


if __name__ == "__main__":
    draw()
