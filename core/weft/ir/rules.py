"""Rule tables: the lowering rule of each op class on one backend, open to plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from weft import plugins
from weft.errors import PluginError
from weft.ir.op import Op
from weft.plugins.blame import acting, claim
from weft.support.dispatch import ClassTable

R = TypeVar("R", bound=Callable[..., Any])


class RuleTable:
    """The rules of a backend; the nearest class in an op's MRO wins.

    Rules of plugins (group ``weft.rules``) are loaded at the first look-up, and again after a
    plugin is registered or taken back by hand.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._rules = ClassTable[Callable[..., Any]]()
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
                f"{getattr(known, '__qualname__', known)}: two rules for one op are ambiguous"
            )
        self._rules[kind] = rule
        origin = acting()
        if origin is not None:
            claim(rule, origin)

    def find(self, kind: type[Op]) -> Callable[..., Any] | None:
        """Return the rule for an op class, or None."""
        self._ask_new_plugins()
        return self._rules.nearest(kind)

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
