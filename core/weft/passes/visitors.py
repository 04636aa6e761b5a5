"""The visitors of peephole passes: how a class declares them, and which ones an object has."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FunctionType
from typing import Any

from weft.errors import PassError
from weft.ir.op import Op
from weft.support.dispatch import ClassTable
from weft.support.overrides import refusal_of

Visitor = Callable[..., Any]


class OnType:
    """Visitors of a peephole pass that share a name, each with the op class that it is for."""

    def __init__(self, table: tuple[tuple[type[Op], Visitor], ...] = ()) -> None:
        self.table = table

    def on_type(self, *kinds: type[Op]) -> Callable[[Visitor], OnType]:
        """Mark a method as the visitor of op classes and their subclasses."""
        return lambda method: OnType(tuple((kind, method) for kind in kinds))

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """Return itself to a class and, to a pass, what visits an op by the nearest of these."""
        return self if owner is None else partial(self._call, owner)

    def _call(self, owner: Any, op: Op) -> Any:
        visitor = ClassTable(self.table).nearest(type(op))
        return None if visitor is None else _bound(visitor, owner, type(owner))(op)


visit = OnType()
"""Marks visitors in the body of a peephole pass: ``@visit.on_type(AddOp)``."""


class _PassBody(dict[str, Any]):
    """The body of a peephole pass: visitors of one name add up, as overloads do."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "visit" and callable(value) and not isinstance(value, OnType):
            value = OnType(((Op, value),))
        earlier = self.get(name)
        if isinstance(value, OnType) and isinstance(earlier, OnType):
            value = OnType((*earlier.table, *value.table))
        super().__setitem__(name, value)


class PassClass(ABCMeta):
    """Collects the visitors of a class; a method called ``visit`` is that of every op."""

    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **options: Any) -> _PassBody:
        return _PassBody()

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: Mapping[str, Any], /, **options: Any
    ) -> Any:
        """Return the class, in whose body visitors of one name have added up."""
        collected = _PassBody()
        for key, value in body.items():
            collected[key] = value
        return super().__new__(cls, name, bases, dict(collected), **options)


def declared(kind: type) -> dict[type[Op], Visitor]:
    """Return the visitors of a class by the op class that each is for, the nearest in its MRO.

    They are as the class bodies have them, whether of a pass or of another class among its bases,
    or as they were set later. Raises PassError for a mark that is inside of another decorator.
    """
    table: dict[type[Op], Visitor] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, OnType):
                table.update(value.table)
            elif name == "visit":
                table[Op] = value
            elif isinstance(getattr(value, "__func__", None), OnType):
                raise PassError(
                    f"{base.__name__}.{name}: @visit.on_type must be the first of its decorators"
                )
    return table


def require_fitting(kind: type) -> dict[type[Op], Visitor]:
    """Return the visitors of a new class; raises PassError for one that cannot take an op."""
    table = declared(kind)
    for visitor in table.values():
        if isinstance(visitor, FunctionType | staticmethod | classmethod | partial):
            _checked(_bound(visitor, object(), kind), kind)
    return table


def visitors_of(owner: Any, checked: Mapping[type[Op], Visitor]) -> dict[type[Op], Visitor]:
    """Return the methods that a pass calls with an op, by op class.

    What was `checked` when the class was defined is not checked again. A ``visit`` of the object
    itself is the visitor of every op. Raises PassError for one that cannot be called with an op.
    """
    kind = type(owner)
    bound: dict[type[Op], Visitor] = {}
    for seen, visitor in declared(kind).items():
        bound[seen] = _bound(visitor, owner, kind)
        if checked.get(seen) is not visitor or not isinstance(visitor, FunctionType):
            _checked(bound[seen], kind)
    for seen, visitor in _of_object(owner):
        bound[seen] = _checked(visitor, kind)
    return bound


def _of_object(owner: Any) -> Iterator[tuple[type[Op], Visitor]]:
    for name, value in getattr(owner, "__dict__", {}).items():
        if isinstance(value, OnType):
            raise PassError(
                f"{type(owner).__name__}: the visitor {name} was set on an object: "
                "@visit.on_type marks methods in the body of the class"
            )
        if name == "visit":
            yield Op, value


def _bound(visitor: Any, owner: Any, kind: type) -> Visitor:
    """Return a visitor as an attribute of the pass; what is not a method takes the pass first."""
    binds = None if isinstance(visitor, partial) else getattr(type(visitor), "__get__", None)
    if binds is not None:
        return binds(visitor, owner, kind)  # type: ignore[no-any-return]
    return partial(visitor, owner) if callable(visitor) else visitor


def _checked(visitor: Any, kind: type) -> Visitor:
    problem = refusal_of(visitor, ("op",))
    if problem:
        raise PassError(
            f"the visitor {kind.__name__}.visit {problem}: it must take one argument, the op, as "
            "visit(self, op) does"
        )
    return visitor  # type: ignore[no-any-return]
