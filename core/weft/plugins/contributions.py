"""Checks what plugins register: the right kind of class, complete."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from weft.errors import PluginError
from weft.plugins.entrypoints import BACKENDS, COMMUNICATORS, FRONTENDS, GROUPS, OPS, PASSES

T = TypeVar("T", bound=type[Any])


_bases: dict[str, type[Any]] = {}


def base_of(group: str) -> Callable[[T], T]:
    """Return a decorator for the class that what plugins register in a group must inherit from."""

    def remembered(kind: T) -> T:
        _bases[group] = kind
        return kind

    return remembered


def base_class(group: str) -> type[Any]:
    """Return the class that what plugins register in a group must inherit from."""
    return _bases[group]


def require_name(title: str, group: str, name: object) -> None:
    """Raise PluginError for what is not a name."""
    if not isinstance(name, str) or not name:
        kind = GROUPS[group]
        raise PluginError(f"{title} registers a {kind} under {name!r}, which is not a name.")


def checked(title: str, group: str, name: str, value: Any) -> Any:
    """Return the object that a plugin registers; raises PluginError if its group cannot hold it.

    A function that is to return a backend is taken as it is: see `checked_backend`. ``title`` is
    how messages call the plugin.
    """
    if group == BACKENDS:
        is_factory = callable(value) and not isinstance(value, type)
        return value if is_factory else checked_backend(title, name, value)
    if group in (PASSES, COMMUNICATORS):
        return _checked_class(title, group, name, value)
    if group == FRONTENDS:
        return _checked_importer(title, name, value)
    return value


def checked_backend(title: str, name: str, value: Any) -> Any:
    """Return a backend's class; raises PluginError for anything else, and an abstract one."""
    return _checked_class(title, BACKENDS, name, value)


def checked_op(title: str, value: Any) -> Any:
    """Return a class of ops; raises PluginError for anything else."""
    if isinstance(value, type) and issubclass(value, base_class(OPS)):
        return value
    raise PluginError(f"{title} registers {value!r} as an op, which is not a subclass of Op.")


def _checked_class(title: str, group: str, name: str, value: Any) -> Any:
    kind, base = GROUPS[group], base_class(group)
    if not (isinstance(value, type) and issubclass(value, base)):
        raise PluginError(
            f"{title} registers {value!r} as the {kind} {name!r}, which is not a subclass of "
            f"{base.__name__}."
        )
    if inspect.isabstract(value):
        missing = ", ".join(sorted(getattr(value, "__abstractmethods__", ())))
        raise PluginError(
            f"{title} registers {value.__name__} as the {kind} {name!r}, and the class "
            f"{value.__name__} does not define {missing}."
        )
    return value


def _checked_importer(title: str, name: str, value: Any) -> Any:
    suffixes = getattr(value, "suffixes", None)
    are_suffixes = isinstance(suffixes, tuple | list) and all(
        isinstance(each, str) and each.startswith(".") and each == each.lower() for each in suffixes
    )
    if isinstance(value, type) or not are_suffixes or not callable(getattr(value, "read", None)):
        raise PluginError(
            f"{title} registers {value!r} as the frontend {name!r}, which is not an importer: an "
            'object with `suffixes`, a tuple such as (".gem",), and `read(path, constants)`.'
        )
    return value
