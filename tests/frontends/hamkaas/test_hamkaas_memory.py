"""Memory: the allocator on traces, and plans no larger than what is in use at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hamkaas_decoder import STORIES_15M, decode_step, weights
from hamkaas_models import fibonacci, floats, mnist
from hypothesis import given, settings
from hypothesis import strategies as st

import weft_hamkaas as hk
from weft.errors import ArgumentError, PlanError
from weft.plan import placement
from weft_hamkaas import Allocator, BufferTensor, ConstantTensor, InputTensor, plan_memory
from weft_hamkaas.memory import aligned

TRACES = [(1, 1), (1, 10), (10, 10), (10, 100)]
"""The least and the most blocks that are alive at one time, as in the lab's tests."""


def trace(least: int, most: int, events: int = 1000, seed: int = 0):
    """Return blocks of some bytes, from the event of their birth to that of their death.

    One in ten has no bytes at all.
    """
    choose = random.Random(f"{least},{most},{seed}")
    alive, done = [], []
    for event in range(events):
        grows = len(alive) < least or (len(alive) < most and choose.random() < 0.5)
        if not grows:
            size, born = alive.pop(choose.randrange(len(alive)))
            done.append(placement.Block(size, born, event - 1))
        if grows or len(alive) < least:
            size = 0 if choose.random() < 0.1 else choose.randrange(10**6)
            alive.append((size, event))
    return done + [placement.Block(size, born, events) for size, born in alive]


def replay(allocator: Allocator, blocks: list[Any]):
    """Allocate and free in the order of events, and check that no two blocks overlap."""
    events = [(block.first, 1, number) for number, block in enumerate(blocks)]
    events += [(block.last + 1, 0, number) for number, block in enumerate(blocks)]
    alive = {}
    for _, starts, number in sorted(events):
        size = blocks[number].size
        if not starts:
            allocator.free(alive.pop(number), size)
            continue
        offset = alive[number] = allocator.allocate(size)
        assert offset % 256 == 0
        assert allocator.working_set_size >= offset + size
        for other, at in alive.items():
            if other != number and size and blocks[other].size:
                assert offset + size <= at or at + blocks[other].size <= offset
    return allocator.working_set_size


@pytest.mark.parametrize("live", TRACES, ids=str)
def test_the_allocator_reuses_memory_and_the_planner_needs_hardly_more(live: tuple[int, ...]):
    blocks = trace(*live)
    rounded = [block._replace(size=aligned(block.size)) for block in blocks]
    bound = placement.lower_bound(rounded)
    needed = {fit: replay(Allocator(fit), blocks) for fit in ("first", "best")}
    offsets, planned = placement.place(rounded)
    assert bound <= planned <= 1.15 * bound
    assert all(offset % 256 == 0 for offset in offsets)
    assert bound <= min(needed.values()) <= 1.5 * bound
    assert sum(block.size for block in rounded) > 5 * bound, "without reuse it were much more"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 30), st.integers(0, 30))))
def test_no_two_live_blocks_overlap(spans: list[Any]):
    blocks = [placement.Block(size, min(a, b), max(a, b)) for size, a, b in spans]
    for fit in ("first", "best"):
        replay(Allocator(fit), blocks)


def test_touching_holes_become_one():
    allocator = Allocator()
    offsets = [allocator.allocate(300) for _ in range(4)]
    assert offsets == [0, 512, 1024, 1536]
    for number in (1, 3, 2):
        allocator.free(offsets[number], 300)
    assert allocator.allocate(1500) == 512
    assert allocator.working_set_size == 2048
    assert allocator.allocate(0) % 256 == 0
    assert allocator.working_set_size == 2048


def test_the_smallest_hole_that_fits_is_the_best():
    allocator = Allocator("best")
    large, wall, small, _ = (allocator.allocate(size) for size in (1024, 256, 512, 256))
    allocator.free(large, 1024)
    allocator.free(small, 512)
    assert wall == 1024
    assert allocator.allocate(400) == small


@pytest.mark.parametrize("wrong", [(0, 100), (256, 200), (512, 200)])
def test_only_what_was_allocated_is_freed(wrong: tuple[int, ...]):
    allocator = Allocator()
    allocator.allocate(200)
    with pytest.raises(ValueError, match="there is no block"):
        allocator.free(*wrong)
    allocator.free(0, 200)
    with pytest.raises(ValueError, match="there is no block"):
        allocator.free(0, 200)


@pytest.mark.parametrize("wrong", [-1, np.int64(-1), 1.5, True, "1", None, 2**70])
def test_a_block_has_a_whole_size(wrong: Any):
    with pytest.raises(ArgumentError, match="0 bytes or more, a whole number, not"):
        Allocator().allocate(wrong)
    with pytest.raises(ArgumentError, match=r"a whole number, not|no block"):
        Allocator().free(0, wrong)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8])
