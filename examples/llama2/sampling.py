"""Choosing the next token by the logits of all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llama2.checkpoint import Array


class Sampling(NamedTuple):
    """How a token is chosen.

    `temperature` divides the logits; 0 takes the most likely token. `top_p` leaves only the most
    likely tokens, as few as have that share of the chances together; 1 leaves all.
    """

    temperature: float = 1.0
    top_p: float = 0.9

    def chances(self, logits: Array) -> Array:
        """Return the chance of each token, as float64; logits must be finite.

        Raises FloatingPointError if any is not.
        """
        if not np.isfinite(logits).all():
            raise FloatingPointError("the model gives logits that are not finite")
        if self.temperature == 0:
            certain = np.zeros(len(logits))
            certain[np.argmax(logits)] = 1
            return certain
        wide: Array = logits.astype(np.float64)
        with np.errstate(over="ignore"):  # at low temperatures; minus infinity has no chance
            chances: Array = np.exp((wide - wide.max()) / self.temperature)
        chances /= chances.sum()
        if self.top_p >= 1:
            return chances
        order = np.argsort(-chances, kind="stable")
        before = np.cumsum(chances[order]) - chances[order]
        chances[order[before >= self.top_p]] = 0
        if not chances.any():  # no share at all was asked for
            chances[order[0]] = 1
        chances /= chances.sum()
        return chances

    def choose(self, logits: Array, random: np.random.Generator) -> int:
        """Return a token, drawn by its chance."""
        if self.temperature == 0:
            return int(np.argmax(self.chances(logits)))
        return int(random.choice(len(logits), p=self.chances(logits)))
