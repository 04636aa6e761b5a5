"""Backend status: installed, importable, with a device, usable; each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.errors import PluginError, UnknownPluginError
from weft.plugins.blame import said


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


REACHED = ("it is installed", "it can be imported")


def status_of(
    name: str, distribution: str | None, load: Callable[[], Any], is_absent: Callable[[], bool]
) -> BackendStatus:
    """Return how far a backend gets that `load` returns; never raises.

    `is_absent` says of one that cannot be loaded whether that is as the user wanted it.
    """
    try:
        backend = load()
    except PluginError as error:
        steps = 0 if isinstance(error, UnknownPluginError) else 1
        return status_after(steps, name, distribution, str(error), not is_absent())
    try:
        device, remark = _probed(backend)
    except (Exception, SystemExit) as error:
        trouble = (
            str(error) if isinstance(error, PluginError) else f"its probe failed: {said(error)}"
        )
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
    reached = REACHED[:steps]
    reasons = [*reached, *[last] * (4 - len(reached))]
    installed, importable, device, usable = (
        Step(done < steps, reason) for done, reason in enumerate(reasons)
    )
    return BackendStatus(
        name, distribution, installed, importable, device, usable, remark, is_broken
    )


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
