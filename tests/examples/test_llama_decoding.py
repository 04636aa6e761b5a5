"""Decoding: the same numbers as a plain NumPy transformer, in place, compiled once."""

from __future__ import annotations

import gc
import math
import re
import tracemalloc
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from llama2.checkpoint import Array, Config
from llama2.decoder import Decoder
from llama2.sampling import Sampling
from llama2.training import Plan, Trainer, batches, initial_weights, learning_rate

import weft

pytestmark = pytest.mark.slow

POSITIONS = 32
GROUPED = Config(
    dim=32, hidden_dim=48, layers=2, heads=4, kv_heads=2, vocabulary=61, longest=40, shared=False
)
ALONE = GROUPED._replace(kv_heads=4, shared=True)
PYTHON_OBJECTS = 4096
"""Bytes: views of arguments, tuples of arguments and frames, whatever the size of the tensors."""

TOKENS = np.random.default_rng(1).integers(61, size=POSITIONS).tolist()


def weights_for(config: Config) -> dict[str, Array]:
    """Return weights that make every part matter: embeddings are large, norms are not 1."""
    random = np.random.default_rng(2)
    weights = initial_weights(config, 0)
    for name in ("attention_norm", "dense_norm", "final_norm"):
        weights[name] += 0.3 * random.standard_normal(weights[name].shape, "f4")
    weights["embedding"] *= 40
    return weights


def plain(config: Config, weights: dict[str, Array], tokens: Sequence[int]) -> Array:
    """Return the logits after each of some tokens, as NumPy computes them in float64."""
    w = {name: np.asarray(array, "f8") for name, array in weights.items()}
    length, depth = len(tokens), config.dim // config.heads
    angles = (w["cos"] + 1j * w["sin"])[:length, None]

    def norm(x: Array, scale: Array) -> Array:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * scale

    def turned(x: Array) -> Array:
        pairs = x.reshape(length, -1, depth // 2, 2)
        rotated = (pairs[..., 0] + 1j * pairs[..., 1]) * angles
        return np.stack([rotated.real, rotated.imag], -1).reshape(length, -1, depth)

    x = w.get("lookup", w["embedding"])[list(tokens)]
    for n in range(config.layers):
        h = norm(x, w["attention_norm"][n])
        query, key = turned(h @ w["wq"][n].T), turned(h @ w["wk"][n].T)
        value = (h @ w["wv"][n].T).reshape(length, -1, depth)
        found = np.empty_like(query)
        for head in range(config.heads):
            group = head * config.kv_heads // config.heads
            scores = query[:, head] @ key[:, group].T / np.sqrt(depth)
            scores[np.triu_indices(length, 1)] = -np.inf
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            found[:, head] = shares / shares.sum(-1, keepdims=True) @ value[:, group]
        x = x + found.reshape(length, -1) @ w["wo"][n].T
        h = norm(x, w["dense_norm"][n])
        gate = h @ w["w1"][n].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["w3"][n].T)) @ w["w2"][n].T
    return norm(x, w["final_norm"]) @ w["embedding" if config.shared else "classifier"].T


@pytest.mark.parametrize("config", [GROUPED, ALONE], ids=["grouped", "alone"])
def test_weights_of_few_bits_are_those_that_they_stand_for(config: Config, backend: str):
    weights = weights_for(config)
    few = dict(weights)
    for name in ("wq", "wk", "wv", "wo", "w1", "w2", "w3", "embedding", "classifier"):
        if name in weights:
            group = math.gcd(weights[name].shape[-1], 32)
            restored = weft.dequantize(*weft.quantize(weights[name].swapaxes(-1, -2), 4, group))
            few[name] = weft.jit(lambda x=restored: x)().swapaxes(-1, -2)
    few["lookup"] = weights["embedding"]
    decoder = Decoder(config, weights, backend, bits=4)
    found = [decoder.read(TOKENS[:9])]
    found += [decoder.decode(TOKENS[place], place).copy() for place in (9, 10)]
    decoder.transformer.close()
    wanted = plain(config, few, TOKENS[:11])[8:]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.fixture(params=[GROUPED, ALONE], ids=["grouped", "alone"], scope="module")
def decoder(request: pytest.FixtureRequest, backend: str) -> Iterator[Decoder]:
    made = Decoder(request.param, weights_for(request.param), backend)
    yield made
    made.transformer.close()


def assert_near(found: Array, expected: Array) -> None:
    """Compare to 1e-5 of the largest logit."""
    largest = np.abs(expected).max()
    assert largest > 0.5
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1, largest))


