"""Entry points of weft's groups, read from metadata without importing a plugin."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial, reduce
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

from weft import settings
from weft.errors import PluginError
from weft.support import source
from weft.support.spelling import closest

BACKENDS = "weft.backends"
PASSES = "weft.passes"
FRONTENDS = "weft.frontends"
COMMUNICATORS = "weft.communicators"
OPS = "weft.ops"
RULES = "weft.rules"
HOOKS = "weft.hooks"

GROUPS = {
    BACKENDS: "backend",
    PASSES: "pass",
    FRONTENDS: "frontend",
    COMMUNICATORS: "communicator",
    OPS: "op plugin",
    RULES: "rule plugin",
    HOOKS: "hook plugin",
}
"""The entry-point groups, each with the word that messages use for one of its plugins."""

Key = tuple[str, str]
"""Group and name, which together are the address of a plugin."""

OWN = "weftc"
"""weft's own distribution, whose backends and passes are the defaults; on PyPI, `weft` is another
project."""
DEFAULT_BACKENDS = ("native", "numpy")
"""The backends of which a program that names none gets the first usable one; the last needs no
device."""
DEFAULT_PIPELINE = (
    "simple-prune",
    "constant-folding",
    "merge-equal",
    "decompose",
    "merge-equal",
    "simple-prune",
    "constant-folding",
    "layout",
    "required-tensor-shaping",
    "merge-equal",
    "fusion",
    "dead-code",
)
"""The passes that a transformer runs by default, by name."""

Reader = Callable[[str], str | None]
"""Returns the text of a file in a distribution's metadata, or None where there is none."""


class PluginWarning(UserWarning):
    """A plugin that nobody asked for by name could not be read or loaded and was skipped."""


class Entry(NamedTuple):
    """One entry point together with the distribution that ships it."""

    group: str
    name: str
    value: str
    distribution: str
    version: str
    extras: tuple[str, ...]

    @property
    def key(self) -> Key:
        """Group and name of the entry point."""
        return self.group, self.name

    @property
    def module(self) -> str:
        """The name of the module that holds the plugin."""
        return self.value.partition("[")[0].partition(":")[0].strip()

    @property
    def package(self) -> str:
        """The top-level package of that module."""
        return self.module.partition(".")[0]

    @property
    def target(self) -> tuple[str, str]:
        """Module and qualified name of what holds the plugin."""
        return self.module, self.value.partition("[")[0].partition(":")[2].strip()

    @property
    def owner(self) -> str:
        """Name and version of the distribution."""
        return f"{self.distribution} {self.version}".strip()

    @property
    def is_own(self) -> bool:
        """Whether weft itself ships the plugin."""
        return _normalized(self.distribution) == OWN

    def load(self) -> Any:
        """Import the module and return it, or the object in it that the entry point names."""
        _, inner = self.target
        return reduce(getattr, inner.split(".") if inner else (), import_module(self.module))

    def __str__(self) -> str:
        return f"{described(*self.key)} of {self.owner}"


def described(group: str, name: str) -> str:
    """Return how a message that starts with a plugin calls it."""
    return f"{GROUPS[group].capitalize()} {name!r}"


class Survey(NamedTuple):
    """What the metadata of installed distributions says of plugins for weft.

    Attributes
    ----------
    entries
        The entries of each group and name; more than one where distributions clash.
    misspelt
        Entries in groups that look like weft's and are not.
    packages
        The top-level packages that hold plugins, each with its entries.
    """

    entries: dict[Key, list[Entry]]
    misspelt: list[Entry]
    packages: dict[str, list[Entry]]
    unreadable: list[str]


def survey() -> Survey:
    """Return the installed entry points, without importing any or warning of unreadable ones.

    The metadata is read again only if the import path, or a folder on it, has changed.
    """
    return _survey(tuple((folder, _changed_at(folder)) for folder in sys.path))


def _holds_plugin(package: str) -> bool:
    return package in survey().packages


