"""Locks that a forked process renews, and cached properties without locks.

A fork takes one thread along. A lock that another one holds then stays locked for ever in the new
process, so locks are renewed there.

Locks that the main thread takes are reentrant. Since Python 3.14 an interrupt may come between the
call that takes a lock in a ``with`` statement and the block, and then nothing releases it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

from weft.support.backports import after_fork

Lock = TypeVar("Lock")
Value = TypeVar("Value")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def renewed(lock: Lock) -> Lock:
    """Return a lock that is renewed in forked processes; what it guards must bear that."""
    _locks.add(lock)
    return lock


def renew(lock: Any) -> bool:
    """Renew a lock, in a forked process; returns whether a thread held it that is gone."""
    if lock.acquire(blocking=False):  # by nobody, or by this thread
        lock.release()
        return False
    lock._at_fork_reinit()
    return True


def _renew_all() -> None:
    for lock in list(_locks):
        renew(lock)


after_fork(_renew_all)


class cached_property(Generic[Value]):  # noqa: N801
    """As in `functools`, without the lock that Python 3.11 takes there for all objects at once.

    Several threads may compute a value at once; all get the one that was there first.
    """

    def __init__(self, func: Callable[[Any], Value]) -> None:
        self.func = func
        self.__doc__ = func.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.attrname = name  # as in functools

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> Self | Value:
        """Compute the value, which hides this from then on."""
        if instance is None:
            return self
        found: Value = instance.__dict__.setdefault(self.attrname, self.func(instance))
        return found