def test_a_size_is_an_integer_of_any_kind(kind: type[Any]):
    allocator = Allocator()
    for offset in (0, 256):
        assert allocator.allocate(kind(200)) == offset
    allocator.free(kind(0), kind(200))
    assert allocator.allocate(200) == 0


def test_another_fit_is_refused():
    with pytest.raises(ValueError, match="'first' or 'best'"):
        Allocator("worst")


def stories():
    return decode_step(STORIES_15M, weights(STORIES_15M, zero=True))


@pytest.mark.parametrize(
    ("build", "in_place", "size"),
    [
        (mnist, False, 1_024_000),
        (mnist, True, 913_408),
        (fibonacci, True, 512),
        (stories, False, 602_624),
        (stories, True, 602_624),
    ],
)
def test_a_model_needs_what_is_in_use_at_once(build: Callable[..., Any], in_place: bool, size: int):
    plan = plan_memory(build(), in_place)
    plan.verify()
    assert plan.size == plan.lower_bound == size


@pytest.mark.parametrize("build", [mnist, fibonacci, stories])
def test_what_the_backend_runs_needs_no_more(build: Callable[..., Any], backend: str):
    node = build()
    model = hk.HamKaasPlugin(backend).compile_model(node)
    plan = model.computation.plan
    plan.verify()
    assert plan.arena_size == plan.peak_live <= model.memory.size


def test_views_take_no_memory():
    x = InputTensor("x", "float32", [64, 64])
    plain = x @ x
    viewed = x.reshape([4096]).reshape([64, 64])[0:64] @ x.reshape([64, 64])
    viewed = viewed.reshape([4096])[0:4096].reshape([64, 64])
    assert plan_memory(viewed).size == plan_memory(plain).size
    weights = floats(64, 64)
    plans = [
        hk.HamKaasPlugin().compile_model(each @ weights).computation.plan
        for each in (plain, viewed)
    ]
    assert len({(plan.arena_size, len(plan.steps)) for plan in plans}) == 1


def test_a_view_keeps_its_owner_alive():
    x = InputTensor("x", "float32", [64])
    part = x.relu()[0:32]
    root = part.relu() + x @ floats(64, 32) + part
    plan = plan_memory(root, in_place=False)
    kinds = [type(plan.order[block.nodes[0] - 1]).__name__ for block in plan.blocks]
    assert kinds == ["InputTensor", "ReLUNode", "ReLUNode", "MatMulNode", "SumNode", "SumNode"]
    assert plan.blocks[1].last == len(plan.order)


@pytest.mark.parametrize(
    ("build", "count"),
    [
        (lambda x: x + x, 1),
        (lambda x: x + x.reshape([16]).reshape([4, 4]), 1),
        (lambda x: x + x[0], 2),
        (lambda x: x * x[1:2] + x, 2),
        (lambda x: x + x.permute([1, 0]), 2),
        (lambda x: x[0:1] + x[1:2], 2),
    ],
)
def test_an_operand_that_is_read_otherwise_too_is_not_written_over(
    build: Callable[..., Any], count: int
):
    plan = plan_memory(build(InputTensor("x", "float32", [4, 4]).relu()))
    plan.verify()
    assert len(plan.blocks) == count


def test_constants_and_buffers_live_as_long_as_the_model():
    node = BufferTensor("float32", [100]) + ConstantTensor(floats(100))
    plan = plan_memory(node)
    assert (plan.buffer_bytes, plan.constant_bytes) == (400, 400)
    assert [block.nodes for block in plan.blocks] == [(3,)]


def test_a_plan_that_is_wrong_is_found():
    plan = plan_memory(mnist())
    blocks = [hk.memory.replace(block, offset=0) for block in plan.blocks]
    with pytest.raises(PlanError, match="overlap"):
        hk.memory.replace(plan, blocks=tuple(blocks)).verify()
    blocks[0] = hk.memory.replace(blocks[0], offset=100)
    with pytest.raises(PlanError, match="not aligned"):
        hk.memory.replace(plan, blocks=tuple(blocks)).verify()


def test_the_plan_of_a_model_is_printed():
    model = hk.HamKaasPlugin("numpy").compile_model(mnist())
    text = model.plan
    assert "11 nodes: constants 3,180,040 bytes, buffers 0 bytes, outputs 913,408 bytes" in text
    assert "$4 to $9             $4 MatMulNode, $6 SumNode, $7 ReLUNode" in text
    assert "the start to $4      $1 InputTensor" in text
    assert "$9 to the end        $9 MatMulNode, $11 SumNode" in text
    assert "arena 512000 bytes" in text
