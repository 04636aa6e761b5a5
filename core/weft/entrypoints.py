"""The entry points of weft's groups, read from installed metadata without importing a plugin."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

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


class PluginWarning(UserWarning):
    """A plugin that nobody asked for by name could not be read or loaded and was skipped."""


@dataclass(frozen=True)
class Entry:
    """One entry point together with the distribution that ships it."""

    point: EntryPoint
    distribution: str
    version: str
    extras: tuple[str, ...]

    @property
    def key(self) -> Key:
        """Group and name of the entry point."""
        return self.point.group, self.point.name

    @property
    def owner(self) -> str:
        """Name and version of the distribution."""
        return f"{self.distribution} {self.version}".strip()

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
    owners = " and ".join(f"{entry.owner} ({entry.point.value})" for entry in entries)
    title = described(*entries[0].key)
    return f"{title} is there more than once, from {owners}: uninstall all but one of them."


def remedy(error: BaseException, entry: Entry) -> str:
    """Return the pip command that helps if the error is a missing module, or nothing."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    if error.name and f"{entry.point.module}.".startswith(f"{error.name}."):
        return f" Its own files are missing: pip install --force-reinstall {entry.distribution}"
    name = entry.point.name
    for extra in (name, name.rpartition(".")[0]):
        if _normalized(extra) in map(_normalized, entry.extras):
            return f" To install what it needs: pip install '{entry.distribution}[{extra}]'"
    return f" To install what it declares to need: pip install {entry.distribution}"


def _entries() -> Iterator[Entry]:
    """Yield every entry; of a distribution that is there twice, those of the first on the path.

    The first is the one whose modules an import finds. This is how an editable install next to
    its own build folder is one distribution.
    """
    # Costs as much as the rest of `import weft`, and is not needed before a plugin is.
    import importlib.metadata

    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        try:
            entries = _entries_of(distribution)
        except Exception as error:
            message = f"The entry points of {distribution!r} cannot be read: {error!r}"
            warnings.warn(message, PluginWarning, stacklevel=2)
            continue
        if entries and (identity := _normalized(entries[0].distribution)) not in seen:
            seen.add(identity)
            yield from entries


def _entries_of(distribution: Distribution) -> list[Entry]:
    # Few distributions have plugins for weft; the metadata of the others need not be parsed.
    if "[weft." not in (distribution.read_text("entry_points.txt") or ""):
        return []
    metadata = distribution.metadata
    name = metadata["Name"] or "a distribution without a name"
    extras = tuple(metadata.get_all("Provides-Extra") or ())
    points = dict.fromkeys(point for point in distribution.entry_points if point.group in GROUPS)
    return [Entry(point, name, metadata["Version"] or "", extras) for point in points]


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
