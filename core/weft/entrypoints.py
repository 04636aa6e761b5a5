"""The entry points of weft's groups, read from installed metadata without importing a plugin."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any

BACKENDS = "weft.backends"
PASSES = "weft.passes"
FRONTENDS = "weft.frontends"
OPS = "weft.ops"
RULES = "weft.rules"
HOOKS = "weft.hooks"

GROUPS = {
    BACKENDS: "backend",
    PASSES: "pass",
    FRONTENDS: "frontend",
    OPS: "op plugin",
    RULES: "rule plugin",
    HOOKS: "hook plugin",
}
"""The entry-point groups, each with the word that messages use for one of its plugins."""

Key = tuple[str, str]
"""Group and name, which together are the address of a plugin."""


Reader = Callable[[str], str | None]
"""Returns the text of a file in a distribution's metadata, or None where there is none."""


class PluginWarning(UserWarning):
    """A plugin that nobody asked for by name could not be read or loaded and was skipped."""


@dataclass(frozen=True)
class Entry:
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
    def owner(self) -> str:
        """Name and version of the distribution."""
        return f"{self.distribution} {self.version}".strip()

    def load(self) -> Any:
        """Import the module and return it, or the object in it that the entry point names."""
        inner = self.value.partition("[")[0].partition(":")[2].strip()
        return reduce(getattr, inner.split(".") if inner else (), import_module(self.module))

    def __str__(self) -> str:
        return f"{described(*self.key)} of {self.owner}"


def described(group: str, name: str) -> str:
    """Return how a message that starts with a plugin calls it."""
    return f"{GROUPS[group].capitalize()} {name!r}"


def discover() -> dict[Key, list[Entry]]:
    """Return the entries of every group, more than one under a key where distributions clash.

    They are read again only if the import path, or a folder on it, has changed.
    """
    return _discovered(tuple((folder, _changed_at(folder)) for folder in sys.path))


@lru_cache(maxsize=1)
def _discovered(path: tuple[tuple[str, int], ...]) -> dict[Key, list[Entry]]:
    found: dict[Key, list[Entry]] = {}
    for entry in _entries():
        found.setdefault(entry.key, []).append(entry)
    return found


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def is_disabled(group: str, name: str) -> bool:
    """Whether ``WEFT_DISABLE_PLUGINS`` holds the name, alone or as ``group:name``."""
    disabled = {word.strip() for word in os.environ.get("WEFT_DISABLE_PLUGINS", "").split(",")}
    spellings = {name, f"{group}:{name}", f"{group.removeprefix('weft.')}:{name}"}
    return not disabled.isdisjoint(spellings)


def disabled_message(group: str, name: str) -> str:
    """Return why a disabled plugin is not there and how to have it back."""
    setting = f"WEFT_DISABLE_PLUGINS={os.environ.get('WEFT_DISABLE_PLUGINS', '')}"
    return f"{described(group, name)} is disabled by {setting}; take it out of there to use it."


def duplicate_message(entries: Sequence[Entry]) -> str:
    """Return which distributions clash over one name and what to do."""
    owners = " and ".join(f"{entry.owner} ({entry.value})" for entry in entries)
    title = described(*entries[0].key)
    return f"{title} is there more than once, from {owners}: uninstall all but one of them."


def remedy(error: BaseException, entry: Entry) -> str:
    """Return the pip command that helps if the error is a missing module, or nothing."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    if error.name and f"{entry.module}.".startswith(f"{error.name}."):
        return f" Its own files are missing: pip install --force-reinstall {entry.distribution}"
    name = entry.name
    for extra in (name, name.rpartition(".")[0]):
        if _normalized(extra) in map(_normalized, entry.extras):
            return f" To install what it needs: pip install '{entry.distribution}[{extra}]'"
    return f" To install what it declares to need: pip install {entry.distribution}"


def _entries() -> Iterator[Entry]:
    """Yield every entry; of a distribution that is there twice, those of the first on the path.

    The first is the one whose modules an import finds. This is how an editable install next to
    its own build folder is one distribution.
    """
    seen: set[str] = set()
    for label, read in _distributions():
        try:
            entries = _entries_of(read)
        except Exception as error:
            message = f"The entry points of {label} cannot be read: {error!r}"
            warnings.warn(message, PluginWarning, stacklevel=2)
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
    if "[weft." not in listed:
        return []
    head = (read("METADATA") or read("PKG-INFO") or "").partition("\n\n")[0]
    fields = [line.partition(":")[::2] for line in head.splitlines()]
    values = {key.lower(): value.strip() for key, value in reversed(fields)}
    name = values.get("name") or "a distribution without a name"
    extras = tuple(value.strip() for key, value in fields if key.lower() == "provides-extra")
    owner = (name, values.get("version", ""), extras)
    return [Entry(*point, *owner) for point in dict.fromkeys(_points(listed))]


def _points(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield group, name and value of each entry point in weft's groups."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group in GROUPS and line and not line.startswith(("#", ";")):
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{line!r} under [{group}] is not of the form name = module")
            yield group, name.strip(), value.strip()


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
