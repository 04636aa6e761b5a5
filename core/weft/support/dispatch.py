"""Tables keyed by class, looked up along the method resolution order."""

from __future__ import annotations

from typing import TypeVar

V = TypeVar("V")


class ClassTable(dict[type, V]):
    """A value per class, inherited by subclasses without one of their own.

    >>> table = ClassTable({int: "integer", object: "anything"})
    >>> table.nearest(bool), table.nearest(str)
    ('integer', 'anything')
    """

    def nearest(self, kind: type) -> V | None:
        """Return the value of the first class in the MRO of `kind` that has one, or None."""
        for base in kind.__mro__:
            if base in self:
                return self[base]
        return None
