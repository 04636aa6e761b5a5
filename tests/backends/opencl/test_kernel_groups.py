"""Kernel groups: where they wait, what they say of errors, and how they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import FORMS, transformer_for

import weft
from weft import Transformer
from weft.errors import BackendError, IndexOutOfRange
from weft.ops.indexing.gathering import TakeOp
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_opencl.transformer import OpenCLTransformer

pytestmark = [pytest.mark.slow, pytest.mark.share(2)]


def group_of(transformer: Transformer, results: Any, *parameters: Any) -> GPUKernelGroup:
    group = transformer.computation(results, *parameters).program.run
    assert isinstance(group, GPUKernelGroup)
    return group


def shape_of(group: GPUKernelGroup) -> list[tuple[bool, int, bool]]:
    """For each segment whether it launches, how many reports it looks at, and whether it calls."""
    return [(bool(e.kernels), len(e.reports), e.host is not None) for e in group.segments]


def test_a_program_that_cannot_fail_waits_once(transformer: OpenCLTransformer) -> None:
    x, w = weft.placeholder((8,)), weft.variable((8,), initial_value=0)
    weft.assign(w, w + x)
    group = group_of(transformer, [weft.sum(weft.tanh(x)) * x, w], x)
    assert shape_of(group) == [(True, 0, False)]
    assert len(group.work) == len(group.segments[0].kernels)


def test_it_waits_before_a_state_is_written_while_an_error_may_be_reported(
    transformer: OpenCLTransformer,
) -> None:
    x, at = weft.placeholder((8,)), weft.placeholder((2,), "int32")
    w = weft.variable((2,), initial_value=0)
    taken = weft.take(x, at)
    assert shape_of(group_of(transformer, taken + 1, x, at)) == [(True, 1, False)]
    weft.assign(w, w + taken)
    assert shape_of(group_of(transformer, w, x, at)) == [(True, 1, False), (True, 0, False)]


def test_it_waits_for_the_host(transformer: OpenCLTransformer) -> None:
    x = weft.placeholder((8,))
    printed = weft.print_op(x * 2)
    found = shape_of(group_of(transformer, printed + 1, x))
    assert found == [(True, 0, True), (True, 0, False)]


def test_a_program_without_work_runs(any_transformer: OpenCLTransformer) -> None:
    computation = any_transformer.computation(weft.doall([]))
    assert computation() is None
    assert computation.source.count("__kernel") == 0


@pytest.mark.usefixtures("device")
def test_equal_kernels_are_one_function_with_all_lines() -> None:
    first, second = weft.placeholder((8,)), weft.placeholder((8,))
    results = [
        weft.cumsum(first),
        weft.cumsum(second),
    ]
    with transformer_for("groups") as made:
        group = group_of(made, results, first, second)
        lines = [line for line in group.source.text.splitlines() if "test_kernel_groups" in line]
    assert (len(group.source.functions), len(group.work)) == (1, 2)
    assert len(lines) == 2


def test_an_error_that_the_host_does_not_find_is_an_error_too(
    transformer: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, at = weft.placeholder((3,)), weft.placeholder((1,), "int32")
    computation = transformer.computation(weft.take(x, at), x, at)
    monkeypatch.setattr(TakeOp, "reference", lambda self, x, indices: x)
    with pytest.raises(BackendError, match="that the host cannot reproduce") as caught:
        computation([1, 2, 3], [3])
    assert "test_kernel_groups.py" in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("device")
def test_a_group_that_was_kept_computes_what_the_first_did(
    form: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    given = np.arange(6, dtype=np.float32)
    sources = []
    for is_restored in (False, True):
        x, at = weft.placeholder((6,)), weft.placeholder((2,), "int32")
        w = weft.variable((2,), initial_value=1)
        taken = weft.take(weft.print_op(x * 2, "doubled") + weft.constant(given), at)
        weft.assign(w, w * taken)
        with transformer_for(form) as made:
            computation = made.computation([taken + 1, w], x, at)
            with pytest.raises(IndexOutOfRange, match="index 7") as caught:
                computation(given, [7, 0])
            assert "test_kernel_groups.py" in str(caught.value)
            first, second = computation(given, [5, 1])
            assert (first.tolist(), second.tolist()) == ([16, 4], [15, 3])
            assert computation.program.is_restored is is_restored
            sources.append(computation.source)
            assert computation.plan.steps
            assert computation(given, [0, 1])[1].tolist() == [0, 9]
        assert capsys.readouterr().out.count("doubled") == 3
    assert sources[0] == sources[1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("device")
def test_functions_are_kept_with_the_helpers_that_they_call(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    given = np.linspace(-2, 2, 64).astype(np.float16)
    found = []
    for is_restored in (False, True):
        x = weft.placeholder((64,), "float16")
        with transformer_for(form) as made:
            computation = made.computation([weft.tanh(x) % 3, weft.sort(-x), weft.sum(x)], x)
            found.append([each.tolist() for each in computation(given)])
            assert computation.program.is_restored is is_restored
            assert "weft_half_bits" in computation.source
    assert found[0] == found[1]
