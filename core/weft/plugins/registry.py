"""The registry: loads plugins on demand, keeps their status, and calls hooks.

A plugin asked for by name either loads or raises why it cannot. Plugins that nobody names, which
are those of ``weft.ops``, ``weft.rules`` and ``weft.hooks``, are skipped with one warning each
when they cannot be loaded.
"""

from __future__ import annotations

import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import pluggy

from weft.errors import PluginError, UnknownPluginError
from weft.plugins.blame import Origin, blaming, claim, origin_of_entry, release, said
from weft.plugins.contributions import (
    NAMING_HOOKS,
    HookTable,
    base_class,
    checked,
    resolved,
    run,
)
from weft.plugins.entrypoints import (
    BACKENDS,
    COMMUNICATORS,
    DEFAULT_PIPELINE,
    FRONTENDS,
    GROUPS,
    HOOKS,
    OPS,
    PASSES,
    RULES,
    Entry,
    Key,
    PluginWarning,
    choosing,
    described,
    disabled_message,
    discover,
    duplicate_message,
    is_disabled,
    owners,
    preferred,
    remedy,
    switching_off,
)
from weft.support import source
from weft.support.locks import renewed
from weft.support.spelling import BACKENDS as NAMES_ELSEWHERE
from weft.support.spelling import did_you_mean

__all__ = [
    "BACKENDS", "COMMUNICATORS", "FRONTENDS", "GROUPS", "HOOKS", "OPS", "PASSES", "RULES",
    "PluginRecord", "PluginWarning", "address_of", "any_by_hand", "call_hooks", "change_pipeline",
    "changes_pipeline", "load", "load_hooks", "load_ops", "load_rules", "loading", "names",
    "records", "register", "require", "revision", "unregister",
]  # fmt: skip

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
    seconds: float = 0.0
    """How long importing it took, where that has been done."""


class _Outcome(NamedTuple):
    """What came of loading a plugin: its offer, or why there is none and what raised that."""

    seconds: float
    plugin: object = None
    offer: Any = None
    failure: str | None = None
    cause: BaseException | None = None
    traceback: str = ""


class _ByHand(NamedTuple):
    plugin: object
    label: str
    offers: dict[str, dict[str, Any]]
    ops: tuple[type[Any], ...]

    @property
    def origin(self) -> Origin:
        title = f"Plugin {self.label!r}, registered by hand,"
        return Origin(title, "weft.plugins.unregister takes it back.")

    def objects(self) -> Iterator[Any]:
        """Yield all that it registers under names."""
        for offered in self.offers.values():
            yield from offered.values()


