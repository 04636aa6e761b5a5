"""Batches are mapped in order by real executors, and faults are errors that say what is lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.distributed import map as weft_map
from weft.distributed import worker
from weft.errors import ArgumentError, ArtifactError, BatchFailed, WorkerError
from weft.ops.random.philox import bits_of
from weft.report import progress

pytestmark = pytest.mark.slow

pytest.importorskip("safetensors")

SPAWN = multiprocessing.get_context("spawn")


def squares() -> Any:
    """Return a computation with random bits, which fails for indices from 4 on."""
    x = weft.placeholder((weft.symbol("n"),), name="x")
    i = weft.placeholder((1,), "int64", name="i")
    table = weft.variable((4,), initial_value=[10, 20, 30, 40], name="table")
    return weft.make_transformer("numpy").computation(
        [weft.square(x), weft.gather(table, i), weft.random_bits((3,), seed=5, stream=1)],
        x,
        i,
        name="squares",
    )


def batch(number: int, index: int | None = None) -> tuple[Any, Any]:
    index = number % 4 if index is None else index
    return np.full(1 + number % 3, number, np.float32), np.array([index])


def check(number: int, result: Any) -> None:
    square, value, bits = result
    np.testing.assert_array_equal(square, np.full(1 + number % 3, number**2, np.float32))
    assert value.tolist() == [10 * (number % 4 + 1)]
    assert bits.tolist() == bits_of(3, (5, 1), number + 1).tolist()


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=SPAWN) as executor:
        yield executor


def loads(_: int) -> tuple[int, int]:
    """Return a worker's process and the number of computations that it has loaded."""
    time.sleep(0.05)
    return os.getpid(), len(worker._loaded)


def test_a_process_pool_computes_all_in_order(pool: Executor) -> None:
    results = list(weft_map(squares(), [batch(n) for n in range(23)], pool))
    assert len(results) == 23
    for number, result in enumerate(results):
        check(number, result)
    assert set(dict(pool.map(loads, range(8))).values()) <= {0, 1}


def test_one_array_is_a_batch_of_one_parameter(pool: Executor, tmp_path: Path) -> None:
    x = weft.placeholder((2,))
    weft.make_transformer().computation(x * 2, x).save(tmp_path / "a.weft")
    mapped = weft_map(tmp_path / "a.weft", iter([np.ones(2), np.zeros(2)]), pool)
    assert [each.tolist() for each in mapped] == [[2, 2], [0, 0]]


def test_no_batches_give_no_results(pool: Executor) -> None:
    assert list(weft_map(squares(), [], pool)) == []


def test_fewer_batches_than_workers(pool: Executor) -> None:
    (result,) = weft_map(squares(), [batch(3)], pool, start=3)
    check(3, result)


def test_a_failed_batch_is_named_and_the_others_go_on(pool: Executor) -> None:
    batches = [batch(n, 7 if n == 12 else None) for n in range(10, 15)]
    results = weft_map(squares(), batches, pool, start=10)
    found, failed = [], []
    while True:
        try:
            found.append(next(results))
        except StopIteration:
            break
        except BatchFailed as error:
            failed.append(error)
    assert [error.number for error in failed] == [12]
    assert "batch 12 failed: IndexOutOfRange" in str(failed[0])
    for number, result in zip([10, 11, 13, 14], found, strict=True):
        check(number, result)


def test_so_many_batches_are_ahead_as_allowed(pool: Executor) -> None:
    taken: list[int] = []

    def batches() -> Iterator[Any]:
        for number in range(50):
            taken.append(number)
            yield batch(number)

    with weft_map(squares(), batches(), pool, in_flight=3) as results:
        for number in range(10):
            check(number, next(results))
            assert len(taken) <= number + 3
    assert list(results) == []


class Elsewhere(Executor):
    """An executor whose workers do not see the files of this process."""

    def __init__(self) -> None:
        self.tasks: list[worker.Task] = []

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        task, *rest = args
        self.tasks.append(task)
        made: Future[Any] = Future()
        made.set_result(fn(task._replace(path="/nowhere"), *rest))
        return made


def test_the_content_is_sent_once_to_a_worker_that_cannot_read_the_file() -> None:
    elsewhere = Elsewhere()
    x = weft.placeholder((3,))
    saved = weft.make_transformer().computation(weft.tanh(x * 1.75), x)
    results = weft_map(saved, [np.ones(3)] * 9, elsewhere, in_flight=1)
    assert len(list(results)) == 9
    assert results.sent == 1
    assert [task.content is None for task in elsewhere.tasks] == [True, False, *[True] * 8]


