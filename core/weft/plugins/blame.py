"""Blame: attributes an error to the plugin whose code raised it.

Code of a plugin is called under `blaming`. What it raises becomes a `PluginError` that says which
plugin of which distribution failed, what it was doing, and how to switch it off. An error that weft
defines keeps its class, since callers may catch it, and its message gets the same words.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from functools import wraps
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, TypeVar, cast

from weft.errors import PluginError, WeftError
from weft.plugins.contributions import base_class
from weft.plugins.entrypoints import OPS, Entry, survey, switching_off

R = TypeVar("R", bound=Callable[..., Any])

Doing = str | Callable[[], str]
"""What the code is called for; a function where it costs something to say."""


class Origin(NamedTuple):
    """Whose code something is, as messages say it.

    Attributes
    ----------
    title
        The plugin and its distribution.
    remedy
        A sentence that says how to do without it.
    is_own
        Whether weft itself ships it.
    """

    title: str
    remedy: str
    is_own: bool = False


_origins: dict[int, tuple[object, Origin]] = {}
"""By identity, the origin of each value that a plugin registered; the value is held with it."""
_codes: dict[tuple[str, str], Origin] = {}
"""The same for functions, by module and qualified name, which is what a frame knows."""
_acting: ContextVar[Origin | None] = ContextVar("weft_acting_plugin", default=None)


def origin_of_entry(entry: Entry) -> Origin:
    """Return the origin of what an entry point names."""
    return Origin(str(entry), f"{switching_off(entry)} leaves it out.", entry.is_own)


def claim(value: object, origin: Origin) -> None:
    """Remember where a registered value comes from: a class, a function or an importer."""
    _origins[id(value)] = value, origin
    code = getattr(value, "__code__", None)
    if isinstance(code, CodeType):
        _codes[getattr(value, "__module__", ""), code.co_qualname] = origin


def release(value: object) -> None:
    """Forget a registered value, which is held no longer."""
    _origins.pop(id(value), None)


def origin_of(value: object) -> Origin | None:
    """Return where a registered value comes from; None for one that no plugin registered."""
    known = _origins.get(id(value))
    return known[1] if known is not None else None


def acting() -> Origin | None:
    """Return the plugin whose code is running under `blaming`, the innermost; or None."""
    return _acting.get()


def said(error: BaseException) -> str:
    """Return the class and text of an error as one sentence."""
    return f"{type(error).__name__}: {str(error).strip() or 'no message'}".rstrip(".") + "."


class blaming(AbstractContextManager[None]):  # noqa: N801 - used as a function
    """Name the plugin whose code runs in this context in every error that leaves it.

    Errors of weft's own plugins stay as they are, and so do those of code that no plugin brought,
    unless code of a third party, called in turn, raised them.

    Parameters
    ----------
    origin
        The plugin that is called; None for code of the user's own.
    doing
        What it is called for: it follows the word "failed", as in "changing the pipeline".
    extends
        Whether an error that weft defines gets the name of the plugin too; not where such an error
        tells of the user's own mistakes.
    """

    def __init__(self, origin: Origin | None, doing: Doing, extends: bool = True) -> None:
        self.origin = origin
        self.doing = doing
        self.extends = extends

    def __enter__(self) -> None:
        self.token: Token[Origin | None] = _acting.set(self.origin)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _acting.reset(self.token)
        if isinstance(error, Exception | SystemExit) and not hasattr(error, "__weft_blamed__"):
            self._explain(error)

    def _explain(self, error: Exception | SystemExit) -> None:
        """Raise the error that names the plugin, or add the name to the one there is."""
        frames = [frame for frame, _ in walk_tb(error.__traceback__)][::-1]  # innermost first
        origin = _third_party_of(frames, self.origin) or self.origin
        if origin is None or origin.is_own or isinstance(error, MemoryError):
            return
        if isinstance(error, WeftError):
            if self.extends:
                words = f"{origin.title} raised this {self._doing(frames)}. {origin.remedy}"
                _extend(error, f"\n  {words}")
            return
        problem = f"{origin.title} failed {self._doing(frames)}: {said(error)} {origin.remedy}"
        blamed = PluginError(problem)
        blamed.__weft_blamed__ = True  # type: ignore[attr-defined]
        for note in getattr(error, "__notes__", ()):
            blamed.add_note(note)
        raise blamed from error

    def _doing(self, frames: list[FrameType]) -> str:
        doing = self.doing if isinstance(self.doing, str) else self.doing()
        op = next((op for op in map(_op_of, frames) if op is not None), None)
        if op is None or op.file_info in doing:
            return doing
        return f"{doing}, at {type(op).__name__} {op.name}, {op.file_info}"


def guarded(run: R, origin: Origin | None, doing: Doing) -> R:
    """Return a function that does what `run` does and names the plugin in what it raises.

    That is `run` itself, which costs nothing, unless it is the code of a third party.
    """
    if origin is None or origin.is_own:
        return run

    @wraps(run)
    def named(*args: Any) -> Any:
        try:
            return run(*args)
        except Exception as error:
            with blaming(origin, doing, extends=False):
                raise error

    return cast(R, named)


def _extend(error: WeftError, words: str) -> None:
    error.problem += words
    error.args = (f"{error}{words}", *error.args[1:])
    error.__weft_blamed__ = True  # type: ignore[attr-defined]


def _third_party_of(frames: list[FrameType], called: Origin | None) -> Origin | None:
    """Return the plugin, not weft's own, whose code is the innermost in some frames."""
    origins = (_origin_of_frame(frame, called) for frame in frames)
    return next((origin for origin in origins if origin is not None and not origin.is_own), None)


def _origin_of_frame(frame: FrameType, called: Origin | None) -> Origin | None:
    module = frame.f_globals.get("__name__", "")
    claimed = _codes.get((module, frame.f_code.co_qualname))
    if claimed is not None:
        return claimed
    entries = survey().packages.get(module.partition(".")[0])
    if not entries:
        return None
    origins = list(map(origin_of_entry, entries))
    if called in origins:
        return called
    op = _op_of(frame)
    if op is not None and type(op).__module__ == module:
        remedy = "It is an op of the program, and only its authors can mend it."
        return Origin(f"{type(op).__name__} of {entries[0].owner}", remedy, entries[0].is_own)
    return origins[0]


def _op_of(frame: FrameType) -> Any:
    """Return the op that a function was called for, which is among its first two arguments."""
    names = frame.f_code.co_varnames[: min(2, frame.f_code.co_argcount)]
    given = [frame.f_locals.get(name) for name in names]
    return next((value for value in given if isinstance(value, base_class(OPS))), None)
