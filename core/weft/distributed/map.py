"""Maps a computation over batches by an executor."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from concurrent.futures import BrokenExecutor, Executor, Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from weft.distributed.counters import counters_of
from weft.distributed.worker import Outcome, Task, run_batch
from weft.errors import ArgumentError, BatchFailed, WorkerError
from weft.ir.graph import Graph
from weft.ranks.collectives import communications
from weft.report.progress import Stage
from weft.runtime.artifact_loading import read_graph
from weft.runtime.computation import Computation
from weft.support.digest import digest_of
from weft.support.scratch import ScratchFolder


def map(
    computation: Computation | str | os.PathLike[str],
    batches: Iterable[Any],
    executor: Any,
    *,
    backend: str | None = None,
    in_flight: int = 16,
    start: int = 0,
) -> BatchResults:
    """Return an iterator over the results of a computation for each batch, in order.

    They are those of one call after the other, random numbers included: these follow from the
    number of the batch. The states of the computation stay as they are.

    Parameters
    ----------
    computation
        A computation, or the path of an artifact. Each worker loads it once, from the file or, if
        it cannot read that, from its content, and compiles it through its own compile cache.
    batches
        The arguments of the calls: an array for a computation of one parameter, or a tuple. They
        are taken as results are: so many are ahead as `in_flight` says.
    executor
        A `concurrent.futures.Executor`, such as ProcessPoolExecutor or MPIPoolExecutor, or a
        `dask.distributed.Client`. It stays open.
    backend
        The backend of the workers; None for their default one.
    in_flight
        The most batches that are submitted and not yet returned.
    start
        The number of the first batch, which counts those of earlier calls of `map`.

    Returns
    -------
    BatchResults
        An iterator. It raises BatchFailed, which names the batch, in the place of the result of a
        batch that failed, and goes on with the next one when it is asked again. It raises
        WorkerError if the workers are lost or have no weft.

    Raises
    ------
    ArgumentError
        For anything else than the above, and for a computation that writes other states than
        counters of its calls, or has collectives: its results would depend on the worker.
    ArtifactError
        For a file that is not an artifact, or a computation that cannot be saved.
    WorkerError
        For a worker of Dask that has no weft; of other executors, the iterator raises it.
    """
    if isinstance(in_flight, bool) or not isinstance(in_flight, int) or in_flight < 1:
        raise ArgumentError(f"in_flight= takes a whole number from 1, not {in_flight!r:.80}")
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise ArgumentError(f"start= takes a whole number from 0, not {start!r:.80}")
    if not isinstance(batches, Iterable):
        raise ArgumentError(f"map takes batches in a list or an iterator, not {batches!r:.80}")
    pool = _executor(executor)
    if isinstance(computation, Computation):
        _require_independent(computation.graph, computation.name)
        folder = ScratchFolder()
        try:
            path = folder.path / "computation.weft"
            computation.save(path, states=True)
            return BatchResults(pool, _task(path, backend), batches, in_flight, start, folder)
        except BaseException:
            folder.close()
            raise
    if not isinstance(computation, str | os.PathLike):
        problem = "map takes a computation or the path of an artifact"
        raise ArgumentError(f"{problem}, not {computation!r:.80}")
    path = Path(computation).absolute()
    _require_independent(read_graph(path), str(computation))
    return BatchResults(pool, _task(path, backend), batches, in_flight, start)


def _task(path: Path, backend: str | None) -> Task:
    return Task(digest_of(path.read_bytes()), str(path), backend)


def _require_independent(graph: Graph, name: str) -> None:
    """Raise ArgumentError if the results of a batch depend on others, or on other processes."""
    counters = counters_of(graph)
    written = [f"{state}" for state, _ in graph.updates if state not in counters]
    if written:
        raise ArgumentError(
            f"{name} writes states ({', '.join(written[:8])}), so its results would depend on the "
            "worker that computes them: map a computation that writes none, but counts of its calls"
        )
    shared = next((op for op in communications(graph) if op.ranks > 1), None)
    if shared is not None:
        problem = f"{name} takes part in collectives, and the workers of an executor are not ranks"
        raise ArgumentError(shared.explain(f"{problem}: map a computation without them"))


def _executor(executor: Any) -> Executor:
    """Return an executor; that of Dask's client for one of these."""
    if isinstance(executor, Executor):
        return executor
    if hasattr(executor, "get_executor"):
        _require_weft(executor)
        # Equal batches are batches of their own: without this Dask would compute one of them.
        made: Executor = executor.get_executor(pure=False)
        return made
    raise ArgumentError(
        "map takes a concurrent.futures.Executor or a dask.distributed.Client, not "
        f"{executor!r:.80}"
    )


