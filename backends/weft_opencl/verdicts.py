"""Verdicts on devices: the results of probing, cached on disk for each driver version."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from weft.cache.store import is_off, open_cache
from weft.support.digest import digest_of
from weft_opencl import probe, scripts
from weft_opencl.drivers import Candidate

PROBE = "probe.py"
PATIENCE = 120
"""The time limit of a probe, in seconds."""


@dataclass(frozen=True)
class Verdict:
    """The result of probing a device.

    Attributes
    ----------
    wrong
        Why the device does not work; empty if it works.
    coherent
        Whether host memory of any alignment is coherent between kernels and the host.
    warp
        The size of sub-groups with working shuffles; 0 for none.
    """

    wrong: str
    coherent: bool = False
    warp: int = 0


_known: dict[tuple[str, ...], Verdict] = {}


def verdict_on(candidate: Candidate, again: bool = False) -> Verdict:
    """Return the verdict on a device; `again` probes again a device that did not work."""
    driver = candidate.driver
    found = _known.get(driver) or _remembered(driver)
    if found is None or (again and found.wrong):
        found = _probed(candidate)
        _remember(driver, found)
    _known[driver] = found
    return found


def _key(driver: tuple[str, ...]) -> str:
    return digest_of("\n".join(["opencl device", *driver, scripts.text_of(PROBE)]).encode())


def _remembered(driver: tuple[str, ...]) -> Verdict | None:
    content = None if is_off() else open_cache().read(_key(driver))
    return None if content is None else _read(content)


def _read(text: str | bytes) -> Verdict | None:
    """Parse a verdict; None for text of another version of weft, or output of a driver."""
    try:
        return Verdict(**json.loads(text))
    except (ValueError, TypeError):
        return None


def _remember(driver: tuple[str, ...], verdict: Verdict) -> None:
    if not is_off():
        open_cache().write(_key(driver), json.dumps(asdict(verdict)).encode())


def _probed(candidate: Candidate) -> Verdict:
    """Probe a device in another process; in this one where no interpreter can be started."""
    if not scripts.can_run():
        return Verdict(**probe.verdict_on(candidate.platform, candidate.place))
    try:
        line, ended = scripts.run(PROBE, candidate, PATIENCE)
    except OSError as error:
        return Verdict(f"no process could be started to probe it: {error}")
    return _read(line) or Verdict(ended)
