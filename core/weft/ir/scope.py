"""Build contexts: effect scopes, metadata, recorders and pinned reads.

An effect scope is a token. Each state remembers, per scope, the op that wrote it last there; an op
that reads the state stores that write as the version it saw. The root scope is shared by all
threads; the scopes of `saved_user_deps` are private to the thread or task that entered them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from weft.errors import ArgumentError

if TYPE_CHECKING:
    from weft.ir.op import Op
    from weft.support.source import Location


class EffectScope:
    """A token that tells apart the writes made inside a region from those outside it.

    Attributes
    ----------
    entered
        How often each scope was entered in the region that has a number then.
    """

    __slots__ = ("__weakref__", "entered")

    def __init__(self) -> None:
        self.entered: dict[str, int] = {}


@dataclass(slots=True, eq=False)
class BuildContext:
    """What an op takes from its surroundings while it is constructed."""

    scope: EffectScope
    metadata: Mapping[str, Any] | None = None
    recorders: tuple[list[Op], ...] = ()
    observers: tuple[list[Op], ...] = ()
    """Those of the recorders that nothing is hidden from."""
    pinned: Mapping[Op, Op | None] | None = None
    location: Location | None = None
    origin: Op | None = None
    prefix: str = ""
    """What names of ops begin with."""
    adjoint_of: float | None = None
    """The order of the op whose gradient is built."""


ROOT = EffectScope()
_OUTSIDE = BuildContext(ROOT)
current: ContextVar[BuildContext] = ContextVar("weft_build_context", default=_OUTSIDE)


class _Entered:
    """Makes a context the current one; written as a class because passes enter one for each op."""

    __slots__ = ("context", "token")

    def __init__(self, context: BuildContext) -> None:
        self.context = context

    def __enter__(self) -> BuildContext:
        self.token = current.set(self.context)
        return self.context

    def __exit__(self, *error: object) -> None:
        current.reset(self.token)


def _changed(**changes: Any) -> _Entered:
    return _Entered(replace(current.get(), **changes))


@contextmanager
def saved_user_deps(scope: EffectScope | None = None) -> Iterator[EffectScope]:
    """Keep the writes made inside apart from those outside.

    Ops built inside see only writes made in the same scope; ops and computations made outside do
    not depend on them unless they name them. Yields the scope; passing it again re-enters it.
    Raises ArgumentError for anything else.

    Examples
    --------
    >>> count = weft.persistent_tensor((), "int32", 0)
    >>> with weft.saved_user_deps():
    ...     step = weft.assign(count, count + 1)
    >>> transformer = weft.make_transformer()
    >>> look, advance = transformer.computation(count), transformer.computation(step)
    >>> advance()
    >>> look(), look()
    (array(1, dtype=int32), array(1, dtype=int32))
    """
    if scope is not None and not isinstance(scope, EffectScope):
        raise ArgumentError(f"saved_user_deps takes what it yielded before, not {scope!r}")
    with _changed(scope=scope or EffectScope()) as context:
        yield context.scope


@contextmanager
def metadata(**entries: Any) -> Iterator[None]:
    """Give every op built inside these metadata entries; inner contexts win over outer ones.

    Examples
    --------
    >>> with weft.metadata(layer="encoder"):
    ...     y = weft.exp(1.0)
    >>> y.metadata
    {'layer': 'encoder'}
    """
    with _changed(metadata={**(current.get().metadata or {}), **entries}):
        yield


@contextmanager
def name_scope(name: str) -> Iterator[str]:
    """Put a name and a slash before the names of ops built or named inside; yields the prefix.

    Scopes nest: ``name_scope("encoder")`` around ``name_scope("layer1")`` makes
    ``encoder/layer1/weight`` of ``weight``. Raises ArgumentError unless the name is text.

    Examples
    --------
    >>> with weft.name_scope("encoder"), weft.name_scope("layer1"):
    ...     weight = weft.variable((3, 3), name="weight")
    >>> weight.name
    'encoder/layer1/weight'
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"name_scope takes a name, as in name_scope('layer1'), not {name!r}")
    with _changed(prefix=f"{current.get().prefix}{name}/") as context:
        yield context.prefix


def numbered_scope(name: str) -> AbstractContextManager[str]:
    """Return a `name_scope` whose name has a number if it was taken: ``Dense``, ``Dense_1``."""
    now = current.get()
    path = now.prefix + name
    number = now.scope.entered.get(path, 0)
    now.scope.entered[path] = number + 1
    return name_scope(f"{name}_{number}" if number else name)


@contextmanager
def captured_ops() -> Iterator[list[Op]]:
    """Yield a list of the ops built inside, and hide them from enclosing `captured_ops`."""
    recorder: list[Op] = []
    with _changed(recorders=(*current.get().observers, recorder)):
        yield recorder


@contextmanager
def all_ops() -> Iterator[list[Op]]:
    """Yield a list of the ops built inside, those in nested `captured_ops` too.

    Enclosing recorders see them as well, unless a `captured_ops` hides them.
    """
    recorder: list[Op] = []
    now = current.get()
    recorders, observers = (*now.recorders, recorder), (*now.observers, recorder)
    with _changed(recorders=recorders, observers=observers):
        yield recorder


def is_outside(op: Op) -> bool:
    """Whether an op was built before the innermost `captured_ops` or `all_ops` was entered."""
    recorders = current.get().recorders
    return bool(recorders) and not (recorders[-1] and op.serial >= recorders[-1][0].serial)


def record(ops: Iterable[Op]) -> None:
    """Add ops that were built where `captured_ops` hid them to the lists of enclosing recorders."""
    recorders = current.get().recorders
    for op in ops:
        for recorder in recorders:
            recorder.append(op)


def pinned(versions: Mapping[Any, Op | None]) -> _Entered:
    """Make ops built inside read these versions of states."""
    return _changed(pinned=dict(versions)) if versions else _Entered(current.get())


def differentiating(op: Op) -> _Entered:
    """Give ops built inside the location and scope of `op`, and the versions of state it read."""
    reads = zip(op.meaning.args, op.meaning.reads, strict=True)
    versions = {arg: read for arg, read in reads if arg.is_state}
    pins = {"pinned": versions} if versions else {}
    return _changed(location=op.location, prefix=op._prefix, adjoint_of=op.order, **pins)


def located(location: Location) -> _Entered:
    """Give ops built inside this source location."""
    return _changed(location=location)


def replacing(op: Op) -> _Entered:
    """Give ops built inside the location, scope, order and metadata of what they stand for."""
    entered = Replacements()
    entered.turn_to(op)
    return entered


class Replacements(_Entered):
    """Like `replacing`, for many ops in turn: entered once, it serves the op it was turned to."""

    def __init__(self) -> None:
        now = current.get()
        context = BuildContext(now.scope, None, now.recorders, now.observers, now.pinned)
        super().__init__(context)

    def turn_to(self, op: Op) -> None:
        """Give ops built from now on the location, scope, order and metadata of another op."""
        context = self.context
        context.location, context.origin = op.location, op
        context.prefix, context.adjoint_of = op._prefix, op.adjoint_of
        context.metadata = op._metadata or None
