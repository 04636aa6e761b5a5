"""Exported Python source computes the same, in a process that has no weft."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from op_table import FUNCTIONS, program_of

import weft
from weft.errors import ArgumentError, BackendError
from weft.testing.random_graphs import RandomProgram, programs

pytestmark = pytest.mark.slow


def exported(computation: Any, folder: Path) -> Any:
    """Return the function that the exported source defines."""
    path = folder / "exported.py"
    computation.export_source(path)
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    assert not [name for name in scope if name.startswith("weft")]
    assert "import weft" not in path.read_text()
    return scope["call"]


def assert_same(got: Any, expected: Any) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def communicates(computation: Any) -> bool:
    return any(op.__class__.__module__ == "weft.ranks.collectives" for op in computation.graph.ops)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_of_the_table_is_exported(function: str, tmp_path: Path) -> None:
    program = program_of(function)
    with weft.make_transformer("numpy") as transformer:
        computation = transformer.computation(program.results, *program.placeholders)
        if communicates(computation):
            with pytest.raises(BackendError, match=r"as source: \w+: NumPy alone has no ranks"):
                computation.export_source(tmp_path / "a.py")
            assert not list(tmp_path.iterdir())
            return
        call = exported(computation, tmp_path)
        assert_same(call(*program.arrays), computation(*program.arrays))


@given(program=programs())
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_random_programs_are_exported(program: RandomProgram, tmp_path_factory: Any) -> None:
    with weft.make_transformer("numpy") as transformer:
        computation = transformer.computation(program.results, *program.placeholders)
        call = exported(computation, tmp_path_factory.mktemp("source"))
        for _ in range(2):
            assert_same(call(*program.arrays), computation(*program.arrays))


def training(threads: int | None = None) -> Any:
    """Return a step with states, random numbers, a loop, a convolution and a large constant."""
    x = weft.placeholder((2, 3, 8, 8), name="x")
    w = weft.variable((4, 3, 3, 3), initial_value=np.full((4, 3, 3, 3), 0.1), name="w")
    count = weft.persistent_tensor((), "int64", name="count", initial_value=0)
    shifted = x + np.arange(64, dtype="float32").reshape(8, 8) / 64 + weft.uniform((8, 8), stream=3)
    loss = weft.mean(weft.square(weft.relu(weft.conv(shifted, w))))
    weft.assign(w, w - 0.1 * weft.deriv(loss, w))
    weft.assign(count, count + 1)
    transformer = weft.make_transformer("numpy", threads=threads)
    return transformer.computation({"loss": loss, "w": w, 3: count}, x, name='step \'é\n"""')


IMAGES = np.linspace(0, 1, 384, dtype=np.float32).reshape(2, 3, 8, 8)


@pytest.mark.parametrize("threads", [1, 2])
def test_states_go_on_from_their_present_values(threads: int, tmp_path: Path) -> None:
    step = training(threads)
    step(IMAGES)
    call = exported(step, tmp_path)
    for _ in range(3):
        got, expected = call(IMAGES), step(IMAGES)
        assert list(got) == list(expected)
        for key, value in expected.items():
            np.testing.assert_allclose(got[key], value, 1e-6, strict=True)


def test_a_process_without_weft_computes_the_same(tmp_path: Path) -> None:
    step = training()
    step.export_source(tmp_path / "step.py")
    script = (
        "import sys\n"
        "for name in ('weft', 'weft_numpy', 'ml_dtypes', 'pluggy'):\n"
        "    sys.modules[name] = None\n"
        "import numpy as np, step\n"
        "images = np.linspace(0, 1, 384, dtype=np.float32).reshape(2, 3, 8, 8)\n"
        "print([float(step.call(images)['loss']) for _ in range(3)])\n"
    )
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    losses = [float(each) for each in found.stdout.strip("[]\n").split(",")]
    np.testing.assert_allclose(losses, [step(IMAGES)["loss"] for _ in range(3)], 1e-6)


def test_arguments_are_checked(tmp_path: Path) -> None:
    x = weft.placeholder((2,), name="x")
    call = exported(weft.make_transformer("numpy").computation(x * 2, x), tmp_path)
    assert call([1, 2]).tolist() == [2, 4]
    assert call(np.float64([1, 2])[::-1]).tolist() == [4, 2]
    with pytest.raises(ValueError, match=r"x is float32 \(2,\), and not float64 \(3,\)"):
        call(np.zeros(3))
    with pytest.raises(ValueError, match="and not complex64"):
        call(np.zeros(2, "complex64"))


def test_an_index_out_of_range_is_an_error_with_the_line(tmp_path: Path) -> None:
    x, i = weft.placeholder((3,), name="x"), weft.placeholder((2,), "int64", name="i")
    call = exported(weft.make_transformer("numpy").computation(weft.gather(x, i), x, i), tmp_path)
    with pytest.raises(IndexError, match=r"(?s)7.*test_export_source\.py"):
        call([1, 2, 3], [0, 7])


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    transformer = weft.make_transformer("numpy")
    n = weft.symbol("n")
    unknown = weft.placeholder((n,))
    with pytest.raises(ArgumentError, match="programs"):
        transformer.computation(unknown + 1, unknown).export_source(tmp_path / "a.py")
    narrow = weft.placeholder((2,), "bfloat16")
    with pytest.raises(BackendError, match="does not have bfloat16"):
        transformer.computation(narrow + 1, narrow).export_source(tmp_path / "a.py")
    assert not list(tmp_path.iterdir())
