"""What a target says of words of memory and of errors on the device, on made-up targets."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import weft
import weft_array_api
from weft.errors import ArgumentError, BackendError, IndexOutOfRange
from weft.ir.target import Target
from weft.runtime.reported_errors import raise_reported
from weft.testing.cases import difference, expectations


class Words(weft_array_api.ArrayTransformer):
    """Arrays on a device that stores words of 4 bytes, and notes how long its storages are."""

    transformer_name = "words"

    @property
    def target(self) -> Target:
        return dataclasses.replace(super().target, word_bytes=4)

    def device_buffer_storage(self, nbytes: int, name: str) -> Any:
        assert nbytes % 4 == 0, name
        return super().device_buffer_storage(nbytes, name)


def test_storages_of_narrow_values_are_whole_words() -> None:
    state = weft.variable((3,), "int8", np.array([1, 2, 3], "int8"))
    x = weft.placeholder((5,), "int8")
    table = weft.constant(np.arange(7, dtype="int8"))
    with Words(np) as transformer:
        computation = transformer.computation(
            [weft.assign(state, state + x[:3]), weft.cumsum(table, 0)[:5] + x, weft.cumsum(x, 0)], x
        )
        computation(np.ones(5, "int8"))
        *_, found = computation(np.ones(5, "int8"))
        assert found.tolist() == [1, 2, 3, 4, 5]
        assert transformer.get_value(state).tolist() == [3, 4, 5]
        arena = [each for each in computation.plan.buffers if each.kind == "arena"]
        assert all(each.offset % 4 == 0 and each.size % 4 == 0 for each in arena)


def test_memory_is_aligned_to_words() -> None:
    with pytest.raises(ArgumentError, match="alignment 6 is not a multiple of word_bytes 4"):
        Target("odd", supports=lambda op: True, alignment=6, word_bytes=4)


def test_an_error_word_becomes_the_error_of_its_op() -> None:
    x, at = weft.placeholder((3,)), weft.placeholder((2,), "int32")
    op = weft.take(x, at, 0)
    message = "index 7.*out of range for dimension 0 of length 3.*test_device_limits.py"
    with pytest.raises(IndexOutOfRange, match=f"(?s){message}"):
        raise_reported(op, index=7)
    with pytest.raises(IndexOutOfRange, match=f"(?s){message}"):
        raise_reported(op, [np.zeros(3, "float32"), np.array([0, 7], "int32")])
    with pytest.raises(BackendError, match="cannot reproduce"):
        raise_reported(op, index=1)


class NoSpecialValues(weft_array_api.ArrayTransformer):
    """Arrays on a device that takes NaN and infinities for zeros."""

    transformer_name = "no-special-values"

    @property
    def target(self) -> Target:
        return dataclasses.replace(super().target, special_values=False)


def test_a_device_without_special_values_is_asked_for_none() -> None:
    x = weft.placeholder((3,), "float64")
    graph = weft.capture([weft.isnan(x), x * 2, weft.exp(x * 0)], [x])
    with NoSpecialValues(np) as transformer:
        target = transformer.target
    wrong = np.full(3, 7.0)
    for value, is_asked in ((math.nan, False), (math.inf, False), (1.0, True)):
        for op, wanted in zip(
            graph.outputs, expectations(graph, [np.array([0, value, 1])], target), strict=True
        ):
            assert (difference(wrong.astype(op.dtype), op, wanted, target) is not None) == is_asked
