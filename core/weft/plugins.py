"""Loads a plugin when it is asked for, remembers what came of it, and calls hooks.

A plugin asked for by name either loads or raises why it cannot. Plugins that nobody names, which
are those of ``weft.ops``, ``weft.rules`` and ``weft.hooks``, are skipped with one warning each
when they cannot be loaded.
"""

from __future__ import annotations

import difflib
import re
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from weft import hookspecs
from weft.entrypoints import (
    BACKENDS,
    FRONTENDS,
    GROUPS,
    HOOKS,
    OPS,
    PASSES,
    RULES,
    Entry,
    Key,
    PluginWarning,
    described,
    disabled_message,
    discover,
    duplicate_message,
    is_disabled,
    remedy,
)
from weft.errors import PluginError, UnknownPluginError
from weft.hooktable import NAMING_HOOKS, HookTable, call, said

__all__ = [
    "BACKENDS",
    "FRONTENDS",
    "GROUPS",
    "HOOKS",
    "OPS",
    "PASSES",
    "RULES",
    "BackendStatus",
    "PluginRecord",
    "PluginWarning",
    "Step",
    "address_of",
    "any_by_hand",
    "backend_status",
    "call_hooks",
    "change_pipeline",
    "changes_pipeline",
    "load",
    "load_hooks",
    "load_ops",
    "load_rules",
    "loading",
    "names",
    "records",
    "register",
    "revision",
    "unregister",
]

State = Literal["installed", "loaded", "failed", "disabled", "duplicate"]


@dataclass(frozen=True)
class PluginRecord:
    """What is known of one plugin; one that was registered by hand has no distribution."""

    group: str
    name: str
    value: str
    distribution: str | None
    version: str | None
    state: State
    reason: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Step:
    """Whether a backend got to this point, and the reason for that."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class BackendStatus:
    """How far a backend gets: it is installed, can be imported, has a device, is usable."""

    name: str
    distribution: str | None
    installed: Step
    importable: Step
    device: Step
    usable: Step


@dataclass(frozen=True)
class _Loaded:
    plugin: object
    offer: Any


@dataclass(frozen=True)
class _Failed:
    message: str
    cause: BaseException | None
    traceback: str


@dataclass(frozen=True)
class _ByHand:
    plugin: object
    label: str
    offers: dict[str, dict[str, Any]]
    ops: tuple[type[Any], ...]


@dataclass
class _Registry:
    """All that is remembered between calls; the process has one."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    hooks: HookTable = field(default_factory=HookTable)
    outcomes: dict[Key, _Loaded | _Failed] = field(default_factory=dict)
    unnamed: dict[Key, list[_Loaded]] = field(default_factory=dict)
    by_hand: list[_ByHand] = field(default_factory=list)
    revision: object = field(default_factory=object)


_registry = _Registry()


def names(group: str) -> list[str]:
    """Return the sorted names that can be asked for in a group, without importing any plugin.

    Raises
    ------
    UnknownPluginError
        There is no such group.
    """
    _require_group(group)
    with _registry.lock:
        found = {name for held, name in discover() if held == group and not is_disabled(held, name)}
        return sorted(found.union(*(hand.offers.get(group, ()) for hand in _registry.by_hand)))


def records(group: str | None = None) -> list[PluginRecord]:
    """Return what is known of every plugin, or of those in one group, without importing any.

    Raises
    ------
    UnknownPluginError
        There is no such group.
    """
    groups = list(GROUPS) if group is None else [group]
    _require_group(groups[0])
    with _registry.lock:
        listed = [_record(entry, same) for same in discover().values() for entry in same]
        listed += [record for hand in _registry.by_hand for record in _records_by_hand(hand)]
    kept = [record for record in listed if record.group in groups]
    return sorted(kept, key=lambda record: (groups.index(record.group), record.name))


def load(group: str, name: str) -> Any:
    """Return the backend class, pass class or importer of that name; import its plugin first.

    For the other groups: the classes that a plugin of ``weft.ops`` registers, or the plugin itself.

    Raises
    ------
    UnknownPluginError
        Nothing of that name is installed; the message lists what is.
    PluginError
        The plugin is disabled, is there twice, or cannot be loaded; the cause is attached.
    """
    _require_group(group)
    with _registry.lock:
        for hand in _registry.by_hand:
            if name in hand.offers.get(group, ()):
                return _resolved_by_hand(group, name, hand)
        outcome = _outcome(group, name)
    if isinstance(outcome, _Failed):
        raise PluginError(outcome.message) from outcome.cause
    return outcome.offer


