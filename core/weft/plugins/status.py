"""Backend status: installed, importable, with a device, usable; each with its reason."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from weft.errors import PluginError, UnknownPluginError
from weft.plugins.blame import said
from weft.plugins.entrypoints import (
    BACKENDS,
    DEFAULT_BACKENDS,
    PluginWarning,
    is_disabled,
    lacks_an_extra,
)
from weft.plugins.registry import load, loading, only_entry, records, revision

__all__ = ["BackendStatus", "Step", "backend_status", "default_backend"]


@dataclass(frozen=True)
class Step:
    """Whether a backend got to this point, and the reason for that."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class BackendStatus:
    """How far a backend gets: it is installed, can be imported, has a device, is usable.

    Attributes
    ----------
    remark
        What a usable backend says of its device beside the description.
    is_broken
        Whether something is wrong with the backend itself, rather than that its device, or an
        optional package that it needs, is not there.
    """

    name: str
    distribution: str | None
    installed: Step
    importable: Step
    device: Step
    usable: Step
    remark: str = ""
    is_broken: bool = False


def backend_status(name: str) -> BackendStatus:
    """Return how far a backend gets: load it and ask it for a device; never raises."""
    distribution = distribution_of(name)
    try:
        backend = load(BACKENDS, name, is_default=name in DEFAULT_BACKENDS)
    except PluginError as error:
        steps = 0 if isinstance(error, UnknownPluginError) else 1
        return status_after(steps, name, distribution, str(error), not _is_left_out(name, error))
    try:
        device, remark = _probed(backend)
    except (Exception, SystemExit) as error:
        is_ours = isinstance(error, PluginError)
        trouble = str(error) if is_ours else f"its probe failed: {said(error)}"
        return status_after(2, name, distribution, trouble, True)
    if device is None:
        return status_after(2, name, distribution, remark)
    return status_after(4, name, distribution, device, remark=remark)


def status_after(
    steps: int,
    name: str,
    distribution: str | None,
    last: str,
    is_broken: bool = False,
    remark: str = "",
) -> BackendStatus:
    """Return the status of a backend that got through some of the four steps."""
    reached = ("it is installed", "it can be imported")[:steps]
    reasons = [*reached, *[last] * (4 - len(reached))]
    installed, importable, device, usable = (
        Step(done < steps, reason) for done, reason in enumerate(reasons)
    )
    return BackendStatus(
        name, distribution, installed, importable, device, usable, remark, is_broken
    )


def default_backend() -> str:
    """Return the backend of a program that names none: the first of `DEFAULT_BACKENDS` that works.

    Warns of one that is there and broken; one without its compiler or driver is only passed over.
    """
    with loading():
        return _default_backend(revision())


def distribution_of(backend: str) -> str | None:
    """Return the distribution of a backend, or all that bring one of that name."""
    owners = [record.distribution for record in records(BACKENDS) if record.name == backend]
    return " and ".join(filter(None, owners)) or None


@lru_cache(maxsize=1)
def _default_backend(registered: object) -> str:
    return next(filter(_works, DEFAULT_BACKENDS[:-1]), DEFAULT_BACKENDS[-1])


def _works(backend: str) -> bool:
    status = backend_status(backend)
    if status.is_broken and status.installed:
        warnings.warn(
            f"Backend {backend!r} is skipped, as WEFT_BACKEND={DEFAULT_BACKENDS[-1]} does without "
            f"a word: {status.usable.reason}",
            PluginWarning,
            stacklevel=2,
        )
    return bool(status.usable)


def _is_left_out(name: str, error: PluginError) -> bool:
    """Whether nothing is wrong but that the user left the backend, or what it needs, out."""
    if is_disabled(BACKENDS, name):
        return True
    with suppress(PluginError):
        entry = only_entry(BACKENDS, name, name in DEFAULT_BACKENDS)
        return lacks_an_extra(error.__cause__, entry)
    return False


def _probed(backend: Any) -> tuple[str | None, str]:
    """Return a backend's answer about its device; raises PluginError for a malformed one."""
    answer = backend.probe()
    if isinstance(answer, tuple) and len(answer) == 2:
        device, remark = answer
        if isinstance(device, str | None) and isinstance(remark, str):
            return device, remark
    raise PluginError(
        f"its probe returned {answer!r}; it must return a description of the device and a remark, "
        "or None and the reason why there is no device."
    )
