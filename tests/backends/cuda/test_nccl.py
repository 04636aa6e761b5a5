"""Ranks whose GPUs exchange arrays through NCCL, both made up; and on GPUs, where there are any."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi_launch import mpiexec, side_by_side

from weft.communicators import Collective
from weft.errors import BackendError
from weft.ir import dtypes
from weft_cupy import devices, drivers
from weft_nccl import library, transfers

pytestmark = pytest.mark.slow

NCCL = {"WEFT_COMMUNICATOR": "nccl"}
long = partial(pytest.param, marks=pytest.mark.long)


@pytest.fixture(scope="session")
def kernels(emulator: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the kernels that ranks compile."""
    return tmp_path_factory.mktemp("kernels")


def on_pretended(
    ranks: int, kernels: Path, program: str, *args: str, gpus: int = 8, **environment: str
) -> subprocess.CompletedProcess[str]:
    settings = {**NCCL, "WEFT_CACHE_DIR": str(kernels), **environment}
    return mpiexec(
        ranks, "on_pretended_gpus.py", str(gpus), str(kernels), program, *args, **settings
    )


@pytest.mark.parametrize("ranks", [2, *map(long, (1, 4))])
def test_every_collective_is_what_numpy_makes_of_all_arrays(ranks: int, kernels: Path) -> None:
    ended = on_pretended(ranks, kernels, "every_collective.py", "cupy")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"of {ranks}: cupy is right") == ranks


CASES = "copies_in_each_dtype", "overlap", "loops", "empty", "cached", "profile"


def test_arrays_stay_on_the_device_and_the_host_goes_on(kernels: Path) -> None:
    ended = on_pretended(2, kernels, "nccl_cases.py", *CASES)
    assert ended.returncode == 0, ended.stderr
    assert all(ended.stdout.count(f"{case} is right") == 2 for case in CASES)


@pytest.mark.long
def test_shards_of_an_optimizer_stay_on_the_device(kernels: Path) -> None:
    ended = on_pretended(2, kernels, "sharded_steps.py", "cupy", "step")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("case", ["hang", "early", *map(long, ("error", "unordered"))])
def test_what_fails_on_the_device_is_found(case: str, kernels: Path) -> None:
    ended = on_pretended(2, kernels, "nccl_cases.py", case, WEFT_COLLECTIVE_TIMEOUT="2")
    assert ended.returncode != 0
    assert "gave up" in ended.stderr
    assert "is right" not in ended.stdout


FAULTS = {
    "order": [
        r"did not start the same collective",
        r"rank 0: all_gather of float32\[4, 3\] on a GPU for AllGatherOp in .*faults.py",
        r"rank 1: all_reduce sum of float32\[4, 3\] on a GPU for AllReduceOp in .*faults.py",
    ],
    "shape": [r"rank 1: all_reduce sum of float32\[2, 3\] on a GPU"],
    "count": [
        r"rank 0 gave up after 2 s \(WEFT_COLLECTIVE_TIMEOUT\)",
        r"rank 0: waits for all_reduce sum of float32\[4, 3\] on a GPU for AllReduceOp",
    ],
    "ended": [r"rank 1: the end of its program"],
    "killed in a collective": [],
}


@pytest.mark.parametrize(
    "cases", [("order",), long(("shape", "count", "ended", "killed in a collective"))]
)
def test_a_fault_of_one_rank_ends_all_of_them(cases: Sequence[str], kernels: Path) -> None:
    def with_fault(how: str) -> subprocess.CompletedProcess[str]:
        return on_pretended(2, kernels, "faults.py", how, "cupy", WEFT_COLLECTIVE_TIMEOUT="2")

    for how, ended in side_by_side(with_fault, cases):
        assert ended.returncode != 0, how
        assert "went on" not in ended.stdout, how
        for words in FAULTS[how]:
            assert re.search(words, ended.stderr), f"{how}: {ended.stderr}"


@pytest.mark.long
def test_two_ranks_on_one_gpu_are_refused_and_named(kernels: Path) -> None:
    ended = on_pretended(2, kernels, "faults.py", "shape", "cupy", gpus=1)
    assert ended.returncode != 0
    assert "NCCL needs a GPU for each rank" in ended.stderr
    assert re.search(r"rank 0: .*, GPU 0 \(.*\)\n +rank 1: .*, GPU 0 ", ended.stderr)


def test_ranks_that_train_on_gpus_follow_one_process(kernels: Path, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{name}.npz") for name in ("alone", "ranks")]
    for ended in (
        mpiexec(1, "training.py", "numpy", paths[0], "adam"),
        on_pretended(2, kernels, "training.py", "cupy", paths[1], "adam"),
    ):
        assert ended.returncode == 0, ended.stderr
    alone, ranks = map(np.load, paths)
    for name in alone:
        np.testing.assert_allclose(ranks[name], alone[name], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", dtypes.NAMES)
def test_what_nccl_does_not_reduce_is_moved_by_it_all_the_same(name: str) -> None:
    dtype = dtypes.as_dtype(name)
    is_reduced = name not in ("int16", "uint16", "complex64", "complex128")
    for kind in ("all_reduce", "reduce_scatter"):
        assert transfers.has(Collective(kind), dtype) == is_reduced
    for kind in ("all_gather", "broadcast", "all_to_all", "shift"):
        assert transfers.has(Collective(kind), dtype)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"available": False}, "CuPy finds no NCCL"),
        ({"get_version": lambda: 2804}, r"NCCL 2\.8\.4 is older than 2\.10\.0"),
        ({"get_build_version": lambda: 20906}, r"NCCL 2\.9\.6 is older"),
    ],
)
def test_a_missing_or_old_nccl_is_refused_with_what_to_do(
    facts: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = {"get_version": lambda: 22703, "get_build_version": lambda: 22703}
    found = SimpleNamespace(**{"available": True, **newest, **facts})
    monkeypatch.setattr(library, "bindings", lambda: found)
    with pytest.raises(BackendError, match=words):
        library.nccl()


def test_ranks_of_one_machine_take_gpus_in_turn(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.cuda.runtime.getDeviceCount = lambda: 3
    for local, number in (("0", 0), ("2", 2), ("4", 1)):
        monkeypatch.setenv("MPI_LOCALRANKID", local)
        assert devices.best(None).number == number
    assert devices.best(2).number == 2, "what is asked for goes first"


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param(1, marks=pytest.mark.needs("gpu")),
        pytest.param(2, marks=pytest.mark.needs("gpus")),
    ],
)
def test_every_collective_on_gpus(ranks: int) -> None:
    """This has never run: no GPU was at hand."""
    ended = mpiexec(ranks, "every_collective.py", "cupy", **NCCL)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"of {ranks}: cupy is right") == ranks


@pytest.mark.needs("gpu")
def test_training_on_gpus(tmp_path: Path) -> None:
    """This has never run: no GPU was at hand."""
    ranks = min(2, len(drivers.candidates()))
    paths = [str(tmp_path / f"{name}.npz") for name in ("alone", "ranks")]
    for ended in (
        mpiexec(1, "training.py", "numpy", paths[0], "sgd"),
        mpiexec(ranks, "training.py", "cupy", paths[1], "sgd", **NCCL),
    ):
        assert ended.returncode == 0, ended.stderr
    alone, found = map(np.load, paths)
    for name in alone:
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-3, atol=1e-4)