def test_a_file_that_was_replaced_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "a.weft"
    x = weft.placeholder((3,))
    transformer = weft.make_transformer()
    transformer.computation(x * 1.25, x).save(path)
    task = worker.Task("0" * 40, str(path), None)
    assert worker.run_batch(task, 0, (np.ones(3),)).is_missing


def test_a_worker_keeps_a_few_computations(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        for factor in range(worker.LIMIT + 2):
            x = weft.placeholder(())
            saved = weft.make_transformer().computation(x * float(factor), x)
            assert [each.item() for each in weft_map(saved, [2.0], threads)] == [2.0 * factor]
    assert len(worker._loaded) == worker.LIMIT


def test_a_killed_worker_is_an_error_that_says_where_to_go_on() -> None:
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        results = weft_map(squares(), (batch(n) for n in range(1000)), pool, in_flight=4)
        for number in range(5):
            check(number, next(results))
        for process in list(pool._processes.values()):
            os.kill(process.pid, signal.SIGKILL)
        rest: list[Any] = []
        with pytest.raises(WorkerError, match="the workers were lost before batch") as caught:
            rest.extend(results)  # which keeps what came before an error
        for number, result in enumerate(rest, 5):
            check(number, result)
        done = 5 + len(rest)
        assert f"batches from {done} on, with start={done}" in str(caught.value)
        assert list(results) == []
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        again = weft_map(squares(), (batch(n) for n in range(done, done + 5)), pool, start=done)
        for number, result in enumerate(again, done):
            check(number, result)


def test_an_executor_that_was_shut_down_is_an_error() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(WorkerError, match="before batch 0"):
        list(weft_map(squares(), [batch(0)], pool))


def no_weft() -> None:
    """Make this process one that has no weft."""
    for name in [each for each in sys.modules if each.partition(".")[0] == "weft"]:
        del sys.modules[name]
    sys.modules["weft"] = None  # type: ignore[assignment]


def test_a_worker_without_weft_is_an_error() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=SPAWN, initializer=no_weft) as pool,
        pytest.raises(WorkerError, match="weft is not installed there"),
    ):
        list(weft_map(squares(), [batch(0)], pool))


def test_what_writes_states_is_refused(pool: Executor, tmp_path: Path) -> None:
    w = weft.variable((2,), name="w")
    saved = weft.make_transformer().computation(weft.assign(w, w + 1))
    saved.save(tmp_path / "a.weft")
    for each in (saved, tmp_path / "a.weft"):
        with pytest.raises(ArgumentError, match="writes states"):
            weft_map(each, [()], pool)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3, []), {}, "takes a computation or the path"),
        ((squares, []), {}, "takes a computation or the path"),
        (("a", 3), {}, "batches in a list"),
        (("a", []), {"in_flight": 0}, "in_flight="),
        (("a", []), {"in_flight": True}, "in_flight="),
        (("a", []), {"start": -1}, "start="),
        (("a", []), {"start": 1.0}, "start="),
    ],
)
def test_bad_arguments_are_refused(
    arguments: Any, options: Any, message: str, pool: Executor
) -> None:
    with pytest.raises(ArgumentError, match=message):
        weft_map(*arguments, pool, **options)
    with pytest.raises(ArgumentError, match="not 3"):
        weft_map(squares(), [], 3)
    with pytest.raises(ArtifactError, match="cannot be read"):
        weft_map("missing.weft", [], pool)


