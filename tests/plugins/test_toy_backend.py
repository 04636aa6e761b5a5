"""The backend of tests/third_party/weft_toy, in this process."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from toy_site import SOURCE, installed

import weft
from weft import plugins


@pytest.fixture
def toy(tmp_path: Path):
    with installed(tmp_path), weft.make_transformer("toy") as made:
        yield made


def counts(
    transformer: weft.Transformer, wanted: tuple[str, ...], *, is_guarded: bool
) -> list[int]:
    """Return the values of a state in three calls, of which each may increase it."""
    w = weft.variable((), initial_value=0)
    with weft.saved_user_deps() if is_guarded else nullcontext():
        ops = {"state": w, "update": weft.assign(w, w + 1)}
    computation = transformer.computation([ops[name] for name in wanted])
    return [computation()[wanted.index("state")].item() for _ in range(3)]


@pytest.mark.parametrize(
    ("wanted", "is_guarded", "expected"),
    [
        (("state",), False, [1, 2, 3]),
        (("state",), True, [0, 0, 0]),
        (("state", "update"), True, [1, 2, 3]),
        (("update", "state"), True, [1, 2, 3]),
    ],
    ids=["each call", "guarded", "named", "named first"],
)
def test_a_backend_of_a_third_party_counts_calls(
    toy: weft.Transformer, wanted: tuple[str, ...], is_guarded: bool, expected: list[int]
):
    assert type(toy).__name__ == "ToyTransformer"
    assert counts(toy, wanted, is_guarded=is_guarded) == expected


def test_it_computes_and_trains_a_layer(toy: weft.Transformer):
    rng = np.random.default_rng(0)
    x = weft.placeholder((4, 3))
    w = weft.variable((3, 2), initial_value=rng.normal(size=(3, 2)))
    y = weft.softmax(weft.relu(x @ w)[::-1].T)
    loss = weft.sum(y * y)
    weft.assign(w, w - 0.1 * weft.deriv(loss, w))
    results = [loss, y, w]
    value = rng.normal(size=(4, 3)).astype(np.float32)
    got = toy.computation(results, x)
    expected = weft.make_transformer("numpy").computation(results, x)
    for _ in range(2):
        for mine, theirs in zip(got(value), expected(value), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    got.plan.verify()


def test_it_factorizes_matrices_without_a_rule_for_that(toy: weft.Transformer):
    """They run by the rule of collectives, which every backend has."""
    x = weft.placeholder((2, 3, 3), dtype="float64")
    symmetric = x + x.mT
    results = [
        weft.linalg.qr(x).R, weft.linalg.pinv(x), weft.linalg.matrix_exp(x),
        weft.linalg.lu_factor(x).lu, weft.linalg.ldl(symmetric).d, weft.linalg.eigvalsh(symmetric),
        weft.real(weft.linalg.eigvals(x)), weft.linalg.svdvals(x * (1 + 2j)),
    ]  # fmt: skip
    value = np.random.default_rng(0).normal(size=(2, 3, 3))
    expected = weft.make_transformer("numpy").computation(results, x)(value)
    for mine, theirs in zip(toy.computation(results, x)(value), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)


def test_its_abstract_methods_are_all_that_it_defines(toy: weft.Transformer):
    defined = {name for name in vars(type(toy)) if not name.startswith("_")}
    assert defined == {"transformer_name", *weft.Transformer.__abstractmethods__}


def test_it_can_be_registered_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(SOURCE)
    import weft_toy

    assert "toy" not in weft.transformer_choices()
    plugins.register(weft_toy)
    try:
        assert "toy" in weft.transformer_choices()
        with weft.make_transformer("toy") as transformer:
            assert counts(transformer, ("state",), is_guarded=False) == [1, 2, 3]
    finally:
        plugins.unregister(weft_toy)
