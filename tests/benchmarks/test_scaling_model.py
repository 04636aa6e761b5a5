from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import scaling_model
from hypothesis import given
from hypothesis import strategies as st
from scaling_model import (
    ALGORITHMS,
    BUCKET_BYTES,
    NETWORKS,
    Gradient,
    Network,
    Step,
    bandwidth_bound,
    buckets,
    efficiency,
    fastest,
    fitted,
    read,
    recursive_doubling,
    reduce_scatter_all_gather,
    ring,
    step_seconds,
    tree,
)

import weft

ALL = [*ALGORITHMS.values(), fastest]
RANKS = st.integers(1, 1024)
BYTES = st.integers(1, 10**9)
FACTOR = st.floats(1, 1000)
NETWORK = st.builds(
    Network,
    st.just("any"),
    latency=st.floats(1e-8, 1e-3),
    bandwidth=st.floats(1e6, 1e12),
    sums=st.floats(1e8, 1e12) | st.just(math.inf),
)
ROUNDING = 1 + 1e-9


@st.composite
def steps(draw: st.DrawFn):
    shares = sorted(draw(st.lists(st.floats(0, 1), min_size=1, max_size=12)))
    backward = draw(st.floats(1e-4, 1))
    gradients = [Gradient(draw(BYTES), share * backward) for share in shares]
    return Step("any", tuple(gradients), backward, draw(st.floats(0, 0.1)))


@pytest.mark.parametrize("all_reduce", ALL)
@given(nbytes=BYTES, network=NETWORK)
def test_one_rank_reduces_for_nothing(
    all_reduce: Callable[..., Any], nbytes: int, network: Network
):
    assert all_reduce(1, nbytes, network) == 0


@pytest.mark.parametrize("all_reduce", ALL)
@given(ranks=RANKS, nbytes=BYTES, network=NETWORK, factor=FACTOR)
def test_more_of_anything_takes_no_less_time(
    all_reduce: Callable[..., Any], ranks: int, nbytes: int, network: Network, factor: float
):
    least = all_reduce(ranks, nbytes, network)
    slower = {
        "bytes": all_reduce(ranks, nbytes * factor, network),
        "latency": all_reduce(ranks, nbytes, replace(network, latency=network.latency * factor)),
        "time a byte": all_reduce(
            ranks, nbytes, replace(network, bandwidth=network.bandwidth / factor)
        ),
        "sums": all_reduce(ranks, nbytes, replace(network, sums=network.sums / factor)),
    }
    assert {what: taken for what, taken in slower.items() if taken * ROUNDING < least} == {}


@pytest.mark.parametrize("all_reduce", ALL)
@given(ranks=RANKS, nbytes=BYTES, network=NETWORK)
def test_no_algorithm_beats_the_bandwidth(
    all_reduce: Callable[..., Any], ranks: int, nbytes: int, network: Network
):
    assert all_reduce(ranks, nbytes, network) * ROUNDING >= bandwidth_bound(ranks, nbytes, network)


@given(ranks=RANKS, nbytes=BYTES, bandwidth=st.floats(1e6, 1e12))
def test_a_ring_without_latency_and_sums_reaches_the_bandwidth(
    ranks: int, nbytes: int, bandwidth: float
):
    free = Network("free", 0, bandwidth)
    assert ring(ranks, nbytes, free) == pytest.approx(bandwidth_bound(ranks, nbytes, free))


@given(ranks=RANKS, nbytes=BYTES, network=NETWORK, factor=FACTOR)
def test_ranks_that_share_a_core_wait_longer_by_that_factor(
    ranks: int, nbytes: int, network: Network, factor: float
):
    shared = ring(ranks, nbytes, network.shared(factor))
    assert shared == pytest.approx(factor * ring(ranks, nbytes, network))


# Messages of 1 s and 1 s a byte; a sum takes half a second a byte.
UNIT = Network("unit", 1, 1, 2)


@pytest.mark.parametrize(
    ("all_reduce", "ranks", "seconds"),
    [
        # 8 bytes in 4 parts of 2: 3 messages of 3 s with sums of 1 s, then 3 messages.
        (ring, 4, 3 * (3 + 1) + 3 * 3),
        # 8 bytes up two levels with sums of 4 s, and down.
        (tree, 4, 2 * (9 + 4) + 2 * 9),
        (tree, 3, 2 * (9 + 4) + 2 * 9),
        (recursive_doubling, 4, 2 * (9 + 4)),
        # A third rank lends its 8 bytes to another and gets the result.
        (recursive_doubling, 3, (9 + 4) + (9 + 4) + 9),
        # Halves of 4 and 2 bytes with sums of 2 and 1 s, then the same without.
        (reduce_scatter_all_gather, 4, (5 + 2) + (3 + 1) + 3 + 5),
        (fastest, 4, 19),
    ],
)
def test_all_reduces_by_hand(all_reduce: Callable[..., Any], ranks: int, seconds: int):
    assert all_reduce(ranks, 8, UNIT) == seconds


