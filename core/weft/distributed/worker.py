"""What a worker runs: a batch of a computation that it loads once."""

from __future__ import annotations

import tempfile
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

from weft.runtime.artefact_loading import load
from weft.runtime.computation import Computation
from weft.support.digest import digest_of

LIMIT = 4
"""The most computations that a worker keeps."""

_loaded: OrderedDict[tuple[str, str | None], Computation] = OrderedDict()
_loading = threading.Lock()


class Job(NamedTuple):
    """A computation to run, as a worker is told of it.

    Attributes
    ----------
    digest
        The digest of the artefact's content.
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
        Whether the worker needs the content of the artefact first.
    value
        The results of the call.
    """

    is_missing: bool
    value: Any = None


def run_batch(job: Job, arguments: tuple[Any, ...]) -> Outcome:
    """Run a computation on a batch, in the process of a worker."""
    computation = _computation(job)
    if computation is None:
        return Outcome(is_missing=True)
    return Outcome(False, computation(*arguments))


def _computation(job: Job) -> Computation | None:
    """Return the loaded computation; None if its artefact is not to be had here."""
    key = job.digest, job.backend
    with _loading:
        found = _loaded.get(key)
        if found is None:
            found = _load(job)
            if found is None:
                return None
            _loaded[key] = found
            if len(_loaded) > LIMIT:
                _loaded.popitem(last=False)  # without closing it, since a thread may run it
        _loaded.move_to_end(key)
        return found


def _load(job: Job) -> Computation | None:
    content = job.content
    if content is None:
        try:
            content = Path(job.path).read_bytes()
        except OSError:
            return None
        if digest_of(content) != job.digest:
            return None  # the file has been replaced since
    # What was read is what is loaded, whatever happens to the file meanwhile.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "computation.weft"
        path.write_bytes(content)
        return load(path, job.backend)