def load_hooks() -> None:
    """Load the plugins of ``weft.hooks``, the first time this is called."""
    _load_unnamed(HOOKS)


def load_ops() -> tuple[type[Any], ...]:
    """Return every op class that plugins register; load the plugins of ``weft.ops`` first."""
    with _registry.lock:
        offers = [loaded.offer for loaded in _load_unnamed(OPS)]
        offers += [hand.ops for hand in _registry.by_hand]
    return tuple(dict.fromkeys(op_class for offer in offers for op_class in offer))


def load_rules(backend: str, rules: Any) -> None:
    """Let plugins add to ``rules``, the rule table of a backend: the installed, then those by hand.

    Raises
    ------
    PluginError
        A plugin was loaded but fails as it adds its rules.
    """
    with _registry.lock:
        plugins = [loaded.plugin for loaded in _load_unnamed(RULES, backend)]
        plugins += [hand.plugin for hand in _registry.by_hand]
        for plugin in plugins:
            for hook in _registry.hooks.implementations("weft_register_rules", plugin):
                call(hook, backend=backend, rules=rules)


def register(plugin: object, name: str | None = None) -> None:
    """Add a module or object that carries hook implementations, as scripts and tests do.

    What it registers can be asked for by name at once. ``name`` stands for the plugin in messages.

    Raises
    ------
    PluginError
        It is registered already, does not fit the hooks, or brings a name that is taken.
    """
    label = name or getattr(plugin, "__name__", None) or type(plugin).__name__
    title = f"Plugin {label!r}"
    with _registry.lock:
        hooks = _registry.hooks
        _take_part(plugin, label, title)
        try:
            offers = {group: hooks.registered_names(plugin, group) for group in NAMING_HOOKS}
            _require_free_names(offers, title)
            _registry.by_hand.append(_ByHand(plugin, label, offers, hooks.registered_ops(plugin)))
            _registry.revision = object()
        except BaseException:
            hooks.remove(plugin)
            raise


def unregister(plugin: object) -> None:
    """Take back a plugin that `register` added.

    Raises
    ------
    PluginError
        The plugin was not registered by hand.
    """
    with _registry.lock:
        kept = [hand for hand in _registry.by_hand if hand.plugin is not plugin]
        if len(kept) == len(_registry.by_hand):
            raise PluginError(f"{plugin!r} was not registered by hand: there is nothing to undo.")
        _registry.by_hand = kept
        _registry.revision = object()
        _registry.hooks.remove(plugin)


def address_of(group: str, name: str) -> str:
    """Return what the entry point of a plugin names, without importing it.

    Raises UnknownPluginError or PluginError where `load` would, for a name that nothing or more
    than one plugin has, and for one that is disabled.
    """
    _require_group(group)
    return _only_entry(group, name).value


def changes_pipeline() -> bool:
    """Whether a plugin loaded so far changes pipelines; loads those of ``weft.hooks`` first."""
    load_hooks()
    return bool(_registry.hooks.implementations("weft_change_pipeline"))


def loading() -> threading.RLock:
    """Return the lock that is held while plugins are loaded, added or taken back."""
    return _registry.lock


def any_by_hand() -> bool:
    """Whether a plugin was added by `register`."""
    return bool(_registry.by_hand)


def revision() -> object:
    """Return an object that is another one after each `register` and `unregister`."""
    return _registry.revision


def call_hooks(hook: str, **arguments: Any) -> list[Any]:
    """Call a hook of every plugin loaded so far and return the answers that are not None.

    Loads the plugins of ``weft.hooks`` first. The latest to be registered is called first.

    Raises
    ------
    PluginError
        A plugin fails in the hook; the message names the plugin and the cause is attached.
    """
    load_hooks()
    answers = [call(each, **arguments) for each in _registry.hooks.implementations(hook)]
    return [answer for answer in answers if answer is not None]


