"""Graphs that programs call on a device: lowered once, in loops and choices of the host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import FORMS, transformer_for

import weft
from weft.errors import IndexOutOfRange
from weft_c.runtime import segments
from weft_c.runtime.control_flow import Conditional, Repeat, While
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.source.functions import HostCall
from weft_opencl.transformer import OpenCLTransformer

pytestmark = pytest.mark.slow

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
W = np.random.default_rng(0).normal(0, 0.3, (8, 8)).astype(np.float32)


def layer() -> weft.Graph:
    """Return a graph that is large enough not to be replaced by its ops."""
    x, w = weft.placeholder((6, 8)), weft.placeholder((8, 8))
    hidden = weft.softmax(weft.gelu(weft.layer_norm(x) @ w) + 1)
    for _ in range(4):
        hidden = weft.tanh(hidden) * weft.sqrt(weft.abs(hidden))
    return weft.capture([x + hidden], [x, w], "layer")


def tensors() -> tuple[Any, Any]:
    return weft.placeholder((6, 8), name="x"), weft.placeholder((8, 8), name="w")


def until(limit: Any, x: Any) -> Any:
    """Double numbers until their sum is large enough."""
    total, value = weft.placeholder(()), weft.placeholder((6, 8))
    more = weft.capture([weft.less(weft.sum(value), total)], [total, value], "more")
    body = weft.capture([total, value * 2], [total, value], "body")
    return weft.while_loop(more, body, limit, x)[1]


def nested(x: Any, w: Any, which: Any, limit: Any) -> list[Any]:
    """Return results of a loop, of a choice with a loop in it, and of a loop that may not end."""
    a, b = tensors()
    (twice,) = weft.loop(layer(), 5, a, b)
    deep = weft.capture([twice + 1], [a, b], "deep")
    (looped,) = weft.loop(layer(), 4, x, w)
    (chosen,) = weft.cond(which, deep, layer(), [looped, w], [x, w])
    return [looped, chosen, until(limit, weft.abs(chosen))]


def group_of(transformer: OpenCLTransformer, results: Any, *parameters: Any) -> GPUKernelGroup:
    group = transformer.computation(results, *parameters).program.run
    assert isinstance(group, GPUKernelGroup)
    return group


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("device")
def test_a_body_is_lowered_once_however_many_calls(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = tensors()
    graph = layer()
    lowered: list[Any] = []
    lower = segments.lower
    monkeypatch.setattr(
        segments,
        "lower",
        lambda step, processor: [lowered.append(step), lower(step, processor)][1],
    )
    found = []
    for calls in (3, 9):
        value = x
        for _ in range(calls):
            (value,) = weft.call(graph, value, w)
        lowered.clear()
        with transformer_for(form) as made:
            group = group_of(made, value, x, w)
            found.append((len(lowered), len(group.source.functions)))
            assert [segment.host for segment in group.segments] == [None]
    assert found[0] == found[1]


def test_copies_for_a_while_loop_are_on_its_line(transformer: OpenCLTransformer) -> None:
    x, _ = tensors()
    group = group_of(transformer, until(9.0, x), x)
    ops = [op for work in group.work if not isinstance(work, HostCall) for op in work.ops]
    numbers = {int(str(op.file_info).rpartition(" ")[2]) for op in ops}
    assert max(numbers) <= nested.__code__.co_firstlineno, "not where it was compiled"


def test_loops_and_choices_agree_with_numpy_in_every_form(
    any_transformer: OpenCLTransformer,
) -> None:
    x, w = tensors()
    which, limit = weft.placeholder((), "bool"), weft.placeholder(())
    results = nested(x, w, which, limit)
    with weft.make_transformer("numpy") as numpy:
        computations = [
            each.computation(results, x, w, which, limit) for each in (numpy, any_transformer)
        ]
        for values in ((X, W, True, 1e3), (X, W, False, 1e3), (X, W, True, 0), (2 * X, W, True, 9)):
            wanted, got = (computation(*values) for computation in computations)
            for one, other in zip(got, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    group: Any = computations[1].program.run
    kinds = [type(segment.host) for segment in group.segments if segment.host is not None]
    assert sorted(kinds, key=str) == [Conditional, Repeat, While]


def test_a_loop_of_a_known_length_waits_for_nothing(transformer: OpenCLTransformer) -> None:
    x, w = tensors()
    (value,) = weft.loop(layer(), 9, x, w)
    group = group_of(transformer, value * 2, x, w)
    assert isinstance(group.segments[0].host, Repeat)
    waits: list[int] = []
    wait = group.wait
    group.wait = lambda: [waits.append(0), wait()][1]  # type: ignore[method-assign]
    group(X, W, np.empty_like(X))
    assert len(waits) == 1


@pytest.mark.share(6)
@pytest.mark.parametrize("place", ["in a loop", "in a choice", "after a loop", "before a loop"])
def test_an_error_anywhere_leaves_states_as_they_were(
    any_transformer: OpenCLTransformer, place: str
) -> None:
    x, w = tensors()
    at = weft.placeholder((), "int32")
    a, b = tensors()
    index = weft.placeholder((), "int32")
    (value,) = weft.call(layer(), a, b)
    taking = weft.capture([value + weft.take(b, index, axis=0)], [a, b, index], "taking")
    calls = weft.variable((), initial_value=0)
    if place == "in a loop":
        (result,) = weft.loop(taking, 6, x, w, at)
    elif place == "in a choice":
        (result,) = weft.cond(weft.less(at, 100), taking, layer(), [x, w, at], [x, w])
    elif place == "after a loop":
        result = weft.take(weft.loop(layer(), 6, x, w)[0] * 2, at, axis=0)
    else:
        (result,) = weft.loop(layer(), 6, x + weft.take(w, at, axis=0), w)
    weft.assign(calls, calls + 1)
    run = any_transformer.computation([result, calls], x, w, at)
    first, _ = run(X, W, 1)
    for _ in range(2):
        with pytest.raises(IndexOutOfRange, match="index 9 is out of range") as caught:
            run(X, W, 9)
        assert "test_loops_and_choices.py" in str(caught.value)
    again, count = run(X, W, 1)
    np.testing.assert_array_equal(again, first)
    assert count == 2


def test_what_is_chosen_prints_and_the_rest_does_not(
    transformer: OpenCLTransformer, capsys: pytest.CaptureFixture[str]
) -> None:
    x, _ = tensors()
    which = weft.placeholder((), "bool")
    one = weft.capture([weft.print_op(x * 2, "one")], [x])
    other = weft.capture([weft.print_op(x * 3, "other")], [x])
    run = transformer.computation(weft.cond(which, one, other, [x], [x])[0], x, which)
    np.testing.assert_array_equal(run(X, True), X * 2)
    np.testing.assert_array_equal(run(X, False), X * 3)
    run(X, False)
    out = capsys.readouterr().out
    assert (out.count("one"), out.count("other")) == (1, 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("device")
def test_loops_and_choices_are_kept(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    found: list[Any] = []
    told: list[Any] = []
    for is_restored in (False, True):
        x, w = tensors()
        which, limit = weft.placeholder((), "bool"), weft.placeholder(())
        at = weft.placeholder((), "int32")
        results = nested(x, w, which, limit)
        results.append(weft.take(results[1], at, axis=0))
        with transformer_for(form) as made:
            run = made.computation(results, x, w, which, limit, at)
            found.append([run(X, W, flag, 50, 2) for flag in (True, False)])
            with pytest.raises(IndexOutOfRange, match="index 8") as caught:
                run(X, W, True, 50, 8)
            assert run.program.is_restored is is_restored
            comments = [line for line in run.source.splitlines() if line.startswith("//")]
            told.append([re.sub(r"_\d+", "", str(caught.value)), sorted(set(comments))])
    assert told[0] == told[1], "lines inside of what is called are there again"
    for one, other in zip(*found, strict=True):
        for got, wanted in zip(one, other, strict=True):
            np.testing.assert_array_equal(got, wanted)