source.plugin_packages.append(_holds_plugin)


def discover() -> dict[Key, list[Entry]]:
    """Return the entries of every group, more than one under a key where distributions clash.

    Warns once of each distribution whose entry points cannot be read.
    """
    found = survey()
    while found.unreadable:
        warnings.warn(found.unreadable.pop(0), PluginWarning, stacklevel=2)
    return found.entries


@lru_cache(maxsize=1)
def _survey(path: tuple[tuple[str, int], ...]) -> Survey:
    found = Survey({}, [], {}, [])
    for entry in _entries(found.unreadable):
        if entry.group in GROUPS:
            found.entries.setdefault(entry.key, []).append(entry)
            found.packages.setdefault(entry.package, []).append(entry)
        else:
            found.misspelt.append(entry)
    return found


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def is_disabled(group: str, name: str) -> bool:
    """Whether ``WEFT_DISABLE_PLUGINS`` holds the name, alone or as ``group:name``."""
    spellings = {name, f"{group}:{name}", f"{group.removeprefix('weft.')}:{name}"}
    return not spellings.isdisjoint(settings.DISABLE_PLUGINS.value)


def disabled_message(group: str, name: str) -> str:
    """Return why a disabled plugin is not there and how to have it back."""
    setting = settings.DISABLE_PLUGINS
    return f"{described(group, name)} is disabled by {setting}; take it out of there to use it."


def duplicate_message(entries: Sequence[Entry]) -> str:
    """Return which distributions clash over one name and what to do."""
    owners = " and ".join(f"{entry.owner} ({entry.value})" for entry in entries)
    title = described(*entries[0].key)
    return (
        f"{title} is there more than once, from {owners}: uninstall all but one of them, or choose "
        f"one by {choosing(entries[0])}"
    )


def choosing(entry: Entry) -> str:
    """Return the setting that makes an entry win over others of its name."""
    return f"WEFT_PREFER={entry.group.removeprefix('weft.')}:{entry.name}={entry.distribution}"


def switching_off(entry: Entry) -> str:
    """Return the setting that disables a plugin."""
    return f"WEFT_DISABLE_PLUGINS={entry.group.removeprefix('weft.')}:{entry.name}"


def preferred(entries: Sequence[Entry]) -> list[Entry]:
    """Return those of the distribution that ``WEFT_PREFER`` names for this plugin, else all.

    Raises PluginError if none of them is of that distribution, or for a malformed setting.
    """
    wanted = preferences().get(entries[0].key)
    if wanted is None:
        return list(entries)
    chosen = [each for each in entries if _normalized(each.distribution) == _normalized(wanted)]
    if not chosen:
        title = described(*entries[0].key)
        owners = " and ".join(entry.owner for entry in entries)
        raise PluginError(
            f"{settings.PREFER} wants {title[0].lower()}{title[1:]} from "
            f"{wanted!r}, and it is there from {owners}."
        )
    return chosen


def preferences() -> dict[Key, str]:
    """Return the distributions that ``WEFT_PREFER`` names, by group and name of the plugin.

    Raises PluginError for a setting that is not of the form ``group:name=distribution``.
    """
    found: dict[Key, str] = {}
    for word in settings.PREFER.value:
        key, equals, distribution = word.partition("=")
        group, colon, name = key.strip().partition(":")
        group = group if group in GROUPS else f"weft.{group}"
        if not (equals and colon and name and distribution.strip()) or group not in GROUPS:
            raise PluginError(
                f"{settings.PREFER}: {word!r} is not of the form group:name=distribution, as "
                "in passes:fusion=weft-gem"
            )
        found[group, name] = distribution.strip()
    return found


