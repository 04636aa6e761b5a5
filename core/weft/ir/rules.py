"""Rule tables: the lowering rule of each op class on one backend, open to plugins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from weft import plugins
from weft.errors import PluginError
from weft.ir.op import Op
from weft.plugins.blame import acting, claim
from weft.support.dispatch import ClassTable
from weft.support.source import Location, file_info

R = TypeVar("R", bound=Callable[..., Any])


class Registration(NamedTuple):
    """Where a rule was added to a table: the module, and the file and line."""

    module: str
    location: Location

    def __str__(self) -> str:
        return f"registered at {file_info(self.location)}"


class RuleTable:
    """The rules of a backend; the nearest class in an op's MRO wins.

    Rules of plugins (group ``weft.rules``) are loaded at the first look-up, and again after a
    plugin is registered or taken back by hand.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._rules = ClassTable[Callable[..., Any]]()
        self._registrations = ClassTable[Registration]()
        self._from_plugins: set[type] = set()
        self._revision: object = None
        self._is_asking = False

    def on_type(self, *kinds: type[Op]) -> Callable[[R], R]:
        """Mark a function as the rule for op classes; raises PluginError for a second rule."""

        def mark(rule: R) -> R:
            for kind in kinds:
                self.add(kind, rule)
            return rule

        return mark

    def add(self, kind: type[Op], rule: Callable[..., Any]) -> None:
        """Add the rule for an op class.

        Raises PluginError if there is one already, and for what is not an op class or no function.
        """
        if not (isinstance(kind, type) and issubclass(kind, Op) and callable(rule)):
            raise PluginError(
                f"backend {self.backend} takes a function as the rule for a class of ops, not "
                f"{rule!r} for {kind!r}"
            )
        known = self._rules.get(kind)
        if known is not None:
            raise PluginError(
                f"backend {self.backend} has a rule for {kind.__name__} already, "
                f"{getattr(known, '__qualname__', known)}, {self._registrations[kind]}: two rules "
                "for one op are ambiguous"
            )
        self._rules[kind], self._registrations[kind] = rule, self._registered_now()
        origin = acting()
        if origin is not None:
            claim(rule, origin)

    def _registered_now(self) -> Registration:
        own = {base.__module__ for base in type(self).__mro__}
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__") in own:
            frame = frame.f_back
        location = frame.f_code.co_filename, frame.f_lineno
        return Registration(frame.f_globals.get("__name__", ""), location)

    def registration(self, kind: type[Op]) -> Registration | None:
        """Return where the rule for an op class was added, or None."""
        return self._registrations.nearest(kind)

    def find(self, kind: type[Op]) -> Callable[..., Any] | None:
        """Return the rule for an op class, or None."""
        self._ask_new_plugins()
        return self._rules.nearest(kind)

    def supports(self, op: Op) -> bool:
        """Whether there is a rule that computes an op."""
        return self.find(type(op)) is not None

    def __getitem__(self, kind: type[Op]) -> Callable[..., Any]:
        """Return the rule for an op class; raises KeyError if there is none."""
        rule = self.find(kind)
        if rule is None:
            raise KeyError(f"backend {self.backend} has no rule for {kind.__name__}")
        return rule

    def _ask_new_plugins(self) -> None:
        if self._revision is not plugins.revision():
            with plugins.loading():
                if not (self._is_asking or self._revision is plugins.revision()):
                    self._load()

    def _load(self) -> None:
        """Take the rules of plugins anew, and the revision last: others wait for that."""
        revision = plugins.revision()
        for kind in self._from_plugins:
            self._rules.pop(kind, None)
        own = set(self._rules)
        self._is_asking = True
        try:
            plugins.load_rules(self.backend, self)
        finally:
            self._from_plugins = self._rules.keys() - own
            self._revision, self._is_asking = revision, False

    def __iter__(self) -> Iterator[type]:
        self._ask_new_plugins()
        return iter(list(self._rules))
