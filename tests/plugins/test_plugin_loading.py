from __future__ import annotations

import re
import sys
import threading
import types
from typing import Any

import pytest
from plugin_site import Site, backend

import weft
import weft_array_api
from weft import plugins
from weft.errors import ParseError, PluginError, UnknownPluginError
from weft.ir.rules import RuleTable
from weft.plugins.hookspecs import API_VERSION, hookimpl
from weft.plugins.registry import (
    BACKENDS,
    FRONTENDS,
    HOOKS,
    OPS,
    PASSES,
    PluginRecord,
    PluginWarning,
)
from weft.support import source

IMPORT_HOOKIMPL = "from weft.plugins.hookspecs import hookimpl\n"


def record_of(group: str, name: str) -> PluginRecord:
    (record,) = (record for record in plugins.records(group) if record.name == name)
    return record


def install_backend(site: Site, name: str, text: str, **more: Any) -> None:
    site.install(f"weft-{name}", f"[weft.backends]\n{name} = {name}_plugin\n", {}, **more)
    (site.root / f"weft-{name}" / f"{name}_plugin.py").write_text(text)


def test_a_backend_is_imported_once_when_it_is_asked_for(site: Site) -> None:
    site.install("weft-a", "[weft.backends]\none = one_engine\n", {"one_engine": backend("one")})
    first, second = plugins.load(BACKENDS, "one"), plugins.load(BACKENDS, "one")
    assert first is second is sys.modules["one_engine"].Engine
    assert site.imports("one_engine") == 1
    assert record_of(BACKENDS, "one").state == "loaded"