@dataclass
class _Registry:
    """All that is remembered between calls; the process has one."""

    lock: threading.RLock = field(default_factory=lambda: renewed(threading.RLock()))
    hooks: HookTable = field(default_factory=HookTable)
    outcomes: dict[Entry, _Outcome] = field(default_factory=dict)
    entries: dict[int, list[Entry]] = field(default_factory=dict)
    """By the identity of a plugin, the entries that name it; the one it was loaded for first."""
    warned: set[Key] = field(default_factory=set)
    unnamed: dict[Key, list[_Outcome]] = field(default_factory=dict)
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
    """Return the record of every plugin, or of those in one group, without importing any.

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


def load(group: str, name: str, *, is_default: bool = False) -> Any:
    """Return the backend class, pass class or importer of that name; import its plugin first.

    For the other groups: the classes that a plugin of ``weft.ops`` registers, or the plugin itself.
    What is needed as a default comes from weft itself if several distributions bring the name, with
    one warning, unless ``WEFT_PREFER`` chooses.

    Raises
    ------
    UnknownPluginError
        Nothing of that name is installed; the message lists what is.
    PluginError
        The plugin is disabled, is there twice, or cannot be loaded; the cause is attached.
    """
    _require_group(group)
    with _registry.lock:
        hand = _by_hand(group, name)
        if hand is not None:
            return _resolved_by_hand(group, name, hand)
        outcome = _outcome(only_entry(group, name, is_default))
    if outcome.failure is not None:
        raise PluginError(outcome.failure) from outcome.cause
    return outcome.offer


def require(group: str, name: str, *, is_default: bool = False) -> None:
    """Raise what `load` would for a name that cannot be asked for, without importing a plugin.

    Raises
    ------
    UnknownPluginError
        Nothing of that name is installed; the message lists what is.
    PluginError
        The plugin is disabled, or is there twice.
    """
    required(group, name, is_default=is_default)


def required(group: str, name: str, *, is_default: bool = False) -> str | None:
    """Return the distribution that a name is loaded from; raises like `require`."""
    _require_group(group)
    if _by_hand(group, name) is not None:
        return None
    return only_entry(group, name, is_default).distribution


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
        # One module may stand behind several entries; it has its say once.
        found: list[_Outcome | _ByHand] = [*_load_unnamed(RULES, backend), *_registry.by_hand]
        for plugin in {id(each.plugin): each.plugin for each in found}.values():
            for hook in _registry.hooks.implementations("weft_register_rules", plugin):
                _call(hook, _origin(plugin, RULES, backend), backend=backend, rules=rules)


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
        hooks.add(plugin, label, title)
        try:
            offers = {group: hooks.registered_names(plugin, group, title) for group in NAMING_HOOKS}
            for group, offered in offers.items():
                _require_free_names(title, group, offered)
                for each, offer in offered.items():
                    checked(title, group, each, offer)
            hand = _ByHand(plugin, label, offers, hooks.registered_ops(plugin, title))
        except BaseException:
            hooks.remove(plugin)
            raise
        for offer in hand.objects():
            claim(offer, hand.origin)
        _registry.by_hand.append(hand)
        _registry.revision = object()


def unregister(plugin: object) -> None:
    """Take back a plugin that `register` added.

    Raises
    ------
    PluginError
        The plugin was not registered by hand.
    """
    with _registry.lock:
        hand = next((hand for hand in _registry.by_hand if hand.plugin is plugin), None)
        if hand is None:
            raise PluginError(f"{plugin!r} was not registered by hand: there is nothing to undo.")
        for offer in hand.objects():
            release(offer)
        _registry.by_hand = [each for each in _registry.by_hand if each is not hand]
        _registry.revision = object()
        _registry.hooks.remove(plugin)


def address_of(group: str, name: str, *, is_default: bool = False) -> str:
    """Return the module and object that a plugin's entry point names, without importing it.

    Raises UnknownPluginError or PluginError where `load` would, for a name that nothing or more
    than one plugin has, and for one that is disabled.
    """
    _require_group(group)
    return only_entry(group, name, is_default).value


def changes_pipeline() -> bool:
    """Whether a plugin loaded so far changes pipelines; loads those of ``weft.hooks`` first."""
    load_hooks()
    return bool(_enabled("weft_change_pipeline"))


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
    answers = [_call(each, _origin(each.plugin, HOOKS), **arguments) for each in _enabled(hook)]
    return [answer for answer in answers if answer is not None]


def change_pipeline(pipeline: Sequence[Any], target: Any) -> list[Any]:
    """Return the pipeline as plugins change it, each starting from what the one before returned.

    A disabled pass that a plugin puts in is left out.

    Raises
    ------
    PluginError
        A plugin fails, or returns something else than a list of names of passes and passes.
    """
    load_hooks()
    changed = list(pipeline)
    for hook in _enabled("weft_change_pipeline"):
        origin = _origin(hook.plugin, HOOKS)
        answer = _call(hook, origin, pipeline=list(changed), target=target)
        if answer is not None:
            changed = _checked_pipeline(answer, changed, origin)
    return changed


def _checked_pipeline(answer: Any, before: list[Any], origin: Origin) -> list[Any]:
    """Return the pipeline that a plugin returned, which may bring passes of other plugins."""
    if not isinstance(answer, list):
        raise PluginError(
            f"{origin.title} returned {answer!r} from weft_change_pipeline; it must return a list "
            f"of passes, or None. {origin.remedy}"
        )
    kept: list[Any] = []
    for each in answer:
        if any(each is known for known in before) or isinstance(each, base_class(PASSES)):
            kept.append(each)
        elif not isinstance(each, str):
            raise PluginError(
                f"{origin.title} put {each!r} into the pipeline, which is neither the name of a "
                f"pass nor an object of a GraphPass class. {origin.remedy}"
            )
        elif not (is_disabled(PASSES, each) and (PASSES, each) in discover()):
            try:
                require(PASSES, each, is_default=each in DEFAULT_PIPELINE)
            except PluginError as error:
                raise PluginError(
                    f"{origin.title} put {each!r} into the pipeline. {error} {origin.remedy}"
                ) from error
            kept.append(each)
    return kept


def _call(hook: pluggy.HookImpl, origin: Origin, **arguments: Any) -> Any:
    """Call one implementation of a hook; a PluginError says whose it is if it raises."""
    about = ""
    if "computation" in arguments:
        about = f" for {getattr(arguments['computation'], 'name', 'a computation')}"
    elif backend := arguments.get("backend") or getattr(arguments.get("target"), "name", ""):
        about = f" for backend {backend}"
    with blaming(origin, f"in {hook.function.__name__}{about}"):
        return run(hook, **arguments)


def _enabled(hook: str) -> list[pluggy.HookImpl]:
    """Return the implementations of a hook that is called of all, but those of disabled plugins."""
    found = _registry.hooks.implementations(hook)
    return [each for each in found if not _is_switched_off(each.plugin)]


def _is_switched_off(plugin: object) -> bool:
    """Whether the hooks of a plugin that was loaded, maybe for another group, are disabled."""
    entries = _registry.entries.get(id(plugin), [])
    hooks = [entry for entry in entries if entry.group == HOOKS]
    off = [is_disabled(HOOKS, entry.name) for entry in hooks or entries]
    return all(off) if hooks else any(off)


def _origin(plugin: object, group: str, backend: str = "") -> Origin:
    """Return whose code the hooks of a plugin are, as it stands in a group if it does."""
    hand = next((hand for hand in _registry.by_hand if hand.plugin is plugin), None)
    if hand is not None:
        return hand.origin
    entries = _registry.entries[id(plugin)]
    of_group = [entry for entry in entries if entry.group == group]
    if group == RULES:
        of_group = [entry for entry in of_group if entry.name.rpartition(".")[0] == backend]
    if of_group or group == RULES:
        return origin_of_entry((of_group or entries)[0])
    entry = entries[0]
    setting = switching_off(entry._replace(group=group))
    return Origin(str(entry), f"{setting} leaves its hooks out.", entry.is_own)


def _record(entry: Entry, same_name: Sequence[Entry]) -> PluginRecord:
    state: State = "installed"
    reason = trace = ""
    seconds = 0.0
    outcome = _registry.outcomes.get(entry)
    if outcome is not None:
        state = "loaded" if outcome.failure is None else "failed"
        reason, trace, seconds = outcome.failure or "", outcome.traceback, outcome.seconds
    elif is_disabled(*entry.key):
        state, reason = "disabled", disabled_message(*entry.key)
    elif len(same_name) > 1:
        try:
            chosen = only_entry(*entry.key)
            reason = "" if chosen == entry else f"{choosing(chosen)} chooses another one."
        except PluginError as error:
            reason = str(error)
        state = "duplicate" if reason else "installed"
    owner = (entry.distribution, entry.version)
    return PluginRecord(*entry.key, entry.value, *owner, state, reason, trace, seconds)


def _records_by_hand(hand: _ByHand) -> Iterator[PluginRecord]:
    keys = [(group, name) for group, offered in hand.offers.items() for name in offered]
    for group, name in keys or [(OPS if hand.ops else HOOKS, hand.label)]:
        yield PluginRecord(group, name, hand.label, None, None, "loaded", "registered by hand")


def only_entry(group: str, name: str, is_default: bool = False) -> Entry:
    """Return the entry of a name; as a default it is weft's own where several have the name.

    Raises UnknownPluginError or PluginError where `load` would.
    """
    entries = discover().get((group, name))
    if entries is None:
        raise UnknownPluginError(_unknown_message(group, name))
    if is_disabled(group, name):
        raise PluginError(disabled_message(group, name))
    found = preferred(entries)
    if len(found) == 1:
        return found[0]
    own = [entry for entry in found if entry.is_own]
    if not (is_default and len(own) == 1):
        raise PluginError(duplicate_message(found))
    _warn_of_clash(own[0], [entry for entry in found if not entry.is_own])
    return own[0]


def _warn_of_clash(own: Entry, others: Sequence[Entry]) -> None:
    """Say once that a default is weft's own although other distributions bring the name too."""
    if own.key in _registry.warned:
        return
    _registry.warned.add(own.key)
    settings = " and ".join(map(choosing, [own, *others]))
    warnings.warn(
        f"{described(*own.key)} comes from weft itself and also from {owners(others)}; the default "
        f"is that of weft. {settings} choose one.",
        PluginWarning,
        stacklevel=2,
    )


