"""Findings of `weft doctor`: versions, backends, plugins, variables, and their problems."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import weft
from weft import plugins, settings
from weft.cli.examination import Examined, Tried, loaded, statuses
from weft.errors import PluginError, WeftError
from weft.passes.pipeline import switches
from weft.plugins import registry
from weft.plugins.entrypoints import (
    DEFAULT_BACKENDS,
    DEFAULT_PIPELINE,
    OWN,
    misspelt,
    preferences,
    preferred,
    survey,
)
from weft.plugins.registry import BACKENDS, PASSES, PluginRecord
from weft.report.progress import chosen_display
from weft.settings import SETTINGS
from weft.support.spelling import closest

SLOW = 2.0
"""The seconds from which on loading a plugin is worth a remark."""

_SLOW_CORETYPE = "Haswell"
_PREFIXES = ("WEFT_", "OPENBLAS_", "POCL_")


@dataclass(frozen=True)
class Health:
    """What is installed and what of it works.

    Attributes
    ----------
    versions
        Of Python, weft and what weft needs, by name.
    backends
        Each backend; those that are usable ran a small program, or failed to.
    unusable
        Plugins that failed, are disabled or clash.
    remarks
        What is odd and keeps no program from working.
    variables
        Name, value and meaning of each environment variable that weft looks at.
    troubles
        What keeps a program from working that names no backend and no passes, or names one of the
        usable backends.
    """

    versions: dict[str, str]
    backends: list[Tried]
    unusable: list[PluginRecord]
    remarks: list[str]
    variables: list[tuple[str, str | None, str]]
    troubles: list[str]


def health() -> Health:
    """Look at everything that is installed, in processes of their own."""
    with warnings.catch_warnings(record=True) as warned, ThreadPoolExecutor(1) as other:
        warnings.simplefilter("always")
        loading = other.submit(loaded)
        backends = statuses(with_trial=True)
        examined = loading.result()
        troubles = list(_troubles(backends, examined))
    states = ("failed", "disabled", "duplicate")
    return Health(
        versions=dict(_versions()),
        backends=backends,
        unusable=[each.record for each in examined if each.record.state in states],
        remarks=[
            *(str(each.message) for each in warned),
            *other_weft(),
            *_slow(examined),
            *_misspelt(),
        ],
        variables=list(_variables(backends)),
        troubles=troubles,
    )


def version_of(distribution: str) -> str:
    """Return the version of a distribution that is installed, or nothing."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def other_weft() -> Iterator[str]:
    """Yield a remark if the distribution is installed whose name is that of weft's package."""
    if version := version_of("weft"):
        yield (
            f"the distribution weft {version} is installed, which is not this project but has a "
            "package of the same name: pip uninstall weft, then pip install --force-reinstall "
            f"{OWN}"
        )


def _slow(examined: Iterable[Examined]) -> Iterator[str]:
    for record in (each.record for each in examined):
        if record.seconds >= SLOW:
            yield (
                f"{record.group}:{record.name} of {record.distribution} takes "
                f"{record.seconds:.1f} s to load"
            )


def _misspelt() -> Iterator[str]:
    groups = ", ".join(plugins.GROUPS)
    for entry, meant in misspelt():
        hint = f"did it mean {meant}?" if meant else f"there are {groups}"
        yield (
            f"{entry.owner} puts {entry.name!r} into the group {entry.group}, which weft does not "
            f"have: {hint}"
        )