def remedy(error: BaseException, entry: Entry) -> str:
    """Return the pip command that helps if the error is a missing module, or nothing."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    if _is_of(error.name, entry):
        return f" Its own files are missing: pip install --force-reinstall {entry.distribution}"
    extra = _extra_of(entry)
    if extra:
        return f" To install what it needs: pip install '{entry.distribution}[{extra}]'"
    return f" To install what it declares to need: pip install {entry.distribution}"


def lacks_an_extra(error: BaseException | None, entry: Entry) -> bool:
    """Whether a plugin cannot be loaded because an extra of its distribution is not installed."""
    is_missing = isinstance(error, ModuleNotFoundError) and not _is_of(error.name, entry)
    return is_missing and bool(_extra_of(entry))


def _is_of(module: str | None, entry: Entry) -> bool:
    """Whether a module is the plugin's own, or a package that it is in."""
    return bool(module) and f"{entry.module}.".startswith(f"{module}.")


def _extra_of(entry: Entry) -> str:
    """Return the extra of the name of the entry or its backend, or nothing."""
    names = (entry.name, entry.name.rpartition(".")[0])
    extras = set(map(_normalized, entry.extras))
    return next((name for name in names if name and _normalized(name) in extras), "")


def _entries(unreadable: list[str]) -> Iterator[Entry]:
    """Yield every entry; of a distribution that is there twice, those of the first on the path.

    The first is the one whose modules an import finds. This is how an editable install next to
    its own build folder is one distribution.
    """
    seen: set[str] = set()
    for label, read in _distributions():
        try:
            entries = _entries_of(read)
        except Exception as error:
            unreadable.append(f"The entry points of {label} cannot be read: {error!r}")
            continue
        if entries and (identity := _normalized(entries[0].distribution)) not in seen:
            seen.add(identity)
            yield from entries


def _distributions() -> Iterator[tuple[str, Reader]]:
    """Yield a label for each installed distribution, and what reads a file of its metadata.

    Folders are read here: importing importlib.metadata takes longer than compiling a small graph.
    It is asked where the import system has more than folders.
    """
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    if finders != [PathFinder] or any(map(os.path.isfile, sys.path)):
        from importlib.metadata import distributions

        for found in distributions():
            yield repr(found), found.read_text
        return
    for folder in sys.path:
        for name in _listed(folder or "."):
            if name.endswith((".dist-info", ".egg-info")):
                place = os.path.join(folder, name)
                yield place, partial(_text, place)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(folder: str, file: str) -> str | None:
    try:
        with open(os.path.join(folder, file), encoding="utf-8") as opened:
            return opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _entries_of(read: Reader) -> list[Entry]:
    listed = read("entry_points.txt") or ""
    # Few distributions have plugins for weft; the metadata of the others need not be parsed.
    if "weft" not in listed.lower():
        return []
    head = (read("METADATA") or read("PKG-INFO") or "").partition("\n\n")[0]
    fields = [line.partition(":")[::2] for line in head.splitlines()]
    values = {key.lower(): value.strip() for key, value in reversed(fields)}
    name = values.get("name") or "a distribution without a name"
    extras = tuple(value.strip() for key, value in fields if key.lower() == "provides-extra")
    owner = (name, values.get("version", ""), extras)
    return [Entry(*point, *owner) for point in dict.fromkeys(_points(listed))]


def _points(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield group, name and value of each entry point in groups that look like weft's."""
    group, is_ours = "", False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
            is_ours = group in GROUPS or group.startswith("weft.") or bool(meant_group(group))
        elif is_ours and line and not line.startswith(("#", ";")):
            name, equals, value = line.partition("=")
            if equals:
                yield group, name.strip(), value.strip()
            elif group in GROUPS:
                raise ValueError(f"{line!r} under [{group}] is not of the form name = module")


def meant_group(group: str) -> str:
    """Return the group of weft's that a name is probably meant to be, or nothing."""
    spelt = re.sub(r"[-_.]+", ".", group).lower()
    if spelt.count(".") > 1:  # a group of a package like weft-gem, for its own use
        return ""
    return closest(spelt, GROUPS, cutoff=0.8)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