@pytest.mark.parametrize(
    ("most", "found"),
    [
        (0, [(3, 1), (4, 2), (5, 6)]),
        (7, [(7, 2), (5, 6)]),
        (9, [(7, 2), (5, 6)]),
        (12, [(12, 6)]),
        (math.inf, [(12, 6)]),
    ],
)
def test_buckets_are_filled_in_order(most: float, found: list[Any]):
    gradients = [Gradient(3, 1.0), Gradient(4, 2.0), Gradient(5, 6.0)]
    assert [(each.nbytes, each.ready) for each in buckets(gradients, most)] == found


@given(steps(), st.floats(0, 1e9))
def test_buckets_hold_all_gradients(step: Step, most: float):
    found = buckets(step.gradients, most)
    assert sum(bucket.nbytes for bucket in found) == step.nbytes
    assert found[-1].ready == step.gradients[-1].ready
    largest = max(gradient.nbytes for gradient in step.gradients)
    assert all(bucket.nbytes <= max(most, largest) for bucket in found)
    assert all(left.nbytes + right.nbytes > most for left, right in pairwise(found))


def test_buckets_are_as_large_as_those_of_weft():
    assert inspect.signature(weft.data_parallel).parameters["bucket_bytes"].default == BUCKET_BYTES


def test_a_step_by_hand():
    # Two ranks exchange n bytes in n + 1 s, and gradients are known after 1, 2 and 6 s of 7.
    step = Step("by hand", (Gradient(3, 1.0), Gradient(4, 2.0), Gradient(5, 6.0)), 7.0, 0.5)
    network = Network("no sums", 1, 1)

    def seconds(most: float, overlap: bool):
        return step_seconds(step, 2, network, most, recursive_doubling, overlap)

    assert seconds(0, True) == (1 + 4) + 5 + 6 + 0.5  # one after the other from 1 s on
    assert seconds(8, True) == (2 + 8) + 6 + 0.5
    assert seconds(0, False) == 7 + (4 + 5 + 6) + 0.5
    assert seconds(math.inf, False) == 7 + 13 + 0.5
    assert efficiency(step, 1, network) == 1


@given(steps(), RANKS, NETWORK, st.floats(0, 1e9))
def test_overlap_never_makes_a_step_longer(step: Step, ranks: int, network: Network, most: float):
    alone = step_seconds(step, 1, network, most)
    hidden = step_seconds(step, ranks, network, most)
    waited = step_seconds(step, ranks, network, most, overlap=False)
    assert alone == step.alone
    assert alone <= hidden * ROUNDING
    assert hidden <= waited * ROUNDING


@given(steps(), RANKS, NETWORK, FACTOR)
def test_a_slower_network_makes_no_step_shorter(
    step: Step, ranks: int, network: Network, factor: float
):
    taken = step_seconds(step, ranks, network)
    assert taken <= step_seconds(step, ranks, network.shared(factor)) * ROUNDING


@given(
    st.floats(1e-7, 1e-2),
    st.floats(1e6, 1e12),
    st.lists(st.integers(1, 10**8), min_size=2, unique=True),
)
def test_a_fit_finds_the_network_of_its_messages(
    latency: float, bandwidth: float, sizes: list[int]
):
    network = Network("any", latency, bandwidth)
    found = fitted("any", [(size, network.message(size)) for size in sizes], math.inf)
    for size in sizes:
        assert found.message(size) == pytest.approx(network.message(size), rel=1e-3)


@pytest.fixture(scope="module")
def measured():
    return read()


def test_the_recorded_measurements_predict(measured: Any):
    rows = scaling_model.predictions(measured)
    assert {row["network"] for row in rows} == {network.name for network in NETWORKS}
    assert len(rows) == 3 * len(NETWORKS) * 11
    alone = {step.name: step.alone for step in measured.steps}
    for row in rows:
        assert alone[row["step"]] <= row["seconds"] * ROUNDING
        assert row["seconds"] <= row["without_overlap"] * ROUNDING
    assert all(row["predicted"] > 0 for row in scaling_model.checks(measured))


def test_the_picture_shows_each_step_and_network(measured: Any, tmp_path: Path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "scaling.svg"
    scaling_model.draw(measured, path)
    text = path.read_text()
    for name in [*measured.steps, *NETWORKS]:
        assert f">{name.name}<" in text