def change_pipeline(pipeline: Sequence[Any], target: Any) -> list[Any]:
    """Return the pipeline as plugins change it, each starting from what the one before returned.

    Raises
    ------
    PluginError
        A plugin fails, or returns something else than a list.
    """
    load_hooks()
    changed = list(pipeline)
    for hook in _registry.hooks.implementations("weft_change_pipeline"):
        answer = call(hook, pipeline=list(changed), target=target)
        if not isinstance(answer, list | None):
            raise PluginError(
                f"Plugin {hook.plugin_name!r} returned {answer!r} from weft_change_pipeline; "
                "it must return a list of passes, or None."
            )
        changed = changed if answer is None else list(answer)
    return changed


def backend_status(name: str) -> BackendStatus:
    """Return how far a backend gets: load it and ask it for a device; never raises."""
    owners = [record.distribution for record in records(BACKENDS) if record.name == name]
    distribution = " and ".join(owner for owner in owners if owner) or None
    try:
        backend = load(BACKENDS, name)
    except PluginError as error:
        steps = 0 if isinstance(error, UnknownPluginError) else 1
        return _status_after(steps, name, distribution, str(error))
    missing = sorted(getattr(backend, "__abstractmethods__", ()))
    if missing:
        reason = f"the class {backend.__name__} does not define {', '.join(missing)}"
        return _status_after(2, name, distribution, reason)
    try:
        device, reason = backend.probe()
    except Exception as error:
        device, reason = None, str(error) or type(error).__name__
    if device is None:
        return _status_after(2, name, distribution, reason)
    return _status_after(4, name, distribution, device)


def _status_after(steps: int, name: str, distribution: str | None, last: str) -> BackendStatus:
    """Return the status of a backend that got through some of the four steps."""
    reasons = ["it is installed", "it can be imported"][:steps]
    reasons += [last] * (4 - len(reasons))
    made = [Step(done < steps, reason) for done, reason in enumerate(reasons)]
    return BackendStatus(name, distribution, *made)


def _record(entry: Entry, same_name: Sequence[Entry]) -> PluginRecord:
    state: State = "installed"
    reason = trace = ""
    outcome = _registry.outcomes.get(entry.key)
    if isinstance(outcome, _Loaded):
        state = "loaded"
    elif isinstance(outcome, _Failed):
        state, reason, trace = "failed", outcome.message, outcome.traceback
    elif is_disabled(*entry.key):
        state, reason = "disabled", disabled_message(*entry.key)
    elif len(same_name) > 1:
        state, reason = "duplicate", duplicate_message(same_name)
    owner = (entry.distribution, entry.version)
    return PluginRecord(*entry.key, entry.value, *owner, state, reason, trace)


def _records_by_hand(hand: _ByHand) -> Iterator[PluginRecord]:
    keys = [(group, name) for group, offered in hand.offers.items() for name in offered]
    for group, name in keys or [(OPS if hand.ops else HOOKS, hand.label)]:
        yield PluginRecord(group, name, hand.label, None, None, "loaded", "registered by hand")


def _outcome(group: str, name: str) -> _Loaded | _Failed:
    known = _registry.outcomes.get((group, name))
    if known is None:
        known = _registry.outcomes[group, name] = _load_entry(_only_entry(group, name))
    return known


def _only_entry(group: str, name: str) -> Entry:
    entries = discover().get((group, name))
    if entries is None:
        raise UnknownPluginError(_unknown_message(group, name))
    if is_disabled(group, name):
        raise PluginError(disabled_message(group, name))
    if len(entries) > 1:
        raise PluginError(duplicate_message(entries))
    return entries[0]


def _load_entry(entry: Entry) -> _Loaded | _Failed:
    """Import a plugin and take its offer; one that calls `sys.exit` fails like any other."""
    try:
        plugin = entry.load()
        _count_as_internal(entry.module)
        return _Loaded(plugin, _admitted(plugin, entry))
    except PluginError as refusal:
        return _Failed(str(refusal), refusal.__cause__, traceback.format_exc())
    except (Exception, SystemExit) as error:
        message = f"{entry} cannot be loaded: {said(error)}{remedy(error, entry)}"
        return _Failed(message, error, traceback.format_exc())


