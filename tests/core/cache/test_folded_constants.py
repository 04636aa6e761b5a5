"""Large folded constants: what is kept of a program says how they are made, not what they hold."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir import folded_constants
from weft.runtime import compile_cache

LARGE = np.linspace(-1, 1, 3 * folded_constants.LARGE // 4, dtype=np.float32).reshape(3, -1)
ROW = np.linspace(1, 2, LARGE.shape[1], dtype=np.float32)

FOLDED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "one op": (weft.tanh, np.tanh(LARGE)),
    "a view": (lambda c: weft.contiguous(weft.transpose(c)), LARGE.T),
    "several ops": (lambda c: (c * 2 + 1) * ROW, (LARGE * 2 + 1) * ROW),
    "a chain": (lambda c: _repeated(c, 40), LARGE + 40),
    "with a broadcast number": (lambda c: c + weft.broadcast(3.0, LARGE.shape), LARGE + 3),
    "one value twice": (lambda c: weft.square(c * 2) + c * 2, (LARGE * 2) ** 2 + LARGE * 2),
}


def _repeated(x: Any, times: int) -> Any:
    for _ in range(times):
        x = x + 1
    return x


@pytest.mark.parametrize("name", FOLDED)
def test_no_large_constant_is_kept_that_can_be_made_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, wanted = FOLDED[name]
    x = weft.placeholder(wanted.shape)
    for turn in range(2):
        monkeypatch.setattr(compile_cache, "_memory", compile_cache.MemoryCache())
        constant = weft.constant(LARGE)
        with weft.make_transformer("numpy", cache=tmp_path) as made:
            computation = made.computation([build(constant), build(constant) * x], x)
            value, product = computation(np.full(wanted.shape, 2, np.float32))
            assert computation.program.is_restored == bool(turn)
            np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(product, wanted * 2, rtol=1e-5, atol=1e-5)
            plan = computation.plan
            assert any(buffer.nbytes >= folded_constants.LARGE for buffer in plan.buffers)
    kept = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 0 < kept < folded_constants.LARGE / 8 + ROW.nbytes


def test_values_on_the_way_are_let_go() -> None:
    with weft.make_transformer("numpy", cache=False) as made:
        made.computation(weft.tanh(weft.constant(LARGE) + 1))()
    assert not folded_constants._sources


def test_a_constant_may_outlive_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    made, source = weft.constant(LARGE), weft.constant(1.0)
    folded_constants.remember(made, source)
    failures: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    sources = folded_constants._sources
    assert any(each is source for _, each in sources.values())
    monkeypatch.setattr(folded_constants, "_sources", None)
    del made
    gc.collect()
    assert not failures
    assert not any(each is source for _, each in sources.values())