def _troubles(backends: Sequence[Tried], examined: Iterable[Examined]) -> Iterator[str]:
    chosen = settings.BACKEND.value
    usable = {each.status.name for each in backends if each.status.usable}
    default = next((name for name in DEFAULT_BACKENDS if name in usable), DEFAULT_BACKENDS[-1])
    backend = chosen or default
    reason = _why_not_used(backend, bool(chosen), backends)
    if reason:
        setting = f"{settings.BACKEND}: " if chosen else ""
        yield f"{setting}The backend {backend!r} would be used and is not usable: {reason}"
    failures = {
        (each.record.name, each.record.distribution): each.record.reason
        for each in examined
        if each.record.group == PASSES and each.record.state == "failed"
    }
    for name in dict.fromkeys(DEFAULT_PIPELINE):
        try:
            distribution = registry.required(PASSES, name, is_default=True)
            reason = failures.get((name, distribution), "")
        except PluginError as error:
            reason = str(error)
        if reason:
            yield f"The default pipeline does not work: {reason}"
    for each in backends:
        if each.runs is not None and not each.runs:
            yield f"Backend {each.status.name!r} does not run a small program: {each.runs.reason}"


def _why_not_used(backend: str, is_chosen: bool, backends: Iterable[Tried]) -> str:
    """Return why a program without a choice of its own would not get its backend, or nothing."""
    try:
        registry.required(BACKENDS, backend, is_default=not is_chosen)
    except PluginError as error:
        return str(error)
    usable = next(each.status.usable for each in backends if each.status.name == backend)
    return "" if usable else usable.reason


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    installed = "" if version_of(OWN) else ", not installed as a distribution"
    yield "weft", weft.__version__ + installed
    for requirement in _requirements():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](.+?)['\"]", requirement)
        missing = f"not installed: pip install 'weftc[{extra[1]}]'" if extra else "not installed"
        yield name, version_of(name) or missing


def _requirements() -> list[str]:
    try:
        found = importlib.metadata.requires(OWN)
    except importlib.metadata.PackageNotFoundError:
        found = None
    return [each for each in found or ["numpy", "pluggy"] if "extra == 'dev'" not in each]


def _variables(backends: Iterable[Tried]) -> Iterator[tuple[str, str | None, str]]:
    others = sorted(name for name in os.environ if name.startswith(_PREFIXES))
    for name in dict.fromkeys([*SETTINGS, *others]):
        value = os.environ.get(name)
        meaning = SETTINGS[name].meaning.replace("`", "") if name in SETTINGS else ""
        yield name, value, meaning + _remark(name, value or "", backends)


def _remark(name: str, value: str, backends: Iterable[Tried]) -> str:
    if name == "OPENBLAS_CORETYPE" and value.lower() == _SLOW_CORETYPE.lower():
        return "; unset it unless that is wanted"
    if name == "WEFT_BACKEND" and value:
        usable = {each.status.name for each in backends if each.status.usable}
        return "" if value in usable else "; this one is not usable"
    if name == "WEFT_DISABLE_PLUGINS":
        return "".join(map(_remark_on_disabled, settings.DISABLE_PLUGINS.value))
    if name in ("WEFT_PASSES", "WEFT_PREFER", "WEFT_PROGRESS"):
        return _problem_of(name)
    if name.startswith("WEFT_") and name not in SETTINGS:
        close = closest(name, SETTINGS)
        return "weft has no such variable" + (f": did you mean {close}?" if close else "")
    return ""


def _remark_on_disabled(word: str) -> str:
    group, _, name = word.rpartition(":")
    groups = (group, f"weft.{group}") if group else tuple(plugins.GROUPS)
    found = {record.group for record in plugins.records() if record.name == name}
    found = found.intersection(groups)
    if not found:
        return f"; there is no plugin {word}"
    needed = PASSES in found and name in DEFAULT_PIPELINE
    return f"; {word} is part of the default pipeline" if needed else ""


def _problem_of(name: str) -> str:
    """Return the problem of a setting, or an empty text."""
    entries = survey().entries
    try:
        if name == "WEFT_PASSES":
            switches().applied(DEFAULT_PIPELINE)
        elif name == "WEFT_PROGRESS":
            chosen_display()
        else:
            for key in preferences():
                if key not in entries:
                    return f"; there is no plugin {':'.join(key)}"
                preferred(entries[key])
    except WeftError as error:
        return f"; {error.problem}"
    return ""
