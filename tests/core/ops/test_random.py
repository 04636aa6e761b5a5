"""Random numbers: the published bits, fresh at every call, the same again from the start."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import plugins
from weft.ops.random.philox import philox

# From the known-answer tests of Random123, the authors' own library: counter, key, words.
KNOWN_ANSWERS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
):
    found = philox(np.array(counter, np.uint32)[:, None], key)
    assert tuple(found[:, 0].tolist()) == words


def test_bits_are_those_of_element_and_call(transformer: weft.Transformer):
    draw = transformer.computation(weft.random_bits((5,), seed=7, stream=3))
    for call in (1, 2):
        counter = np.array([[0, 1], [0, 0], [call, call], [0, 0]], np.uint32)
        expected = philox(counter, (7, 3)).T.reshape(-1)[:5]
        np.testing.assert_array_equal(draw(), expected)


def test_numbers_are_fresh_at_every_call_and_repeat_from_the_start(backend: str):
    numbers = weft.uniform((100,), seed=1)
    runs = []
    for _ in range(2):
        draw = weft.make_transformer(backend).computation(numbers)
        runs.append([draw(), draw()])
    assert (runs[0][0] != runs[0][1]).all()
    np.testing.assert_array_equal(runs[0], runs[1])


def test_two_ops_have_streams_of_their_own(transformer: weft.Transformer):
    first, second = transformer.computation([weft.uniform((50,)), weft.uniform((50,))])()
    assert (first != second).all()


def test_uniform_fills_its_interval_evenly(transformer: weft.Transformer):
    values = transformer.computation(weft.uniform((10_000,), -1, 3, seed=5))()
    assert values.dtype == np.float32
    assert values.min() >= -1
    assert values.max() < 3
    counts, _ = np.histogram(values, bins=10, range=(-1, 3))
    # 1000 in each bin, with a standard deviation of 30, of which 6.5 have a chance of 1e-10.
    assert abs(counts - 1000).max() < 6.5 * 30


def test_normal_has_its_mean_and_scale(transformer: weft.Transformer):
    values = transformer.computation(weft.normal((10_000,), 2.0, 3.0, seed=5))()
    assert np.isfinite(values).all()
    # With standard deviations of 0.03 and 0.021.
    assert abs(values.mean() - 2) < 0.2
    assert abs(values.std() - 3) < 0.15


def test_the_gradient_sees_the_numbers_of_the_same_call(transformer: weft.Transformer):
    x = weft.variable((4,), initial_value=1.0)
    mask = weft.uniform((4,), seed=2)
    loss = weft.sum(x * mask)
    drawn, gradient = transformer.computation([mask, weft.deriv(loss, x)])()
    np.testing.assert_array_equal(drawn, gradient)


def test_integers_cannot_be_drawn_as_floats():
    with pytest.raises(weft.errors.DTypeError, match="are not floats"):
        weft.uniform((3,), dtype="int32")


def test_an_unknown_length_is_drawn_for_the_length_of_the_call(transformer: weft.Transformer):
    x = weft.placeholder((weft.symbol("n"),))
    noisy = transformer.computation(x + weft.uniform(x, 1, 2), x)
    assert noisy(np.zeros(3)).shape == (3,)
    assert (noisy(np.zeros(6)) >= 1).all()


def draws(seed: int) -> dict[str, weft.Op]:
    """Return one op for each way of drawing, with streams of their own."""
    axes, streams = (7, 301), itertools.count(10)

    def given() -> dict[str, int]:
        return {"seed": seed, "stream": next(streams)}

    ones = weft.constant(np.ones(axes, np.float32))
    found = {
        "bits": weft.random_bits(axes, **given()),
        "randint": weft.randint(axes, -5, 2**31, "int64", **given()),
        "bernoulli": weft.bernoulli(0.3, axes, **given()),
        "dropout": weft.dropout(ones, 0.4, **given()),
        "permutation": weft.permutation(301, **given()),
        "shuffle": weft.shuffle(weft.cumsum(ones, 1), 1, **given()),
        "categorical": weft.categorical(ones, **given()),
    }
    for name in ("uniform", "normal", "exponential", "gumbel", "laplace", "truncated_normal"):
        function = getattr(weft, name)
        found |= {f"{name} {each}": function(axes, dtype=each, **given()) for each in FLOATS}
    return found


FLOATS = ["float16", "float32", "float64"]


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", [0, 2**31, 2**32 - 1])
def test_a_seed_gives_the_same_numbers_on_every_backend_and_compiled_again(
    seed: Any, tmp_path: Path
):
    ops = draws(seed)
    with weft.make_transformer("numpy", cache=False, threads=1) as made:
        draw = made.computation(ops)
        expected = [draw(), draw()]
    for options in ({"threads": 3}, {}, {}, {"name": "opencl"}):
        name = options.pop("name", "numpy")
        if not plugins.backend_status(name).usable:
            continue
        with weft.make_transformer(name, cache=tmp_path, **options) as made:
            draw = made.computation(ops)
            for call in expected:
                for what, found in draw().items():
                    wanted, text = call[what], f"{what} on {name}"
                    if name == "numpy" or found.dtype.kind in "biu" or what.startswith("uniform"):
                        np.testing.assert_array_equal(found, wanted, text)
                    else:
                        close = 1e-2 if found.dtype == np.float16 else 1e-4
                        np.testing.assert_allclose(found, wanted, close, close, err_msg=text)


def test_threads_draw_from_one_sequence():
    numbers = weft.uniform((4,), seed=9)
    draw = weft.make_transformer("numpy").computation(numbers)
    one_by_one = sorted(tuple(draw()) for _ in range(80))
    draw = weft.make_transformer("numpy").computation(numbers)
    with ThreadPoolExecutor(4) as threads:
        together = sorted(threads.map(lambda _: tuple(draw()), range(80)))
    assert together == one_by_one


def test_a_checkpoint_draws_again_what_was_drawn(backend: str):
    x = weft.placeholder((50,))
    kept = weft.dropout(weft.tanh(x), 0.5, seed=3, stream=77)
    found = []
    for square in (kept * kept, weft.checkpoint(kept * kept, [x])):
        made = weft.make_transformer(backend)
        call = made.computation([square, weft.deriv(weft.sum(square), x)], x)
        found.append([*call(np.linspace(-1, 1, 50)), *call(np.linspace(-1, 1, 50))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert ((found[0][0] == 0) == (found[0][1] == 0)).all()