def _count_as_internal(module: str) -> None:
    from weft.source import add_internal_package

    add_internal_package(module.partition(".")[0])


def _admitted(plugin: object, entry: Entry) -> Any:
    """Give the plugin its place among the hooks, and return what it offers under its name."""
    # One module may stand behind several entry points.
    is_new = not _registry.hooks.holds(plugin)
    if is_new:
        _take_part(plugin, ":".join(entry.key), str(entry))
    try:
        return _offer(plugin, entry)
    except BaseException:
        if is_new:
            _registry.hooks.remove(plugin)
        raise


def _take_part(plugin: object, name: str, title: str) -> None:
    """Let a plugin take part in the hooks; say which one a misspelt one is close to."""
    try:
        _registry.hooks.add(plugin, name, title)
    except PluginError as error:
        unknown = re.search(r"unknown hook '(\w+)'", str(error))
        close = difflib.get_close_matches(unknown[1], dir(hookspecs), n=1) if unknown else []
        if not close:
            raise
        raise PluginError(f"{error}. Did you mean {close[0]!r}?") from error.__cause__


def _offer(plugin: object, entry: Entry) -> Any:
    group, name = entry.key
    if group == OPS:
        return _registry.hooks.registered_ops(plugin)
    if group not in NAMING_HOOKS:
        return plugin
    offers = _registry.hooks.registered_names(plugin, group)
    if name not in offers:
        raise PluginError(_wrong_name_message(entry, offers))
    return _resolved(group, offers[name])


def _resolved(group: str, offer: Any) -> Any:
    return offer() if group == BACKENDS and not isinstance(offer, type) else offer


def _resolved_by_hand(group: str, name: str, hand: _ByHand) -> Any:
    try:
        return _resolved(group, hand.offers[group][name])
    except Exception as error:
        title = f"{described(group, name)}, registered by hand,"
        raise PluginError(f"{title} cannot be loaded: {said(error)}") from error


def _load_unnamed(group: str, backend: str = "") -> list[_Loaded]:
    """Load a group that nobody asks for by name, or its part for one backend, once."""
    with _registry.lock:
        loaded = _registry.unnamed.get((group, backend))
        if loaded is None:
            found = sorted(name for held, name in discover() if held == group)
            wanted = [name for name in found if not is_disabled(group, name)]
            if group == RULES:
                wanted = [name for name in wanted if name.rpartition(".")[0] == backend]
            attempts = [_loaded_or_warning(group, name) for name in wanted]
            loaded = [attempt for attempt in attempts if attempt]
            _registry.unnamed[group, backend] = loaded
        return loaded


def _loaded_or_warning(group: str, name: str) -> _Loaded | None:
    try:
        outcome = _outcome(group, name)
    except PluginError as error:
        trouble = str(error)
    else:
        if isinstance(outcome, _Loaded):
            return outcome
        trouble = outcome.message
    warnings.warn(f"A plugin is skipped. {trouble}", PluginWarning, stacklevel=2)
    return None


def _require_group(group: str) -> None:
    if group not in GROUPS:
        there_are = ", ".join(GROUPS)
        raise UnknownPluginError(f"There is no plugin group {group!r}; there are {there_are}.")


def _require_free_names(offers: dict[str, dict[str, Any]], title: str) -> None:
    for group, offered in offers.items():
        for name in sorted(set(offered).intersection(names(group))):
            raise PluginError(
                f"{title} brings the {GROUPS[group]} {name!r}, and there is one of that name "
                "already: choose another name."
            )


def _unknown_message(group: str, name: str) -> str:
    installed = names(group)
    close = difflib.get_close_matches(str(name), installed, n=1)
    meant = f" Did you mean {close[0]!r}?" if close else ""
    listed = ", ".join(installed) or "none"
    return f"There is no {GROUPS[group]} named {name!r}.{meant} Installed: {listed}."


def _wrong_name_message(entry: Entry, offers: dict[str, Any]) -> str:
    offered = ", ".join(map(repr, sorted(offers))) or "nothing"
    hook = NAMING_HOOKS[entry.group]
    return (
        f"{entry} is not what its entry point says: {hook} of {entry.value!r} registers "
        f"{offered}, and it must register {entry.name!r}."
    )
