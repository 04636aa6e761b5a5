"""The pipeline of one transformer: passes by name, loaded when needed."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from weft import plugins, settings
from weft.errors import ArgumentError, PluginError, UnknownPluginError
from weft.ir.target import Target
from weft.passes.interface import GraphPass
from weft.plugins.blame import blaming, origin_of
from weft.plugins.entrypoints import DEFAULT_PIPELINE


@dataclass(frozen=True)
class Switches:
    """What ``WEFT_PASSES`` switches on and off.

    Attributes
    ----------
    on
        Names of passes, each with the name of the pass that it is to stand before, or nothing for
        the beginning of the pipeline.
    off
        Names of passes that do not run, whoever put them into the pipeline.
    """

    on: tuple[tuple[str, str], ...] = ()
    off: frozenset[str] = frozenset()

    def applied(self, pipeline: Sequence[str]) -> Sequence[str]:
        """Return the pipeline with what is switched on and without what is switched off."""
        changed = [name for name in pipeline if name not in self.off]
        first = 0
        for name, before in self.on:
            if before and before not in changed:
                raise ArgumentError(
                    f"{settings.PASSES}: {name} is to stand before {before}, which is not in the "
                    f"pipeline: {', '.join(changed)}"
                )
            changed.insert(changed.index(before) if before else first, name)
            first += not before
        return changed


def switches() -> Switches:
    """Parse ``WEFT_PASSES``: ``+name``, ``+name@before`` and ``-name``, with commas.

    Raises ArgumentError for anything else, and what `weft.plugins.require` raises for a name.
    """
    on: list[tuple[str, str]] = []
    off: set[str] = set()
    for word in settings.PASSES.value:
        sign, (name, _, before) = word[0], word[1:].partition("@")
        if sign not in "+-" or not name or (sign == "-" and before):
            raise ArgumentError(
                f"{settings.PASSES}: {word!r} is not one of +name, +name@before and -name"
            )
        try:
            plugins.require(plugins.PASSES, name, is_default=name in DEFAULT_PIPELINE)
        except UnknownPluginError as error:
            raise UnknownPluginError(f"{settings.PASSES}: {error}") from None
        except PluginError:
            if sign == "+":
                raise
        if sign == "-":
            off.add(name)
        else:
            on.append((name, before))
    return Switches(tuple(on), frozenset(off))


def _checked(passes: Any) -> list[str | GraphPass]:
    """Return passes as a list; raises ArgumentError for what is neither a pass nor a name."""
    if not isinstance(passes, Iterable):
        raise ArgumentError(f"passes= takes a list of names and passes, not {passes!r}")
    found = list(passes)
    for each in found:
        if not isinstance(each, str | GraphPass):
            hint = f": make an object, {each.__name__}()" if isinstance(each, type) else ""
            raise ArgumentError(f"passes= takes names and passes, not {each!r}{hint}")
    return found


class Pipeline:
    """Loads passes that are given by name, the default ones when they are first asked for.

    ``WEFT_PASSES`` switches passes of the default pipeline on and off. Raises ArgumentError for
    text instead of a list, and what `weft.plugins.load` raises.
    """

    def __init__(self, passes: Iterable[str | GraphPass] | None) -> None:
        self._named: weakref.WeakKeyDictionary[GraphPass, tuple[str, dict[str, Any]]]
        self._named = weakref.WeakKeyDictionary()
        if isinstance(passes, str):
            raise ArgumentError(f"passes= takes a list: passes=[{passes!r}]")
        if passes is not None:
            passes = _checked(passes)
        self._is_default = passes is None
        self._switches = switches() if passes is None else Switches()
        self._passes = None if passes is None else self._loaded(passes)

    @property
    def passes(self) -> list[GraphPass]:
        """The passes; what is done to the list is done to the pipeline."""
        if self._passes is None:
            self._passes = self._loaded(self._switches.applied(DEFAULT_PIPELINE))
        return self._passes

    def changed(self, target: Target) -> list[GraphPass]:
        """Return the passes that run for a target, as plugins change them."""
        changed = plugins.change_pipeline(list(self.passes), target)
        off = self._switches.off
        if off:
            changed = [each for each in changed if self._name(each) not in off]
        return self._loaded(changed)

    def names(self, target: Target) -> list[str | GraphPass]:
        """Like `changed`, but with names for passes that are as they were when loaded.

        The default pipeline is not loaded for that, unless a plugin changes it.
        """
        if self._passes is None and not plugins.changes_pipeline():
            return list(self._switches.applied(DEFAULT_PIPELINE))
        known = [(each, self._named.get(each)) for each in self.changed(target)]
        return [named[0] if named and named[1] == vars(each) else each for each, named in known]

    def _name(self, given: str | GraphPass) -> str:
        if isinstance(given, str):
            return given
        named = self._named.get(given)
        return named[0] if named is not None else ""

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
        is_default = self._is_default and name in DEFAULT_PIPELINE
        kind = plugins.load(plugins.PASSES, name, is_default=is_default)
        with blaming(origin_of(kind), "while it was made"):
            made: GraphPass = kind()
        self._named[made] = name, dict(vars(made))
        return made