def _outcome(entry: Entry) -> _Outcome:
    known = _registry.outcomes.get(entry)
    if known is None:
        known = _registry.outcomes[entry] = _load_entry(entry)
    return known


def _load_entry(entry: Entry) -> _Outcome:
    """Import a plugin and take its offer; one that calls `sys.exit` fails like any other."""
    start = time.perf_counter()
    try:
        plugin = entry.load()
        source.add_internal_package(entry.module.partition(".")[0])
        offer = _admitted(plugin, entry)
        return _Outcome(time.perf_counter() - start, plugin, offer)
    except (Exception, SystemExit) as error:
        failure, cause = str(error), error.__cause__
        if not isinstance(error, PluginError):
            failure = f"{entry} cannot be loaded: {said(error)}{remedy(error, entry)}"
            cause = error
        ended = _Outcome(time.perf_counter() - start, failure=failure, cause=cause)
        return ended._replace(traceback=traceback.format_exc())


def _admitted(plugin: object, entry: Entry) -> Any:
    """Give the plugin its place among the hooks, and return what it offers under its name."""
    # One module may stand behind several entry points.
    is_new = not _registry.hooks.holds(plugin)
    if is_new:
        _registry.hooks.add(plugin, ":".join(entry.key), str(entry))
        everything = (each for entries in discover().values() for each in entries)
        others = [each for each in everything if each.target == entry.target and each != entry]
        _registry.entries[id(plugin)] = [entry, *others]
    try:
        return _offer(plugin, entry)
    except BaseException:
        if is_new:
            _registry.hooks.remove(plugin)
        raise


