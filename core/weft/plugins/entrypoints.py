"""Entry points of weft's groups, read from metadata without importing a plugin."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    "simple-prune", "constant-folding", "merge-equal", "split-complex", "decompose",
    "merge-equal", "simple-prune", "constant-folding", "narrow-integers", "layout",
    "required-tensor-shaping", "merge-equal", "fusion", "dead-code",
)  # fmt: skip
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
    def target(self) -> tuple[str, str]:
        """Module and qualified name of what holds the plugin."""
        module, _, inner = self.value.partition("[")[0].partition(":")
        return module.strip(), inner.strip()

    @property
    def module(self) -> str:
        """The name of the module that holds the plugin."""
        return self.target[0]

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
        module, inner = self.target
        return reduce(getattr, filter(None, inner.split(".")), import_module(module))

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
    packages
        The top-level packages that hold plugins, each with its entries.
    others
        What distributions that mention weft put into groups that weft does not have.
    unreadable
        What to warn of, once.
    """

    entries: dict[Key, list[Entry]]
    packages: dict[str, list[Entry]]
    others: list[Entry]
    unreadable: list[str]


def survey() -> Survey:
    """Return the installed entry points, without importing any or warning of unreadable ones.

    The metadata is read again only if the import path, or a folder on it, has changed.
    """
    return _survey(tuple((folder, _changed_at(folder)) for folder in sys.path))


source.plugin_packages.append(lambda package: package in survey().packages)


def discover() -> dict[Key, list[Entry]]:
    """Return the entries of every group, more than one under a key where distributions clash.

    Warns once of each distribution whose entry points cannot be read, and of each name in
    ``WEFT_DISABLE_PLUGINS`` that is none but like one.
    """
    found = survey()
    while found.unreadable:
        warnings.warn(found.unreadable.pop(0), PluginWarning, stacklevel=2)
    for name in settings.DISABLE_PLUGINS.value:
        if name not in _looked_at:
            _looked_at.add(name)
            _warn_of_misspelt(name, found.entries)
    return found.entries


_looked_at: set[str] = set()
"""The names in ``WEFT_DISABLE_PLUGINS`` that were compared with those of plugins."""


def _warn_of_misspelt(disabled: str, entries: Iterable[Key]) -> None:
    names = {name for _, name in entries}
    _, _, name = disabled.rpartition(":")
    close = "" if name in names else closest(name, names)
    if close:
        text = f"{settings.DISABLE_PLUGINS} disables {disabled!r}, and no plugin has this name."
        warnings.warn(f"{text} Did you mean {close!r}?", PluginWarning, stacklevel=3)


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
    title = described(*entries[0].key)
    return (
        f"{title} is there more than once, from {owners(entries)}: uninstall all but one of them, "
        f"or choose one by {choosing(entries[0])}"
    )


def owners(entries: Sequence[Entry]) -> str:
    """Return the distributions of some entries, each with what it names."""
    return " and ".join(f"{entry.owner} ({entry.value})" for entry in entries)


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
        there = " and ".join(entry.owner for entry in entries)
        raise PluginError(
            f"{settings.PREFER} wants {title[0].lower()}{title[1:]} from {wanted!r}, and it is "
            f"there from {there}."
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


@lru_cache(maxsize=1)
def _survey(path: tuple[tuple[str, int], ...]) -> Survey:
    """Read the metadata; of a distribution that is there twice, that of the first on the path.

    The first is the one whose modules an import finds. This is how an editable install next to
    its own build folder is one distribution.
    """
    found = Survey({}, {}, [], [])
    seen: set[str] = set()
    for label, read in _distributions():
        try:
            entries = _entries_of(read)
        except Exception as error:
            found.unreadable.append(f"The entry points of {label} cannot be read: {error!r}")
            continue
        if not entries or (identity := _normalized(entries[0].distribution)) in seen:
            continue
        seen.add(identity)
        for entry in entries:
            if entry.group in GROUPS:
                found.entries.setdefault(entry.key, []).append(entry)
                found.packages.setdefault(entry.module.partition(".")[0], []).append(entry)
            else:
                found.others.append(entry)
    return found


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def _distributions() -> Iterator[tuple[str, Reader]]:
    """Yield a label for each installed distribution, and what reads a file of its metadata.

    Folders are read here, which takes 5 ms of processor time with 130 distributions on an x86
    server, the least of 20 processes; `importlib.metadata` takes 38 ms, 28 of them to be imported.
    It is asked where the import system has more than folders.
    """
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    if finders != [PathFinder] or any(map(os.path.isfile, sys.path)):
        from importlib.metadata import distributions

        yield from ((repr(found), found.read_text) for found in distributions())
        return

    def text(place: str, file: str) -> str | None:
        try:
            with open(os.path.join(place, file), encoding="utf-8") as opened:
                return opened.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                place = os.path.join(folder, name)
                yield place, partial(text, place)


def _entries_of(read: Reader) -> list[Entry]:
    """Return the entries of a distribution that mentions weft; of another one, nothing."""
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
    """Yield group, name and value of each entry point; raises ValueError for a malformed one."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif line and not line.startswith(("#", ";")):
            name, equals, value = line.partition("=")
            if equals:
                yield group, name.strip(), value.strip()
            elif group in GROUPS:
                raise ValueError(f"{line!r} under [{group}] is not of the form name = module")


def misspelt() -> Iterator[tuple[Entry, str]]:
    """Yield entries in groups that look like weft's and are not; each with the group meant.

    That is empty where the group is like none.
    """
    for entry in survey().others:
        spelt = re.sub(r"[-_.]+", ".", entry.group).lower()
        # With two dots it is a group of a package like weft-gem, for its own use.
        meant = "" if spelt.count(".") > 1 else closest(spelt, GROUPS, cutoff=0.8)
        if meant or entry.group.startswith("weft."):
            yield entry, meant


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