def test_decoding_is_what_a_plain_transformer_computes(decoder: Decoder) -> None:
    expected = plain(decoder.config, weights_for(decoder.config), TOKENS)
    found = [decoder.decode(token, place).copy() for place, token in enumerate(TOKENS)]
    assert_near(np.stack(found), expected)


@pytest.mark.share(3)
def test_a_prompt_at_once_is_as_good_as_token_by_token(decoder: Decoder) -> None:
    expected = plain(decoder.config, weights_for(decoder.config), TOKENS)
    for length in (1, 15, 16, 17, POSITIONS):
        assert_near(decoder.read(TOKENS[:length]), expected[length - 1])
        for place in range(length, min(length + 3, POSITIONS)):
            assert_near(decoder.decode(TOKENS[place], place), expected[place])


@pytest.mark.long("opencl")
def test_prompts_are_compiled_for_few_lengths(decoder: Decoder) -> None:
    for length in range(1, decoder.config.longest + 1):
        decoder.read((TOKENS * 2)[:length])
    assert len(decoder.prefill.programs) == 3, "16, 32 and 40, the longest"


def test_a_second_text_does_not_see_the_first(decoder: Decoder) -> None:
    first = decoder.read(TOKENS[:20]).copy()
    for place, token in enumerate(TOKENS):
        decoder.decode(token, place)
    np.testing.assert_array_equal(decoder.read(TOKENS[:20]), first)


