"""Programs of devices that are programmed in C, kept in the cache with packed constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from weft.runtime import compile_cache


@pytest.mark.parametrize("backend", ["native", "opencl"])
def test_a_program_with_packed_constants_is_found_again(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    random = np.random.default_rng(0)
    filters, matrix = (
        random.standard_normal(shape).astype("float32") for shape in ((32, 8, 3, 3), (32, 40))
    )
    given = random.standard_normal((2, 8, 14, 14)).astype("float32")
    found = []
    for is_restored in (False, True):
        x = weft.placeholder((2, 8, 14, 14))
        y = weft.relu(weft.conv(x, weft.constant(filters), padding=1))
        z = weft.global_avg_pool(y, keepdims=False) @ weft.constant(matrix)
        with weft.make_transformer(backend) as transformer:
            computation = transformer.computation(z, x)
            found.append(computation(given))
            assert computation.program.is_restored is is_restored
            assert "convolution" in computation.source
    np.testing.assert_array_equal(found[0], found[1])


def _training_step():
    """Return a program with many values in the arena: a step of a small network."""
    random = np.random.default_rng(0)
    x = weft.placeholder((16, 20))
    values = [random.standard_normal(shape).astype("float32") for shape in ((20, 30), (30, 20))]
    weights = [weft.variable(each.shape, initial_value=each) for each in values]
    y = x
    for weight in weights * 2:
        y = weft.softmax(weft.tanh(y @ weight), 1)
    step = weft.sgd(weft.sum(weft.square(y - x)), learning_rate=0.1)
    return [y, step], x, random.standard_normal((16, 20)).astype("float32")


@pytest.mark.parametrize("backend", ["native", "opencl"])
def test_a_restored_program_has_the_text_that_was_compiled(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compile_cache, "_memory", compile_cache.MemoryCache())
    found = []
    for is_restored in (False, True):
        compile_cache._memory.contents.clear()
        compile_cache._memory.held = 0
        results, x, given = _training_step()
        with weft.make_transformer(backend, cache=tmp_path) as transformer:
            computation = transformer.computation(results, x)
            computed, _ = computation(given)
            assert computation.program.is_restored is is_restored
            found.append((computation.source, computed.tobytes()))
    assert found[0] == found[1]


EMPTY = {
    "logsumexp": lambda x: weft.logsumexp(x, -1),
    "norm": lambda x: weft.norm(x, reduction_axes=-1),
    "softmax": lambda x: weft.softmax(x, -1),
    "sum of squares": lambda x: weft.sum(weft.square(weft.exp(x) @ weft.transpose(x))),
}


@pytest.mark.parametrize("shape", [(3, 0), (0, 3)])
@pytest.mark.parametrize("backend", ["numpy", "native", "opencl"])
def test_programs_with_tensors_without_elements_are_restored(
    backend: str, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compile_cache, "_memory", compile_cache.MemoryCache())
    found = []
    for is_restored in (False, True):
        compile_cache._memory.contents.clear()
        compile_cache._memory.held = 0
        x = weft.placeholder(shape)
        results = [function(x) for function in EMPTY.values()]
        results.append(weft.deriv(weft.sum(results[0]), x))
        with weft.make_transformer(backend, cache=tmp_path) as transformer:
            computation = transformer.computation(results, x)
            computed = computation(np.zeros(shape, "float32"))
            assert computation.program.is_restored is is_restored
            found.append([(each.shape, each.tobytes()) for each in computed])
    assert found[0] == found[1]
