from __future__ import annotations

import math
from functools import partial

import overlap
import pytest
from overlap import HEADING, NO_WAIT, RANKS, Case, compiled, markdown, outcome
from scaling_measured import mlp

from weft.testing.imitation import Network, imitated_ranks, ring

NETWORK = Network("slow", 1e-4, 1e8)
CASE = Case("tiny", partial(mlp, (16, 16, 16)), 4, 1024, NETWORK)
GRADIENTS = (1024, 1024, 128)
"""The bytes of the weights of two layers, and of both biases."""


@pytest.mark.parametrize("backend", overlap.BACKENDS)
def test_a_step_is_measured_on_its_networks(backend: str):
    found = outcome(CASE, backend, 2)
    assert found.steps["no wait"].imposed == 0
    assert found.steps["one bucket"].imposed == pytest.approx(ring(RANKS, sum(GRADIENTS), NETWORK))
    # Biases are alone, since each comes before a gradient as large as a bucket, or after it.
    parts = [ring(RANKS, nbytes, NETWORK) for nbytes in (64, 1024, 64, 1024)]
    assert found.imposed == pytest.approx(sum(parts))
    cells = found.cells()
    assert len(cells) == len(HEADING)
    assert len({line.count("|") for line in markdown([cells]).splitlines()}) == 1


def test_a_slower_network_imposes_its_share():
    slow = overlap.slowed(CASE, "numpy", 2.0)
    factor = slow.network.latency / NETWORK.latency
    assert slow.network.bandwidth == pytest.approx(NETWORK.bandwidth / factor)
    assert not math.isclose(factor, 1)


def test_steps_say_what_the_last_call_took():
    with imitated_ranks(RANKS) as ranks, compiled(CASE, "numpy", 1024) as call:
        step = overlap.Step(call, ranks, NETWORK)
        idle = overlap.Step(call, ranks, NO_WAIT)
        for each in (step, idle, step):
            each()
        assert len(step.waited) == 2
        assert step.waited[-1] == ranks.waited
        assert step.imposed == ranks.imposed > idle.imposed == 0