WRONG_CALLS = {
    "no piece": (lambda decoder: decoder.decode(61, 0), "tokens are 0 to 60, not 61"),
    "token below 0": (lambda decoder: decoder.decode(-1, 0), "tokens are 0 to 60, not -1"),
    "position below 0": (lambda decoder: decoder.decode(1, -1), "positions are 0 to 39, not -1"),
    "position too high": (lambda decoder: decoder.decode(1, 40), "positions are 0 to 39, not 40"),
    "no prompt": (lambda decoder: decoder.read([]), "1 to 40 tokens, .*, not 0"),
    "long prompt": (lambda decoder: decoder.read([1] * 41), "1 to 40 tokens, .*, not 41"),
    "no piece in a prompt": (lambda decoder: decoder.read([1, 61, 2]), "0 to 60, not 61"),
    "below 0 in a prompt": (lambda decoder: decoder.read([1, -1, 2]), "0 to 60, not -1"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_what_the_model_has_no_room_for_is_refused(decoder: Decoder, name: str) -> None:
    call, words = WRONG_CALLS[name]
    with pytest.raises(ValueError, match=words):
        call(decoder)


def test_the_longest_prompt_is_read(decoder: Decoder) -> None:
    tokens = [*TOKENS, *TOKENS][: decoder.config.longest]
    for place, token in enumerate(tokens):
        stepped = decoder.decode(token, place)
    np.testing.assert_allclose(decoder.read(tokens), stepped, rtol=1e-3, atol=1e-4)


def test_keys_and_values_are_written_in_place(decoder: Decoder) -> None:
    """Each state is written by one step, which reads that very state, and copied by none."""
    lines = decoder.step.plan.table().splitlines()
    shape = f"[{decoder.config.kv_heads}, {decoder.config.longest}, {decoder.config.depth}]"
    for name in [state.name for state in (*decoder.keys, *decoder.values)]:
        (write,) = [line for line in lines if re.search(rf"{name}:\S+\[.*<-", line)]
        assert f"{name}:float32{shape} <- DynamicUpdateSliceOp({name}:float32{shape}, " in write
    whole = [line for line in lines if f"float32{shape}" in line.partition("<-")[0]]
    assert len(whole) == 4, "nothing else is as large as a cache"


def test_a_token_compiles_nothing_and_allocates_nothing() -> None:
    """But for Python's objects, and for the scores: NumPy copies what it broadcasts to in place."""
    config = GROUPED._replace(hidden_dim=4000, vocabulary=5000, longest=64)
    decoder = Decoder(config, initial_weights(config, 0), "numpy")
    compiled = []
    specialize = decoder.transformer.specialize
    decoder.transformer.specialize = lambda *args: compiled.append(args) or specialize(*args)
    for place in range(3):
        decoder.decode(place, place)
    limit = PYTHON_OBJECTS + config.heads * config.longest * 4
    assert limit < config.hidden_dim * 4, "a row of hidden units would go unnoticed"
    gc.collect()
    found = []
    tracemalloc.start()
    try:
        for place in range(3, 9):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            decoder.decode(place, place)
            found.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert min(found) < limit
    assert compiled == []
    assert len(decoder.step.programs) == 1
    decoder.transformer.close()


def test_training_makes_the_loss_smaller_and_gives_weights_that_decode(backend: str) -> None:
    config = Config(16, 24, 1, 2, 1, 9, 16)
    plan = Plan(steps=40, batch=4, sequence=12, rate=2e-2)
    trainer = Trainer(config, plan, backend)
    tokens = np.tile(np.arange(9, dtype=np.int32), 20)
    losses = []
    for step, batch in enumerate(batches(tokens, plan)):
        trainer.transformer.set_value(trainer.rate, learning_rate(step, plan))
        losses.append(float(trainer.step(*batch)[0]))
    assert losses[0] == pytest.approx(np.log(9), rel=0.1)
    assert losses[-1] < 0.6 * losses[0]
    weights = trainer.weights()
    assert {name: array.shape for name, array in weights.items()} == config.shapes()
    np.testing.assert_array_equal(weights["cos"], initial_weights(config, 0)["cos"])
    decoder = Decoder(config, weights, backend)
    assert [int(np.argmax(decoder.decode(t, n))) for n, t in enumerate([3, 4, 5])] == [4, 5, 6]
    for transformer in (trainer.transformer, decoder.transformer):
        transformer.close()


def test_batches_are_sequences_of_the_text_and_what_follows() -> None:
    tokens = np.arange(50, dtype=np.int32)
    for found, following in batches(tokens, Plan(steps=3, batch=4, sequence=10)):
        assert found.shape == (4, 10)
        np.testing.assert_array_equal(found + 1, following)
        np.testing.assert_array_equal(np.diff(found), 1)


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        next(batches(np.arange(10, dtype=np.int32), Plan(steps=1, sequence=10)))


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [learning_rate(step, Plan(steps=100, rate=1.0)) for step in range(100)]
    top = int(np.argmax(rates))
    assert 0 < rates[0] < 0.1 < 0.9 < rates[top] <= 1
    assert np.all(np.diff(rates[:top]) > 0)
    assert np.all(np.diff(rates[top:]) < 0)


logits = npst.arrays(np.float32, st.integers(1, 20), elements=st.floats(-20, 20, width=32))


@given(logits, st.floats(0.05, 5), st.floats(0, 1))
def test_top_p_keeps_the_fewest_tokens_that_have_the_share(
    values: Array, temperature: float, top_p: float
) -> None:
    every = Sampling(temperature, 1.0).chances(values)
    kept = Sampling(temperature, top_p).chances(values)
    assert kept.sum() == pytest.approx(1)
    inside = kept > 0
    assert inside.any()
    share = every[inside].sum()
    assert share >= top_p - 1e-9
    assert every[inside].min() >= every[~inside].max(initial=0)
    if inside.sum() > 1:
        assert share - every[inside].min() < top_p + 1e-9, "one fewer would not be enough"
    np.testing.assert_allclose(kept[inside], every[inside] / share, rtol=1e-6)


@given(logits, st.floats(0.1, 5))
def test_a_temperature_divides_the_logits(values: Array, temperature: float) -> None:
    chances = Sampling(temperature, 1.0).chances(values)
    expected = np.exp((values.astype("f8") - values.max()) / temperature)
    np.testing.assert_allclose(chances, expected / expected.sum(), rtol=1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-300, 1e300])
def test_any_temperature_gives_chances(temperature: float) -> None:
    chances = Sampling(temperature, 1.0).chances(np.array([-5, 3e38, -3e38], "f4"))
    assert chances.sum() == pytest.approx(1)
    assert chances[1] == (1 if temperature < 1 else pytest.approx(1 / 3))


@given(logits, st.integers(0, 99))
def test_temperature_0_takes_the_likeliest_token(values: Array, seed: int) -> None:
    random = np.random.default_rng(seed)
    for top_p in (0.0, 0.5, 1.0):
        assert Sampling(0.0, top_p).choose(values, random) == np.argmax(values)
    assert Sampling(0.0).chances(values).tolist().count(1) == 1


def test_tokens_are_drawn_by_their_chances() -> None:
    values = np.log(np.array([0.1, 0.2, 0.7], np.float32))
    random = np.random.default_rng(0)
    drawn = [Sampling(1.0, 1.0).choose(values, random) for _ in range(3000)]
    np.testing.assert_allclose(np.bincount(drawn) / 3000, [0.1, 0.2, 0.7], atol=0.03)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_refused(temperature: float) -> None:
    with pytest.raises(FloatingPointError, match="not finite"):
        Sampling(temperature).choose(np.array([0, np.nan], "f4"), np.random.default_rng(0))