def test_threads_that_ask_at_once_import_once(site: Site) -> None:
    text = "import time\ntime.sleep(0.05)\n" + backend("shared")
    site.install("weft-a", "[weft.backends]\nshared = shared_engine\n", {"shared_engine": text})
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(plugins.load(BACKENDS, "shared")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert site.imports("shared_engine") == 1


def test_a_backend_may_be_registered_by_a_function_that_imports_it(site: Site) -> None:
    text = IMPORT_HOOKIMPL + (
        "def engine():\n    import heavy_engine\n    return heavy_engine.Engine\n"
        "@hookimpl\ndef weft_register_backends(register):\n    register('lazy', engine)\n"
    )
    modules = {
        "lazy_plugin": text,
        "heavy_engine": "from weft_array_api import ArrayTransformer\n"
        "class Engine(ArrayTransformer):\n    pass\n",
    }
    site.install("weft-lazy", "[weft.backends]\nlazy = lazy_plugin\n", modules)
    assert plugins.load(BACKENDS, "lazy").__module__ == "heavy_engine"


def test_one_module_may_stand_behind_several_entry_points(site: Site) -> None:
    text = IMPORT_HOOKIMPL + (
        "from weft import GraphPass\n"
        "class First(GraphPass):\n    def do_pass(self, graph, target): return graph\n"
        "class Second(First): pass\n"
        "class Reader:\n    suffixes = ('.gem',)\n"
        "    def read(self, path, constants): return path\n"
        "@hookimpl\ndef weft_register_passes(register):\n"
        "    register('first', First)\n    register('second', Second)\n"
        "@hookimpl\ndef weft_register_frontends(register):\n    register('reader', Reader())\n"
    )
    entry_points = "[weft.passes]\nfirst = many\nsecond = many\n[weft.frontends]\nreader = many\n"
    site.install("weft-many", entry_points, {"many": text})
    assert plugins.load(PASSES, "first").__name__ == "First"
    assert plugins.load(PASSES, "second").__name__ == "Second"
    assert plugins.load(FRONTENDS, "reader").read("here", None) == "here"
    assert site.imports("many") == 1


def test_an_entry_point_may_name_an_object_in_a_module(site: Site) -> None:
    text = IMPORT_HOOKIMPL + (
        "from weft import GraphPass\n"
        "class Plugin(GraphPass):\n    @hookimpl\n    def weft_register_passes(self, register):\n"
        "        register('inner', Plugin)\n"
        "    def do_pass(self, graph, target): return graph\nplugin = Plugin()\n"
    )
    site.install("weft-object", "[weft.passes]\ninner = holder:plugin\n", {"holder": text})
    assert plugins.load(PASSES, "inner").__name__ == "Plugin"


def test_the_root_package_of_a_plugin_counts_as_internal(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots: list[str] = []
    monkeypatch.setattr(source, "add_internal_package", roots.append)
    site.install("weft-a", "[weft.backends]\nin = in_engine\n", {"in_engine": backend("in")})
    plugins.load(BACKENDS, "in")
    assert roots == ["in_engine"]


BROKEN = {
    "raises": ("raise ValueError('no luck')\n", "ValueError: no luck."),
    "syntax": ("def (:\n", "SyntaxError"),
    "exits": ("import sys\nsys.exit('bye')\n", "SystemExit: bye."),
    "misnamed": (backend("other"), "registers 'other', and it must register 'misnamed'"),
    "empty": ("", "registers nothing, and it must register 'empty'"),
    "future": ("WEFT_API = '2.0'\n" + backend("future"), "written for version 2.0 of weft's"),
    "vague": ("WEFT_API = None\n" + backend("vague"), "written for version None of weft's"),
    "typo": (
        backend("typo") + "@hookimpl\ndef weft_register_pases(register): pass\n",
        "Did you mean 'weft_register_passes'?",
    ),
    "argument": (
        IMPORT_HOOKIMPL + "@hookimpl\ndef weft_register_backends(registry): pass\n",
        "registry",
    ),
    "wrapper": (
        backend("wrapper")
        + "@hookimpl(wrapper=True)\ndef weft_change_pipeline():\n    return (yield)\n",
        "wraps weft_change_pipeline",
    ),
    "twice": (
        backend("other") + "@hookimpl\ndef weft_register_backends(register):\n"
        "    register('twice', Engine)\n    register('twice', Engine)\n",
        "registers the name 'twice' twice",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_plugin_that_fails_is_a_record_and_raises_when_asked_for(site: Site, name: str) -> None:
    text, expected = BROKEN[name]
    install_backend(site, name, text)
    for _ in range(2):
        with pytest.raises(PluginError, match=re.escape(expected)):
            plugins.load(BACKENDS, name)
    record = record_of(BACKENDS, name)
    assert record.state == "failed"
    assert expected in record.reason
    assert "Traceback (most recent call last)" in record.traceback
    status = plugins.backend_status(name)
    assert status.installed
    assert not status.importable
    assert not status.device
    assert expected in status.usable.reason


def test_the_error_carries_its_cause_and_the_import_is_not_tried_again(site: Site) -> None:
    text = "raise RuntimeError('driver is too old')\n"
    site.install("weft-old", "[weft.backends]\nold = old_engine\n", {"old_engine": text})
    causes = []
    for _ in range(2):
        with pytest.raises(PluginError) as caught:
            plugins.load(BACKENDS, "old")
        causes.append(caught.value.__cause__)
    assert isinstance(causes[0], RuntimeError)
    assert causes[0] is causes[1]
    assert site.imports("old_engine") == 1


def test_a_plugin_that_failed_takes_part_in_no_hook(site: Site) -> None:
    install_backend(
        site,
        "partly",
        backend("other") + "@hookimpl\ndef weft_change_pipeline():\n    return ['stray']\n",
    )
    with pytest.raises(PluginError):
        plugins.load(BACKENDS, "partly")
    assert "stray" not in plugins.change_pipeline([], None)


@pytest.mark.parametrize("stated", [API_VERSION, "1.7", "1", 1])
def test_a_plugin_for_the_same_major_version_is_accepted(site: Site, stated: object) -> None:
    install_backend(site, "current", f"WEFT_API = {stated!r}\n" + backend("current"))
    assert plugins.load(BACKENDS, "current")


@pytest.mark.parametrize(
    ("missing", "extras", "command"),
    [
        ("a_missing_driver", ("gem",), "pip install 'weft-gem[gem]'"),
        ("a_missing_driver", ("Gem",), "pip install 'weft-gem[gem]'"),
        ("a_missing_driver", ("other",), "pip install weft-gem"),
        ("gem_plugin.inner", ("other",), "pip install weft-gem"),
    ],
)
def test_a_missing_module_comes_with_the_command_that_helps(
    site: Site, missing: str, extras: tuple[str, ...], command: str
) -> None:
    install_backend(site, "gem", f"import {missing}\n", extras=extras)
    with pytest.raises(PluginError) as caught:
        plugins.load(BACKENDS, "gem")
    assert missing in str(caught.value)
    assert str(caught.value).endswith(command)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_rules_find_their_extra_by_the_name_of_the_backend(site: Site) -> None:
    site.install(
        "weft-gem",
        "[weft.rules]\ngem.attention = gem_rules\n",
        {"gem_rules": "import a_missing_driver\n"},
        extras=("gem",),
    )
    with pytest.warns(PluginWarning, match=r"pip install 'weft-gem\[gem\]'"):
        plugins.load_rules("gem", {})


def test_a_plugin_whose_own_files_are_gone_wants_reinstalling(site: Site) -> None:
    site.install("weft-gone", "[weft.backends]\ngone = gone_engine.deep\n", {})
    with pytest.raises(PluginError, match="pip install --force-reinstall weft-gone"):
        plugins.load(BACKENDS, "gone")


HOOK = IMPORT_HOOKIMPL + (
    "seen = []\n"
    "@hookimpl\ndef weft_computation_compiled(computation):\n    seen.append(computation)\n"
)


def test_hooks_are_loaded_at_the_first_call_and_a_failing_one_is_one_warning(site: Site) -> None:
    site.install(
        "weft-hooks",
        "[weft.hooks]\ngood = good_hooks\nbad = bad_hooks\n",
        {"good_hooks": HOOK, "bad_hooks": "raise ValueError('no luck')\n"},
    )
    assert site.imports("good_hooks") == 0
    with pytest.warns(PluginWarning, match="no luck") as caught:
        plugins.load_hooks()
    assert len(caught) == 1
    plugins.load_hooks()
    plugins.call_hooks("weft_computation_compiled", computation="a computation")
    assert sys.modules["good_hooks"].seen == ["a computation"]
    assert site.imports("bad_hooks") == 1
    assert record_of(HOOKS, "bad").state == "failed"
    assert record_of(HOOKS, "good").state == "loaded"


def test_a_disabled_hook_plugin_is_left_out_without_a_word(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("weft-hooks", "[weft.hooks]\nbad = bad_hooks\n", {"bad_hooks": "raise OSError\n"})
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", "hooks:bad")
    plugins.load_hooks()
    assert site.imports("bad_hooks") == 0


def test_hook_plugins_of_one_name_are_skipped_with_a_warning(site: Site) -> None:
    for module in ("left_hooks", "right_hooks"):
        site.install(f"weft-{module}", f"[weft.hooks]\nsame = {module}\n", {module: HOOK})
    with pytest.warns(PluginWarning, match="weft-left_hooks.*|weft-right_hooks.*") as caught:
        plugins.load_hooks()
    assert len(caught) == 1


def test_ops_come_from_every_plugin_that_loads(site: Site) -> None:
    text = IMPORT_HOOKIMPL + (
        "import weft\nclass SwishOp(weft.ops.IdentityOp): pass\n"
        "@hookimpl\ndef weft_register_ops(register):\n    register(SwishOp)\n"
    )
    entry_points = "[weft.ops]\nswish = swish_ops\nbad = bad_ops\n"
    site.install("weft-ops", entry_points, {"swish_ops": text, "bad_ops": "raise OSError\n"})
    with pytest.warns(PluginWarning, match="OSError"):
        assert "SwishOp" in [op_class.__name__ for op_class in plugins.load_ops()]
    plugins.load_ops()
    assert plugins.load(OPS, "swish") == (sys.modules["swish_ops"].SwishOp,)


RULE = IMPORT_HOOKIMPL + (
    "@hookimpl\ndef weft_register_rules(backend, rules):\n    rules[__name__] = backend\n"
)


def test_rules_are_loaded_with_their_backend_alone(site: Site) -> None:
    site.install(
        "weft-rules",
        "[weft.rules]\ngem.one = gem_one\ngem.two = gem_two\nrock.one = rock_one\n",
        {"gem_one": RULE, "gem_two": RULE, "rock_one": RULE},
    )
    for _ in range(2):
        rules: dict[str, str] = {}
        plugins.load_rules("gem", rules)
        assert rules == {"gem_one": "gem", "gem_two": "gem"}
    assert site.imports("rock_one") == 0
    plugins.load_rules("rock", rules := {})
    assert rules == {"rock_one": "rock"}


def test_a_failure_while_adding_rules_is_an_error(site: Site) -> None:
    text = IMPORT_HOOKIMPL + "@hookimpl\ndef weft_register_rules(rules):\n    rules['x']\n"
    site.install("weft-rules", "[weft.rules]\ngem.bad = gem_bad\n", {"gem_bad": text})
    failure = (
        "Rule plugin 'gem.bad' of weft-rules 1.0.0 failed in weft_register_rules for backend gem: "
        "KeyError: 'x'. WEFT_DISABLE_PLUGINS=rules:gem.bad leaves it out."
    )
    with pytest.raises(PluginError, match=re.escape(failure)):
        plugins.load_rules("gem", {})


def test_rules_registered_by_hand_take_effect_after_the_first_use_and_go_again() -> None:
    class Rules:
        @hookimpl
        def weft_register_rules(self, backend: str, rules: RuleTable) -> None:
            rules.add(weft.ops.SinOp, print)

    table = RuleTable("gem")
    table.add(weft.ops.CosOp, repr)
    assert table.find(weft.ops.SinOp) is None
    plugins.register(rules := Rules())
    assert table.find(weft.ops.SinOp) is print
    plugins.unregister(rules)
    assert table.find(weft.ops.SinOp) is None
    assert table.find(weft.ops.CosOp) is repr


def test_text_with_an_op_of_a_plugin_loads_it(site: Site) -> None:
    text = IMPORT_HOOKIMPL + (
        "import weft\n"
        "class PolishOp(weft.ops.IdentityOp): pass\n"
        "@hookimpl\ndef weft_register_ops(register): register(PolishOp)\n"
    )
    site.install("weft-polish", "[weft.ops]\npolish = polish_ops\n", {"polish_ops": text})
    graph = weft.parse("v0: float32() = Constant(1)\nv1: float32() = PolishOp(v0)\nresult(v1)\n")
    assert type(graph.outputs[0]).__name__ == "PolishOp"
    with pytest.raises(ParseError, match=r"unknown op 'PolishedOp': did you mean 'PolishOp'\?"):
        weft.parse("v0: float32() = PolishedOp(1)\n")


class Engine(weft_array_api.ArrayTransformer):
    """A backend."""


class Idle(weft.GraphPass):
    """A pass."""

    def do_pass(self, graph: weft.Graph, target: weft.Target) -> weft.Graph:
        return graph


class PolishOp(weft.ops.IdentityOp):
    """An op."""


class ByHand:
    """A plugin as a script writes it."""

    def __init__(self) -> None:
        self.compiled: list[object] = []

    @hookimpl
    def weft_register_backends(self, register: Any) -> None:
        register("by-hand", Engine)
        register("by-hand-broken", lambda: {}["nothing"])

    @hookimpl
    def weft_register_passes(self, register: Any) -> None:
        register("by-hand-pass", Idle)

    @hookimpl
    def weft_register_ops(self, register: Any) -> None:
        register(PolishOp)

    @hookimpl
    def weft_register_rules(self, backend: str, rules: dict[str, str]) -> None:
        rules["by-hand"] = backend

    @hookimpl
    def weft_change_pipeline(self, pipeline: list[Any]) -> list[Any] | None:
        return [*pipeline, "by-hand-pass"] if pipeline else None

    @hookimpl
    def weft_computation_compiled(self, computation: object) -> None:
        self.compiled.append(computation)


def test_a_plugin_registered_by_hand_is_there_at_once_and_goes_again() -> None:
    plugin = ByHand()
    plugins.register(plugin)
    assert plugins.load(BACKENDS, "by-hand") is Engine
    assert plugins.load(PASSES, "by-hand-pass") is Idle
    assert "by-hand" in plugins.names(BACKENDS)
    assert PolishOp in plugins.load_ops()
    plugins.load_rules("gem", rules := {})
    assert rules == {"by-hand": "gem"}
    record = record_of(BACKENDS, "by-hand")
    assert (record.state, record.distribution, record.value) == ("loaded", None, "ByHand")
    plugins.unregister(plugin)
    with pytest.raises(UnknownPluginError):
        plugins.load(BACKENDS, "by-hand")
    assert PolishOp not in plugins.load_ops()
    assert plugins.change_pipeline(["fusion"], None) == ["fusion"]


def test_a_factory_registered_by_hand_that_fails_says_so() -> None:
    plugins.register(ByHand())
    with pytest.raises(PluginError, match="registered by hand, cannot be loaded: KeyError"):
        plugins.load(BACKENDS, "by-hand-broken")


def test_a_module_can_be_registered_and_an_observer_is_listed() -> None:
    module = types.ModuleType("observer")
    vars(module)["weft_computation_compiled"] = hookimpl(
        _named("weft_computation_compiled", lambda computation: None)
    )
    plugins.register(module)
    assert record_of(HOOKS, "observer").reason == "registered by hand"
    plugins.unregister(module)


def _named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


def test_what_cannot_be_registered_by_hand(site: Site) -> None:
    plugin = ByHand()
    plugins.register(plugin, "mine")
    with pytest.raises(PluginError, match="'mine' is registered already"):
        plugins.register(ByHand(), "mine")
    with pytest.raises(PluginError, match="'other' is registered already"):
        plugins.register(plugin, "other")
    with pytest.raises(PluginError, match="there is one of that name already"):
        plugins.register(ByHand(), "second")
    with pytest.raises(PluginError, match="not registered by hand"):
        plugins.unregister(ByHand())
    plugins.unregister(plugin)
    site.install("weft-taken", "[weft.backends]\nby-hand = taken_engine\n", {})
    with pytest.raises(PluginError, match="'by-hand', and there is one of that name"):
        plugins.register(plugin)
    assert PolishOp not in plugins.load_ops()
    future = types.SimpleNamespace(WEFT_API="3.0")
    with pytest.raises(PluginError, match="written for version 3"):
        plugins.register(future)


def test_each_plugin_changes_what_the_one_before_made_of_the_pipeline() -> None:
    plugins.register(ByHand(), "first")

    class Second:
        @hookimpl(trylast=True)
        def weft_change_pipeline(self, pipeline: list[Any], target: str) -> list[Any]:
            pipeline.append("in place, and not returned")
            return [target, *pipeline[:-1]]

    plugins.register(Second())
    given = ["fusion"]
    assert plugins.change_pipeline(given, "layout") == ["layout", "fusion", "by-hand-pass"]
    assert given == ["fusion"]
    assert plugins.change_pipeline([], "layout") == ["layout"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("fusion", "returned 'fusion' from weft_change_pipeline; it must return a list of passes"),
        (("fusion",), "returned .* it must return a list of passes, or None"),
        (3, "returned 3 from weft_change_pipeline"),
        ([3], "put 3 into the pipeline, which is neither the name of a pass nor an object"),
        ([Idle], "put <class .*Idle'> into the pipeline"),
        (["fusoin"], "no pass named 'fusoin'. Did you mean 'fusion'"),
    ],
)
def test_a_pipeline_that_is_no_list_of_passes_is_refused(answer: object, problem: str) -> None:
    class Strange:
        @hookimpl
        def weft_change_pipeline(self) -> object:
            return answer

    plugins.register(Strange())
    with pytest.raises(PluginError, match=problem) as caught:
        plugins.change_pipeline([], None)
    assert "Plugin 'Strange', registered by hand," in str(caught.value)


def test_an_observer_that_fails_is_named() -> None:
    class Clumsy:
        @hookimpl
        def weft_computation_compiled(self) -> None:
            raise ZeroDivisionError("oh")

    plugins.register(Clumsy())
    with pytest.raises(PluginError, match="'Clumsy', registered by hand, failed in") as caught:
        plugins.call_hooks("weft_computation_compiled", computation=None)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("probe", "device", "reason"),
    [
        ("return 'a card', ''", True, "a card"),
        ("return None, 'no card: plug one in'", False, "no card: plug one in"),
        ("raise OSError('driver is asleep')", False, "driver is asleep"),
        ("raise KeyError", False, "KeyError"),
        ("return 'half an answer'", False, "its probe returned 'half an answer'; it must return"),
        ("return 'ab'", False, "its probe returned 'ab'; it must return"),
        ("return 3, ''", False, "its probe returned (3, '')"),
        ("raise SystemExit", False, "SystemExit"),
    ],
)
def test_the_status_of_a_backend_says_how_far_it_gets(
    site: Site, probe: str, device: bool, reason: str
) -> None:
    install_backend(site, "state", backend("state", probe))
    status = plugins.backend_status("state")
    assert (status.name, status.distribution) == ("state", "weft-state")
    assert status.installed
    assert status.importable
    assert bool(status.device) is bool(status.usable) is device
    assert reason in status.usable.reason


def test_the_status_of_an_unknown_backend_is_no_error() -> None:
    status = plugins.backend_status("nowhere-to-be-found")
    assert not status.installed
    assert status.distribution is None
    assert "no backend named 'nowhere-to-be-found'" in status.usable.reason


def test_a_backend_that_is_not_finished_is_not_usable(site: Site) -> None:
    text = IMPORT_HOOKIMPL + (
        "import weft\nclass Half(weft.Transformer):\n    target = None\n"
        "@hookimpl\ndef weft_register_backends(register):\n    register('half', Half)\n"
    )
    site.install("weft-half", "[weft.backends]\nhalf = half_engine\n", {"half_engine": text})
    status = plugins.backend_status("half")
    assert status.is_broken
    assert not status.importable
    assert "Half does not define device_buffer_storage, transform_ordered_ops" in (
        status.usable.reason
    )
