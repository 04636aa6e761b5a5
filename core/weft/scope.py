"""The context in which ops are built: effect scopes, metadata, recorders, pinned reads.

An effect scope is a token. Each state remembers, per scope, the op that wrote it last there; an op
that reads the state stores that write as the version it saw. The root scope is shared by all
threads; the scopes of `saved_user_deps` are private to the thread or task that entered them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.op import Op
    from weft.source import Location


class EffectScope:
    """A token that tells apart the writes made inside a region from those outside it."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What an op takes from its surroundings while it is constructed."""

    scope: EffectScope
    metadata: Mapping[str, Any] | None = None
    recorders: tuple[list[Op], ...] = ()
    pinned: Mapping[Op, Op | None] | None = None
    location: Location | None = None
    origin: Op | None = None


ROOT = EffectScope()
_OUTSIDE = BuildContext(ROOT)
current: ContextVar[BuildContext] = ContextVar("weft_build_context", default=_OUTSIDE)


@contextmanager
def _changed(**changes: Any) -> Iterator[BuildContext]:
    token = current.set(replace(current.get(), **changes))
    try:
        yield current.get()
    finally:
        current.reset(token)


@contextmanager
def saved_user_deps(scope: EffectScope | None = None) -> Iterator[EffectScope]:
    """Keep the writes made inside apart from those outside.

    Ops built inside see only writes made in the same scope; ops and computations made outside do
    not depend on them unless they name them. Yields the scope; passing it again re-enters it.
    """
    with _changed(scope=scope or EffectScope()) as context:
        yield context.scope


@contextmanager
def metadata(**entries: Any) -> Iterator[None]:
    """Give every op built inside these metadata entries; inner contexts win over outer ones."""
    with _changed(metadata={**(current.get().metadata or {}), **entries}):
        yield


@contextmanager
def captured_ops() -> Iterator[list[Op]]:
    """Yield a list of the ops built inside, and hide them from enclosing recorders."""
    recorder: list[Op] = []
    with _changed(recorders=(recorder,)):
        yield recorder


@contextmanager
def all_ops() -> Iterator[list[Op]]:
    """Yield a list of the ops built inside, which enclosing recorders see as well."""
    recorder: list[Op] = []
    with _changed(recorders=(*current.get().recorders, recorder)):
        yield recorder


@contextmanager
def pinned_reads(op: Op) -> Iterator[None]:
    """Make ops built inside read the versions of state that `op` read."""
    pins = {arg: read for arg, read in zip(op.args, op.reads, strict=True) if arg.is_state}
    if not pins:
        yield
        return
    with _changed(pinned=pins):
        yield


@contextmanager
def located(location: Location) -> Iterator[None]:
    """Give ops built inside this source location."""
    with _changed(location=location):
        yield


@contextmanager
def replacing(op: Op) -> Iterator[None]:
    """Give ops built inside the location, order and metadata of the op that they stand for."""
    with _changed(origin=op, location=op.location, metadata=op.metadata or None):
        yield
