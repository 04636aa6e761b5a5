from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environment
import limits
import memory
import numpy as np
import pytest
from measure import Row, Samples, number, ratios
from models.program import Program

import weft

pytestmark = pytest.mark.slow

FOLDER = Path(environment.__file__).parent
MB = 1_000_000


@pytest.mark.parametrize(
    ("value", "goal", "at_least", "reached", "aim"),
    [
        (1.0, None, False, None, ""),
        (1.9, 2.0, False, True, "at most 2 x"),
        (2.1, 2.0, False, False, "at most 2 x"),
        (1.9, 2.0, True, False, "at least 2 x"),
        (2.1, 2.0, True, True, "at least 2 x"),
        (2.0, 2.0, True, True, "at least 2 x"),
        (2.0, 2.0, False, True, "at most 2 x"),
    ],
)
def test_a_goal_is_the_most_or_the_least(
    value: float, goal: float | None, at_least: bool, reached: bool | None, aim: str
):
    row = Row("speed", value, "x", goal, at_least=at_least)
    assert (row.reached, row.aim) == (reached, aim)


def test_ratios_are_medians_of_rounds_with_the_rival_on_top():
    samples = Samples({"weft": [1.0, 2.0, 4.0], "eager": [3.0, 4.0, 4.0], "other": [1.0, 1.0, 1.0]})
    limit = limits.Limit(1.0, "one byte")
    rows = list(ratios(samples, {"eager": 2.0, "other": None}, "work", limit))
    assert [(row.what, row.value, row.reached) for row in rows] == [
        ("eager over weft, work", 2.0, True),
        ("other over weft, work", 0.5, None),
        ("time of weft, work", 2e6, None),
    ]
    assert rows[2].note == "limit 1e+06 us (one byte), 50% reached"


@pytest.mark.parametrize(
    ("value", "text"), [(0.00012345, "0.0001234"), (12.3456, "12.35"), (12345.6, "12346")]
)
def test_numbers_have_four_digits(value: float, text: str):
    assert number(value) == text


@pytest.mark.parametrize(
    ("limit", "work", "rate"),
    [
        (limits.bytes_limit, 80_000, lambda: limits.copy_rate(80_000)),
        (limits.bytes_limit, 2 * limits.SPLIT_BYTES, lambda: limits.copy_rate(8_000_000)),
        (limits.flops_limit, 1_000, limits.product_rate),
        (limits.calls_limit, 10, lambda: 1 / limits.call_time()),
    ],
    ids=["bytes", "bytes on all cores", "flops", "calls"],
)
def test_limits_are_work_over_a_rate(
    limit: Callable[..., Any], work: int, rate: Callable[..., Any]
):
    assert limit(work).seconds * rate() == pytest.approx(work)


def test_working_memory_counts_what_stays_and_what_passes():
    x = np.ones(MB, np.uint8)

    def make():
        scratch = np.empty(3 * MB, np.uint8)

        def call():
            passing = np.concatenate([x, x, scratch[:0]])
            return passing[:MB] + 1

        return call

    # What stays, and what passes; neither the argument nor the result.
    assert memory.working_memory(make) == pytest.approx(3 * MB + 2 * MB, rel=0.01)


def test_memory_of_a_program_has_its_temporary_values():
    x = weft.placeholder((1000, 1000))
    y = weft.matmul(weft.matmul(x, x), x)
    program = Program(y, [x], [])
    with weft.backend("numpy"):
        held = memory.program_memory(program, [np.ones((1000, 1000), "f4")])
    assert 4 * MB <= held < 8 * MB


@pytest.mark.parametrize("keep_memory", [False, True])
def test_variables_that_tune_are_left_out(monkeypatch: pytest.MonkeyPatch, keep_memory: bool):
    tuning = {"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "7"}
    monkeypatch.setattr(environment, "STARTED_WITH", environment.STARTED_WITH | tuning)
    found = environment.untuned(keep_memory)
    assert not {"OPENBLAS_CORETYPE", "OMP_NUM_THREADS"} & set(found)
    assert found.get("MALLOC_MMAP_MAX_") == ("0" if keep_memory else None)
    assert found["PATH"] == os.environ["PATH"]


def test_a_process_has_one_child_whatever_changes_its_variables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "STARTED_WITH", environment.untuned())
    monkeypatch.setenv("KMP_INIT_AT_FORK", "FALSE")  # as scikit-learn does
    environment.require_untuned()
    changed = environment.untuned() | {"OMP_NUM_THREADS": "1"}
    monkeypatch.setattr(environment, "STARTED_WITH", changed)
    with pytest.raises(RuntimeError, match="changes the variables"):
        environment.require_untuned()


def test_a_script_measures_in_a_process_without_them():
    script = FOLDER / "scalar_call.py"
    tuned = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell"}
    done = subprocess.run(
        [sys.executable, script, "--json", "--rounds", "2"],
        env=tuned, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    plain = subprocess.run(
        [sys.executable, "-c", "import numpy, environment; print(environment.blas())"],
        env=environment.untuned(), cwd=FOLDER, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["blas"] == plain.stdout.strip()
    assert all(Row(**fields).value > 0 for fields in found["rows"])
