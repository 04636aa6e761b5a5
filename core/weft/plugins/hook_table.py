"""The hook table: plugins that implement hooks, checked when added, called one by one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pluggy

from weft.errors import PluginError
from weft.plugins import hookspecs
from weft.plugins.blame import Origin, blaming
from weft.plugins.contributions import checked_op, require_name
from weft.plugins.entrypoints import BACKENDS, COMMUNICATORS, FRONTENDS, PASSES

NAMING_HOOKS = {
    BACKENDS: "weft_register_backends",
    PASSES: "weft_register_passes",
    FRONTENDS: "weft_register_frontends",
    COMMUNICATORS: "weft_register_communicators",
}
"""The groups whose plugins register things under names, each with the hook that does it."""


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
            if isinstance(error, pluggy.PluginValidationError):
                raise PluginError(f"{title} does not fit the hooks of weft: {error}") from error
            raise

    def remove(self, plugin: object) -> None:
        """Let a plugin take part no more."""
        self._manager.unregister(plugin)

    def implementations(self, hook: str, plugin: object = None) -> list[pluggy.HookImpl]:
        """Return the implementations of a hook in the order of calling: all, or one plugin's."""
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        found = reversed(caller.get_hookimpls())
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
            require_name(title, group, name)
            if name in offers:
                raise PluginError(f"{title} registers the name {name!r} twice in {group}.")
            offers[name] = offer

        for hook in self.implementations(NAMING_HOOKS[group], plugin):
            _call(hook, register=take)
        return offers

    def registered_ops(self, plugin: object, title: str) -> tuple[type[Any], ...]:
        """Return the op classes that a plugin registers; raises PluginError for other values."""
        ops: list[type[Any]] = []
        for hook in self.implementations("weft_register_ops", plugin):
            _call(hook, register=lambda kind: ops.append(checked_op(title, kind)))
        return tuple(ops)

    def _require_no_wrappers(self, plugin: object, title: str) -> None:
        for caller in self._manager.get_hookcallers(plugin) or ():
            for hook in caller.get_hookimpls():
                if hook.plugin is plugin and (hook.wrapper or hook.hookwrapper):
                    raise PluginError(f"{title} wraps {caller.name}; no hook of weft is wrapped.")


def call(hook: pluggy.HookImpl, origin: Origin, **arguments: Any) -> Any:
    """Call one implementation of a hook.

    Raises
    ------
    PluginError
        The implementation raised; the message names the plugin and the cause is attached.
    """
    with blaming(origin, f"in {hook.function.__name__}{_about(arguments)}"):
        return _call(hook, **arguments)


def _about(arguments: Mapping[str, Any]) -> str:
    """Return which computation or backend a hook is called for, where it is for one."""
    if "computation" in arguments:
        return f" for {getattr(arguments['computation'], 'name', 'a computation')}"
    backend = arguments.get("backend") or getattr(arguments.get("target"), "name", "")
    return f" for backend {backend}" if backend else ""


def _call(hook: pluggy.HookImpl, **arguments: Any) -> Any:
    return hook.function(*(arguments[name] for name in hook.argnames))


def _require_api(plugin: object, title: str) -> None:
    module = sys.modules.get(getattr(plugin, "__module__", ""))
    stated = getattr(plugin, "WEFT_API", getattr(module, "WEFT_API", hookspecs.API_VERSION))
    if str(stated).partition(".")[0] != hookspecs.API_VERSION.partition(".")[0]:
        raise PluginError(
            f"{title} is written for version {stated} of weft's plugin interface and this weft has "
            f"version {hookspecs.API_VERSION}: install a release of the plugin made for it."
        )