def _require_weft(client: Any) -> None:
    """Raise WorkerError if a worker of Dask has no weft: it could not even say so."""
    found = client.run(find_spec, "weft")  # a function that every worker has
    lacking = [name for name, spec in found.items() if spec is None]
    if lacking:
        problem = f"the worker {lacking[0]} has no weft: install the same version of weft there"
        raise WorkerError(f"no batch was computed, because {problem}")


class BatchResults(Iterator[Any]):
    """The results of `map`, in the order of the batches; a context that cancels the rest.

    Attributes
    ----------
    done
        How many batches there were whose result has been returned, or whose error has been raised.
    sent
        How often the content of the artifact was sent, because a worker could not read its file.
    """

    def __init__(
        self,
        executor: Executor,
        task: Task,
        batches: Iterable[Any],
        in_flight: int,
        start: int,
        folder: ScratchFolder | None = None,
    ) -> None:
        self.done = self.sent = 0
        self._executor, self._task, self._in_flight = executor, task, in_flight
        self._start = start
        self._batches = iter(batches)
        self._pending: deque[tuple[tuple[Any, ...], Future[Outcome]]] = deque()
        self._content: bytes | None = None
        self._forget = None if folder is None else folder.close
        if self._forget is not None:
            weakref.finalize(self, self._forget)
        total = len(batches) if isinstance(batches, Sized) else None
        self._stage = Stage("mapping batches", total)
        self._stage.__enter__()
        self._is_over = False

    def __next__(self) -> Any:
        self._fill()
        if not self._pending:
            self.close()
            raise StopIteration
        arguments, future = self._pending.popleft()
        number = self._start + self.done
        self.done += 1
        try:
            return self._result(number, arguments, future)
        finally:
            self._stage.advance()

    def _fill(self) -> None:
        while not self._is_over and len(self._pending) < self._in_flight:
            try:
                batch = next(self._batches)
            except StopIteration:
                self._is_over = True
                return
            arguments = batch if isinstance(batch, tuple) else (batch,)
            number = self._start + self.done + len(self._pending)
            self._pending.append((arguments, self._submit(self._task, number, arguments)))

    def _submit(self, task: Task, number: int, arguments: tuple[Any, ...]) -> Future[Outcome]:
        try:
            return self._executor.submit(run_batch, task, number, arguments)
        except (BrokenExecutor, RuntimeError) as error:  # one that has been shut down
            self._is_over = True
            failed: Future[Outcome] = Future()
            failed.set_exception(error if isinstance(error, BrokenExecutor) else _Lost(str(error)))
            return failed

    def _result(self, number: int, arguments: tuple[Any, ...], future: Future[Outcome]) -> Any:
        try:
            outcome = future.result()
            if outcome.is_missing:
                if self._content is None:
                    self._content = Path(self._task.path).read_bytes()
                self.sent += 1
                whole = self._task._replace(content=self._content)
                outcome = self._submit(whole, number, arguments).result()
            return outcome.value
        except BrokenExecutor as error:
            self.close()
            raise WorkerError(
                f"the workers were lost before batch {number} was computed: one of them was "
                "killed, or could not start, for instance because weft is not installed there; "
                f"make another executor and map batches from {number} on, with start={number} "
                f"({error})"
            ) from error
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "weft":
                raise self._failed(number, error) from error
            self.close()
            problem = f"a worker has no {error.name}: install the same version of weft there"
            raise WorkerError(f"batch {number} was not computed, because {problem}") from error
        except Exception as error:
            raise self._failed(number, error) from error

    def _failed(self, number: int, error: Exception) -> BatchFailed:
        said = str(error) or type(error).__name__
        return BatchFailed(f"batch {number} failed: {type(error).__name__}: {said}", number)

    def close(self) -> None:
        """Cancel the batches that no worker has begun, and forget the others."""
        self._is_over = True
        for _, future in self._pending:
            future.cancel()
        self._pending.clear()
        self._stage.__exit__()
        if self._forget is not None:
            self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Lost(BrokenExecutor):
    """An executor takes no more batches."""
