"""What a worker runs: a batch of a computation that it loads once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.distributed.counters import counters_of
from weft.runtime.artifact_loading import load
from weft.runtime.computation import Computation
from weft.support.digest import digest_of
from weft.support.locks import renewed
from weft.support.scratch import ScratchFolder

LIMIT = 4
"""The most computations that a worker keeps."""


class Task(NamedTuple):
    """A computation to run, as a worker is told of it.

    Attributes
    ----------
    digest
        The digest of the artifact's content.
    path
        Its file, which a worker on this machine can read.
    backend
        The backend to run on; None for the default one of the worker.
    content
        The content for a worker that has neither; None in the first attempt.
    """

    digest: str
    path: str
    backend: str | None
    content: bytes | None = None


class Outcome(NamedTuple):
    """What became of a batch.

    Attributes
    ----------
    is_missing
        Whether the worker needs the content of the artifact first.
    value
        The results of the call.
    """

    is_missing: bool
    value: Any = None


class LoadedComputation:
    """A computation that this worker has loaded.

    Attributes
    ----------
    computation
        The computation.
    counters
        The counters that it writes: what each call adds, and its value in the first one.
    """

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        value = computation.transformer.get_value
        self.counters = {
            state: (added, int(value(state)))
            for state, added in counters_of(computation.graph).items()
        }

    def call(self, number: int, arguments: tuple[Any, ...]) -> Any:
        """Return the results of a call, as if so many others came before it."""
        if not self.counters:
            return self.computation(*arguments)
        transformer = self.computation.transformer
        with transformer.state_lock:  # another thread may compute another batch
            for state, (added, first) in self.counters.items():
                count = np.uint64((first + number * added) % 2**64)
                transformer.set_value(state, count.astype(state.dtype))
            return self.computation(*arguments)


_loaded: OrderedDict[tuple[str, str | None], LoadedComputation] = OrderedDict()
_loading = renewed(threading.RLock())


def run_batch(task: Task, number: int, arguments: tuple[Any, ...]) -> Outcome:
    """Run a computation on a batch of a number, in the process of a worker."""
    loaded = _find(task)
    if loaded is None:
        return Outcome(is_missing=True)
    return Outcome(False, loaded.call(number, arguments))


def _find(task: Task) -> LoadedComputation | None:
    """Return the loaded computation; None if its artifact is not to be had here."""
    key = task.digest, task.backend
    with _loading:
        found = _loaded.get(key)
        if found is None:
            found = _load(task)
            if found is None:
                return None
            _loaded[key] = found
            if len(_loaded) > LIMIT:
                _loaded.popitem(last=False)  # without closing it, since a thread may run it
        _loaded.move_to_end(key)
        return found


def _load(task: Task) -> LoadedComputation | None:
    content = task.content
    if content is None:
        try:
            content = Path(task.path).read_bytes()
        except OSError:
            return None
        if digest_of(content) != task.digest:
            return None  # the file has been replaced since
    # What was read is what is loaded, whatever happens to the file meanwhile.
    with ScratchFolder() as folder:
        path = folder / "computation.weft"
        path.write_bytes(content)
        return LoadedComputation(load(path, task.backend))
