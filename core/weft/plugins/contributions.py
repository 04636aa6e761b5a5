"""What plugins contribute, hooks and objects under names; what does not fit is refused at once."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pluggy

from weft.errors import PluginError
from weft.plugins import hookspecs
from weft.plugins.entrypoints import BACKENDS, COMMUNICATORS, FRONTENDS, GROUPS, OPS, PASSES
from weft.support.spelling import closest

T = TypeVar("T", bound=type[Any])

NAMING_HOOKS = {
    BACKENDS: "weft_register_backends",
    PASSES: "weft_register_passes",
    FRONTENDS: "weft_register_frontends",
    COMMUNICATORS: "weft_register_communicators",
}
"""The groups whose plugins register things under names, each with the hook that does it."""

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


def checked(title: str, group: str, name: str, value: Any) -> Any:
    """Return the object that a plugin registers; raises PluginError if its group cannot hold it.

    A function that is to return a backend is taken as it is: see `resolved`. ``title`` is how
    messages call the plugin.
    """
    if group == FRONTENDS:
        _check_importer(title, name, value)
    elif group != BACKENDS or isinstance(value, type) or not callable(value):
        _check_class(title, group, name, value)
    return value


def resolved(title: str, group: str, name: str, value: Any) -> Any:
    """Return the registered object; of a backend the class, which a function may import."""
    checked(title, group, name, value)
    if group == BACKENDS and not isinstance(value, type):
        value = value()
        _check_class(title, group, name, value)
    return value


def _check_class(title: str, group: str, name: str, value: Any) -> None:
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


def _check_importer(title: str, name: str, value: Any) -> None:
    suffixes = getattr(value, "suffixes", None)
    are_suffixes = isinstance(suffixes, tuple | list) and all(
        isinstance(each, str) and each.startswith(".") and each == each.lower() for each in suffixes
    )
    if isinstance(value, type) or not are_suffixes or not callable(getattr(value, "read", None)):
        raise PluginError(
            f"{title} registers {value!r} as the frontend {name!r}, which is not an importer: an "
            'object with `suffixes`, a tuple such as (".gem",), and `read(path, constants)`.'
        )


class HookTable:
    """A pluggy manager that refuses what does not fit instead of leaving it half registered."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager("weft")
        self._manager.add_hookspecs(hookspecs)

    def holds(self, plugin: object) -> bool:
        """Whether the plugin takes part."""
        return self._manager.is_registered(plugin)

    def add(self, plugin: object, name: str, title: str) -> None:
        """Let a plugin take part under a name that is its own; ``title`` is for messages.

        Raises
        ------
        PluginError
            The plugin or its name is there already, or the plugin does not fit the hooks.
        """
        if self.holds(plugin) or self._manager.has_plugin(name):
            raise PluginError(f"{title} is registered already; unregister it first.")
        _require_api(plugin, title)
        try:
            self._manager.register(plugin, name)
            self._manager.check_pending()
            self._require_no_wrappers(plugin, title)
        except BaseException as error:
            if self._manager.has_plugin(name):
                self.remove(plugin)
            if not isinstance(error, pluggy.PluginValidationError):
                raise
            problem = f"{title} does not fit the hooks of weft: {error}"
            _, _, unknown = str(error).partition("unknown hook '")
            close = closest(unknown.partition("'")[0], dir(hookspecs)) if unknown else ""
            meant = f". Did you mean {close!r}?" if close else ""
            raise PluginError(problem + meant) from error

    def remove(self, plugin: object) -> None:
        """Let a plugin take part no more."""
        self._manager.unregister(plugin)

    def implementations(self, hook: str, plugin: object = None) -> list[pluggy.HookImpl]:
        """Return the implementations of a hook in the order of calling: all, or one plugin's."""
        found = reversed(getattr(self._manager.hook, hook).get_hookimpls())
        return [each for each in found if plugin is None or each.plugin is plugin]

    def registered_names(self, plugin: object, group: str, title: str) -> dict[str, Any]:
        """Return the objects that a plugin registers in a group, by name.

        Raises
        ------
        PluginError
            The plugin registers one name twice, or what is not a name.
        """
        offers: dict[str, Any] = {}

        def take(name: str, offer: Any) -> None:
            if not isinstance(name, str) or not name:
                kind = GROUPS[group]
                raise PluginError(
                    f"{title} registers a {kind} under {name!r}, which is not a name."
                )
            if name in offers:
                raise PluginError(f"{title} registers the name {name!r} twice in {group}.")
            offers[name] = offer

        for hook in self.implementations(NAMING_HOOKS[group], plugin):
            run(hook, register=take)
        return offers

    def registered_ops(self, plugin: object, title: str) -> tuple[type[Any], ...]:
        """Return the op classes that a plugin registers; raises PluginError for other values."""
        ops: list[type[Any]] = []

        def take(kind: Any) -> None:
            if not (isinstance(kind, type) and issubclass(kind, base_class(OPS))):
                raise PluginError(
                    f"{title} registers {kind!r} as an op, which is not a subclass of Op."
                )
            ops.append(kind)

        for hook in self.implementations("weft_register_ops", plugin):
            run(hook, register=take)
        return tuple(ops)

    def _require_no_wrappers(self, plugin: object, title: str) -> None:
        for caller in self._manager.get_hookcallers(plugin) or ():
            for hook in caller.get_hookimpls():
                if hook.plugin is plugin and (hook.wrapper or hook.hookwrapper):
                    raise PluginError(f"{title} wraps {caller.name}; no hook of weft is wrapped.")


def run(hook: pluggy.HookImpl, **arguments: Any) -> Any:
    """Call one implementation of a hook with the arguments that it takes."""
    return hook.function(*(arguments[name] for name in hook.argnames))


def _require_api(plugin: object, title: str) -> None:
    module = sys.modules.get(getattr(plugin, "__module__", ""))
    stated = getattr(plugin, "WEFT_API", getattr(module, "WEFT_API", hookspecs.API_VERSION))
    if str(stated).partition(".")[0] != hookspecs.API_VERSION.partition(".")[0]:
        raise PluginError(
            f"{title} is written for version {stated} of weft's plugin interface and this weft has "
            f"version {hookspecs.API_VERSION}: install a release of the plugin made for it."
        )
