"""Decoding: a prompt at once, and then token by token, with keys and values kept in states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from llama2.checkpoint import Array, Config
from llama2.model import Model

LEAST_PROMPT = 16
"""What shorter prompts are filled up to."""


class Decoder:
    """A model at work: two computations that share weights, keys and values.

    Its matrices are float32, or of so many `bits`.

    Raises what `weft.make_transformer` raises for a backend that cannot be used.
    """

    def __init__(
        self,
        config: Config,
        weights: Mapping[str, Array],
        backend: str | None = None,
        bits: int | None = None,
    ) -> None:
        self.config = config
        self.model = Model(config, bits)
        self.transformer = weft.make_transformer(backend)
        shape = (config.kv_heads, config.longest, config.depth)
        self.keys, self.values = (
            [
                weft.persistent_tensor(shape, initial_value=0, name=f"{kind}{n}")
                for n in range(config.layers)
            ]
            for kind in ("keys", "values")
        )
        with weft.saved_user_deps():
            self.step = self._step()
        with weft.saved_user_deps():
            self.prefill = self._prefill()
        self.model.load(self.transformer, weights)
        self._token = np.zeros(1, np.int32)
        self._position = np.zeros((), np.int32)
        self._logits: Array = np.empty(config.vocabulary, np.float32)
        self._row = self._logits.reshape(1, -1)

    def _step(self) -> weft.Computation:
        """Return the computation from a token and its position to the logits of the next."""
        token = weft.placeholder((1,), weft.int32, name="token")
        position = weft.placeholder((), weft.int32, name="position")

        config = self.config
        groups = (config.kv_heads, config.heads // config.kv_heads, config.depth)
        is_later = weft.arange(config.longest) > position
        bias = weft.where(is_later, np.float32(-np.inf), np.float32(0))

        def attend(layer: int, query: Any, key: Any, value: Any) -> Any:
            keys = weft.update_cache(self.keys[layer], key, position)
            values = weft.update_cache(self.values[layer], value, position)
            asked = weft.reshape(query, groups) * np.float32(config.depth**-0.5)
            shares = weft.softmax(asked @ weft.swapaxes(keys, -1, -2) + bias)
            return weft.reshape(shares @ values, query.axes.lengths)

        hidden = self.model.hidden(token, weft.reshape(position, (1,)), attend)
        return self.transformer.computation(self.model.logits(hidden), token, position)

    def _prefill(self) -> weft.Computation:
        """Return the computation from a prompt to the logits of what follows its last token.

        The prompt is filled up with any tokens behind that one. What they leave in the states is
        never seen: decoding writes the keys and values of a position before it looks there.
        """
        length = weft.symbol("length")
        tokens = weft.placeholder((length,), weft.int32, name="tokens")
        last = weft.placeholder((1,), weft.int32, name="last")
        writes = []

        def attend(layer: int, query: Any, key: Any, value: Any) -> Any:
            for cache, new in ((self.keys[layer], key), (self.values[layer], value)):
                block = weft.dynamic_update_slice(cache, new, (0, 0, 0))
                writes.append(weft.assign(cache, block))
            return weft.attention(query, key, value, is_causal=True)

        hidden = self.model.hidden(tokens, weft.arange(length), attend)
        logits = self.model.logits(weft.take(hidden, last, 0))
        return self.transformer.computation([logits, weft.doall(writes)], tokens, last)

    def _require_token(self, token: int) -> None:
        if not 0 <= token < self.config.vocabulary:
            raise ValueError(f"tokens are 0 to {self.config.vocabulary - 1}, not {token}")

    def read(self, prompt: Sequence[int]) -> Array:
        """Return the logits after a prompt, which begins at position 0.

        Raises ValueError for one without tokens, for one that is longer than the model has
        positions, and for a token that is not in the vocabulary.
        """
        if not 1 <= len(prompt) <= self.config.longest:
            raise ValueError(
                f"a prompt has 1 to {self.config.longest} tokens, the positions of the model, "
                f"not {len(prompt)}"
            )
        for token in (min(prompt), max(prompt)):
            self._require_token(token)
        room = min(self.config.longest, max(LEAST_PROMPT, 1 << (len(prompt) - 1).bit_length()))
        tokens = np.zeros(room, np.int32)
        tokens[: len(prompt)] = prompt
        logits, _ = self.prefill(tokens, np.array([len(prompt) - 1], np.int32))
        return np.ravel(logits)

    def decode(self, token: int, position: int) -> Array:
        """Return the logits after a token at a position; the next call overwrites them.

        Raises ValueError for a token that is not in the vocabulary, and for a position that the
        model does not have.
        """
        self._require_token(token)
        if not 0 <= position < self.config.longest:
            raise ValueError(f"positions are 0 to {self.config.longest - 1}, not {position}")
        self._token[0], self._position[...] = token, position
        self.step(self._token, self._position, out=self._row)
        return self._logits