def test_progress_counts_the_batches(pool: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_PROGRESS", "on")
    monkeypatch.setattr(progress, "DELAY", 0.0)
    results = weft_map(squares(), [batch(n) for n in range(3)], pool)
    seen = [(stage.title, stage.done, stage.total) for _ in results for stage in shown()]
    assert ("mapping batches", 1, 3) in seen
    assert ("mapping batches", 3, 3) in seen
    assert shown() == []


def shown() -> list[progress.Stage]:
    return list(progress._board.stages.values())


DASK = """
import sys
sys.path.insert(0, {here!r})
if __name__ == "__main__":
    from dask.distributed import Client, LocalCluster
    from test_map import batch, check, squares
    from weft.distributed import map
    options = dict(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        results = list(map(squares(), [batch(n) for n in range(9)], client))
        for number, result in enumerate(results):
            check(number, result)
        print(len(results))
"""

DASK_KILL = """
import os, signal, sys
sys.path.insert(0, {here!r})
if __name__ == "__main__":
    from dask.distributed import Client, LocalCluster
    from test_map import batch, check, squares
    from weft.distributed import map
    options = dict(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        results = map(squares(), [batch(n) for n in range(60)], client, in_flight=4)
        check(0, next(results))
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        rest = list(results)
        for number, result in enumerate(rest, 1):
            check(number, result)
        print(1 + len(rest))
"""

MPI = """
import sys
sys.path.insert(0, {here!r})
if __name__ == "__main__":
    from mpi4py.futures import MPIPoolExecutor
    from test_map import batch, check, squares
    from weft.distributed import map
    with MPIPoolExecutor() as executor:
        results = list(map(squares(), [batch(n) for n in range(9)], executor))
        for number, result in enumerate(results):
            check(number, result)
        print(len(results))
"""

DASK_WITHOUT = """
import sys
sys.path.insert(0, {here!r})
if __name__ == "__main__":
    from dask.distributed import Client, LocalCluster
    from test_map import batch, no_weft, squares
    from weft.distributed import map
    from weft.errors import WorkerError
    options = dict(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.run(no_weft, workers=list(client.scheduler_info()["workers"])[:1])
        try:
            list(map(squares(), [batch(0)], client))
        except WorkerError as error:
            print("has no weft: install the same version" in str(error))
"""

MPI_WITHOUT = """
import sys
sys.path.insert(0, {here!r})
if __name__ == "__main__":
    from mpi4py.futures import MPIPoolExecutor
    from test_map import batch, no_weft, squares
    from weft.distributed import map
    from weft.errors import WorkerError
    with MPIPoolExecutor(initializer=no_weft) as executor:
        try:
            list(map(squares(), [batch(0)], executor))
        except WorkerError as error:
            print("a worker has no weft" in str(error))
"""

MPI_KILL = """
import os, signal, sys
sys.path.insert(0, {here!r})
def die():
    os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    from mpi4py.futures import MPIPoolExecutor
    from test_map import batch, check, squares
    from weft.distributed import map
    with MPIPoolExecutor() as executor:
        results = map(squares(), [batch(n) for n in range(60)], executor)
        check(0, next(results))
        print("one", flush=True)
        executor.submit(die)
        print(len(list(results)))
"""


@pytest.mark.parametrize(
    ("script", "launcher", "printed"),
    [
        (DASK, [], "9"),
        (DASK_KILL, [], "60"),
        (DASK_WITHOUT, [], "True"),
        pytest.param(MPI, ["mpiexec", "-n", "3"], "9", marks=pytest.mark.needs("mpi")),
        pytest.param(MPI_WITHOUT, ["mpiexec", "-n", "2"], "True", marks=pytest.mark.needs("mpi")),
    ],
    ids=["dask", "dask-killed", "dask-without", "mpi", "mpi-without"],
)
def test_other_engines_compute_all_in_order_or_say_what_is_wrong(
    script: str, launcher: list[str], printed: str, tmp_path: Path
) -> None:
    if not launcher:
        pytest.importorskip("distributed")
    found = run(script, launcher, tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == printed


@pytest.mark.needs("mpi")
def test_a_worker_of_mpi_that_is_killed_ends_the_program(tmp_path: Path) -> None:
    found = run(MPI_KILL, ["mpiexec", "-n", "3"], tmp_path)
    assert found.returncode != 0
    assert found.stdout.startswith("one\n")
    assert "\n59" not in found.stdout


def run(script: str, launcher: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script, as one of MPI's with its launcher."""
    path = folder / "main.py"
    path.write_text(script.format(here=str(Path(__file__).parent)))
    module = ["-m", "mpi4py.futures"] if launcher else []
    if launcher:
        launcher = [str(Path(sys.executable).with_name("mpiexec")), *launcher[1:]]
    return subprocess.run(
        [*launcher, sys.executable, *module, str(path)],
        capture_output=True, text=True, timeout=300, cwd=folder, check=False,
        env={**os.environ, "WEFT_NUM_THREADS": "1"},
    )  # fmt: skip
