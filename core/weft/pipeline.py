"""The passes of one transformer, by name until they are needed."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from weft import plugins
from weft.errors import ArgumentError
from weft.passes import PIPELINE, GraphPass
from weft.target import Target


class Pipeline:
    """Loads passes that are given by name, the default ones when they are first asked for.

    Raises ArgumentError for text instead of a list, and what `weft.plugins.load` raises.
    """

    def __init__(self, passes: Iterable[str | GraphPass] | None) -> None:
        self._named: weakref.WeakKeyDictionary[GraphPass, tuple[str, dict[str, Any]]]
        self._named = weakref.WeakKeyDictionary()
        if isinstance(passes, str):
            raise ArgumentError(f"passes= takes a list: passes=[{passes!r}]")
        self._passes = None if passes is None else self._loaded(passes)

    @property
    def passes(self) -> list[GraphPass]:
        """The passes; what is done to the list is done to the pipeline."""
        if self._passes is None:
            self._passes = self._loaded(PIPELINE)
        return self._passes

    def changed(self, target: Target) -> list[GraphPass]:
        """Return the passes that run for a target, as plugins change them."""
        return self._loaded(plugins.change_pipeline(list(self.passes), target))

    def names(self, target: Target) -> list[str | GraphPass]:
        """Return what `changed` does, but names of passes that are as they were when loaded.

        The default pipeline is not loaded for that, unless a plugin changes it.
        """
        if self._passes is None and not plugins.changes_pipeline():
            return list(PIPELINE)
        known = [(each, self._named.get(each)) for each in self.changed(target)]
        return [named[0] if named and named[1] == vars(each) else each for each, named in known]

    def _loaded(self, passes: Iterable[str | GraphPass]) -> list[GraphPass]:
        """Return passes; one that is named twice is one object, so it sees no graph in vain."""
        made: dict[str, GraphPass] = {}
        found: list[GraphPass] = []
        for each in passes:
            if isinstance(each, str):
                if each not in made:
                    made[each] = self._load(each)
                each = made[each]
            found.append(each)
        return found

    def _load(self, name: str) -> GraphPass:
        made: GraphPass = plugins.load(plugins.PASSES, name)()
        self._named[made] = name, dict(vars(made))
        return made