def _offer(plugin: object, entry: Entry) -> Any:
    group, name = entry.key
    if group == OPS:
        return _registry.hooks.registered_ops(plugin, str(entry))
    if group not in NAMING_HOOKS:
        return plugin
    offers = _registry.hooks.registered_names(plugin, group, str(entry))
    if name not in offers:
        offered = ", ".join(map(repr, sorted(offers))) or "nothing"
        raise PluginError(
            f"{entry} is not what its entry point says: {NAMING_HOOKS[group]} of {entry.value!r} "
            f"registers {offered}, and it must register {name!r}."
        )
    offer = resolved(str(entry), group, name, offers[name])
    claim(offer, origin_of_entry(entry))
    return offer


def _by_hand(group: str, name: str) -> _ByHand | None:
    return next((hand for hand in _registry.by_hand if name in hand.offers.get(group, ())), None)


def _resolved_by_hand(group: str, name: str, hand: _ByHand) -> Any:
    title = f"{described(group, name)}, registered by hand,"
    try:
        offer = resolved(title, group, name, hand.offers[group][name])
    except PluginError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{title} cannot be loaded: {said(error)}") from error
    claim(offer, hand.origin)
    return offer


def _load_unnamed(group: str, backend: str = "") -> list[_Outcome]:
    """Load a group that nobody asks for by name, or its part for one backend, once."""
    with _registry.lock:
        loaded = _registry.unnamed.get((group, backend))
        if loaded is None:
            found = sorted(name for held, name in discover() if held == group)
            wanted = [name for name in found if not is_disabled(group, name)]
            if group == RULES:
                wanted = [name for name in wanted if name.rpartition(".")[0] == backend]
            attempts = map(partial(_outcome_or_warning, group), wanted)
            loaded = [attempt for attempt in attempts if attempt is not None]
            _registry.unnamed[group, backend] = loaded
        return loaded


def _outcome_or_warning(group: str, name: str) -> _Outcome | None:
    try:
        entry = only_entry(group, name)
        outcome = _outcome(entry)
        if outcome.failure is None:
            return outcome
        trouble = f"{outcome.failure} {switching_off(entry)} leaves it out without a word."
    except PluginError as error:
        trouble = str(error)
    warnings.warn(f"A plugin is skipped. {trouble}", PluginWarning, stacklevel=2)
    return None


def _require_group(group: str) -> None:
    if group not in GROUPS:
        there_are = ", ".join(GROUPS)
        raise UnknownPluginError(f"There is no plugin group {group!r}; there are {there_are}.")


def _require_free_names(title: str, group: str, offered: dict[str, Any]) -> None:
    for name in sorted(set(offered).intersection(names(group))):
        raise PluginError(
            f"{title} brings the {GROUPS[group]} {name!r}, and there is one of that name already: "
            "choose another name."
        )


def _unknown_message(group: str, name: str) -> str:
    installed = names(group)
    elsewhere = NAMES_ELSEWHERE.get(str(name).lower(), "") if group == BACKENDS else ""
    meant = did_you_mean(str(name), installed, elsewhere)
    listed = ", ".join(installed) or "none"
    return f"There is no {GROUPS[group]} named {name!r}.{meant} Installed: {listed}."
