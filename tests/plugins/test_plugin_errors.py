"""Errors out of the code of plugins say whose they are, and one plugin breaks itself alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from plugin_site import Site
from typer.testing import CliRunner

import weft
from weft import plugins
from weft.cli.app import app
from weft.errors import ArgumentError, PassError, PluginError, UnknownPluginError
from weft.ir.rules import RuleTable
from weft.plugins import hookimpl
from weft.plugins.registry import BACKENDS, FRONTENDS, OPS, PASSES, PluginWarning

HEAD = """
import weft
from weft.plugins import hookimpl
from weft import GraphPass, PeepholeGraphPass, visit
"""
CHANGE = "@hookimpl\ndef weft_change_pipeline(pipeline):\n    return {}\n"
COMPILED = "@hookimpl\ndef weft_computation_compiled(computation):\n    {}\n"
RULES = "@hookimpl\ndef weft_register_rules(backend, rules):\n    {}\n"
PASS = """
class Ghost({base}):
    {body}

@hookimpl
def weft_register_passes(register):
    register("ghost", Ghost)
"""
BACKEND = """
import numpy as np
import weft_array_api

class Engine(weft_array_api.ArrayTransformer):
    transformer_name = "ghost"

    @classmethod
    def namespace(cls):
        return np
{body}

@hookimpl
def weft_register_backends(register):
    register("ghost", Engine)
"""
WHOLE = "def do_pass(self, graph, target):\n        {}"
VISIT = "@visit.on_type(weft.ops.TanhOp)\n    def visit(self, op):\n        {}"
METHOD = "    def {}(self, *args, **options):\n        {}\n"


def whole(body: str) -> str:
    return PASS.format(base="GraphPass", body=WHOLE.format(body))


def visitor(body: str) -> str:
    return PASS.format(base="PeepholeGraphPass", body=VISIT.format(body))


def engine(method: str, body: str = "raise KeyError('ghost')") -> str:
    return BACKEND.format(body=METHOD.format(method, body))


@pytest.fixture(autouse=True)
def _default_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the same default where there is a C compiler and where there is none."""
    monkeypatch.setattr(plugins, "default_backend", lambda: "numpy")


def computed(backend: Any = None, **options: Any) -> Any:
    x = weft.placeholder((3,))
    with weft.make_transformer(backend, cache=False, **options) as transformer:
        return transformer.computation(weft.tanh(x) * 2, x, name="small")([0, 0, 0])


CASES: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    # entry points, module, how to compute, what the message says
    "a hook raises": (
        "[weft.hooks]\nghost = ghost\n",
        CHANGE.format("{}['x']"),
        {},
        (
            "Hook plugin 'ghost' of weft-ghost 1.0.0 failed in weft_change_pipeline for backend "
            "numpy",
            "hooks:ghost",
        ),
    ),
    "a hook exits": (
        "[weft.hooks]\nghost = ghost\n",
        COMPILED.format("raise SystemExit(3)"),
        {},
        (
            "Hook plugin 'ghost' of weft-ghost 1.0.0 failed in weft_computation_compiled for small",
            "hooks:ghost",
        ),
    ),
    "a hook returns no list": (
        "[weft.hooks]\nghost = ghost\n",
        CHANGE.format("3"),
        {},
        ("Hook plugin 'ghost' of weft-ghost 1.0.0 returned 3", "hooks:ghost"),
    ),
    "a hook returns no passes": (
        "[weft.hooks]\nghost = ghost\n",
        CHANGE.format("[*pipeline, 3]"),
        {},
        ("Hook plugin 'ghost' of weft-ghost 1.0.0 put 3 into the pipeline", "hooks:ghost"),
    ),
    "rules raise": (
        "[weft.rules]\nnumpy.ghost = ghost\n",
        RULES.format("{}['x']"),
        {},
        ("Rule plugin 'numpy.ghost' of weft-ghost 1.0.0", "rules:numpy.ghost"),
    ),
    "a rule is there twice": (
        "[weft.rules]\nnumpy.ghost = ghost\n",
        RULES.format("rules.add(weft.ops.TanhOp, print)"),
        {},
        ("'numpy.ghost' of weft-ghost 1.0.0", "has a rule for TanhOp already", "rules:numpy.ghost"),
    ),
    "a rule is not a function": (
        "[weft.rules]\nnumpy.ghost = ghost\n",
        RULES.format("rules.add(weft.ops.TanhOp, 3)"),
        {},
        ("'numpy.ghost' of weft-ghost 1.0.0", "takes a function", "rules:numpy.ghost"),
    ),
    "a rule raises": (
        "[weft.rules]\nnumpy.ghost = ghost\n",
        "class GhostOp(weft.ops.TanhOp): pass\n"
        "def rule(op, emit): raise KeyError('ghost')\n" + RULES.format("rules.add(GhostOp, rule)"),
        {"op": True},
        (
            "Rule plugin 'numpy.ghost' of weft-ghost 1.0.0 failed while it compiled small_1 for "
            "backend numpy, at GhostOp",
            'test_plugin_errors.py", line',
            "rules:numpy.ghost",
        ),
    ),
    "a pass raises": (
        "[weft.passes]\nghost = ghost\n",
        whole("raise KeyError('ghost')"),
        {"passes": ["ghost"]},
        ("Pass 'ghost' of weft-ghost 1.0.0 failed in pass Ghost, on small_1 for backend numpy",),
    ),
    "a pass visits an op and raises": (
        "[weft.passes]\nghost = ghost\n",
        visitor("raise KeyError('ghost')"),
        {"passes": ["ghost"]},
        ("'ghost' of weft-ghost 1.0.0", "at TanhOp", 'test_plugin_errors.py", line'),
    ),
    "a pass returns no graph": (
        "[weft.passes]\nghost = ghost\n",
        whole("return 3"),
        {"passes": ["ghost"]},
        ("pass Ghost returned 3, not a graph", "Pass 'ghost' of weft-ghost 1.0.0 raised this"),
    ),
    "a pass changes a dtype": (
        "[weft.passes]\nghost = ghost\n",
        visitor("self.replace_op(op, weft.cast(op, 'float64'))"),
        {"passes": ["ghost"]},
        ("a replacement must keep both", "Pass 'ghost' of weft-ghost 1.0.0 raised this"),
    ),
    "a pass cannot be made": (
        "[weft.passes]\nghost = ghost\n",
        PASS.format(
            base="GraphPass",
            body="def __init__(self, depth): pass\n    def do_pass(self, graph, target): pass",
        ),
        {"passes": ["ghost"]},
        ("Pass 'ghost' of weft-ghost 1.0.0 failed while it was made: TypeError",),
    ),
    "a backend cannot be made": (
        "[weft.backends]\nghost = ghost\n",
        engine("__init__"),
        {"backend": "ghost"},
        ("Backend 'ghost' of weft-ghost 1.0.0 failed while it made a transformer: KeyError",),
    ),
    "a backend cannot compile": (
        "[weft.backends]\nghost = ghost\n",
        engine("transform_ordered_ops"),
        {"backend": "ghost"},
        ("Backend 'ghost' of weft-ghost 1.0.0 failed while it compiled small_1",),
    ),
    "a backend has no target": (
        "[weft.backends]\nghost = ghost\n",
        engine("target").replace("    def target", "    @property\n    def target"),
        {"backend": "ghost"},
        ("Backend 'ghost' of weft-ghost 1.0.0 failed while it compiled small_1",),
    ),
    "a backend cannot compute": (
        "[weft.backends]\nghost = ghost\n",
        engine("transform_ordered_ops", "return lambda *arrays: {}['ghost']"),
        {"backend": "ghost"},
        ("Backend 'ghost' of weft-ghost 1.0.0 failed in small_1: KeyError",),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_names_the_plugin_and_how_to_switch_it_off(site: Site, case: str) -> None:
    entry_points, module, options, expected = CASES[case]
    site.install("weft-ghost", entry_points, {"ghost": HEAD + module})
    options = dict(options)
    table = sys.modules["weft_numpy.rules"].rules if "weft_numpy.rules" in sys.modules else None
    try:
        with pytest.raises((PluginError, PassError)) as caught:
            _ghost_op() if options.pop("op", False) else computed(**options)
    finally:
        _forget_rules(table)
    message = str(caught.value)
    for words in (*expected, "WEFT_DISABLE_PLUGINS="):
        assert words in message, message
    assert message.count("of weft-ghost") == 1, message


def test_an_importer_that_fails_is_named(site: Site, tmp_path: Path) -> None:
    module = HEAD + (
        "class Reader:\n    suffixes = ('.ghost',)\n"
        "    def read(self, path, constants): raise KeyError('x')\n"
        "@hookimpl\ndef weft_register_frontends(register): register('ghost', Reader())\n"
    )
    site.install("weft-ghost", "[weft.frontends]\nghost = ghost\n", {"ghost": module})
    result = CliRunner().invoke(app, ["run", str(tmp_path / "model.ghost")])
    assert result.exit_code == 1
    assert "Frontend 'ghost' of weft-ghost 1.0.0 failed while it read" in result.output
    assert "WEFT_DISABLE_PLUGINS=frontends:ghost" in result.output


def _ghost_op() -> None:
    plugins.load_rules("numpy", RuleTable("numpy"))
    x = weft.placeholder((3,))
    with weft.make_transformer("numpy", cache=False) as transformer:
        y = sys.modules["ghost"].GhostOp(x)
        transformer.computation(y, x, name="small")([0, 0, 0])


def _forget_rules(table: Any) -> None:
    """Have NumPy's rules ask plugins again, since those of this test are gone."""
    rules = table or import_module("weft_numpy.rules").rules
    for kind in rules._from_plugins:
        rules._rules.pop(kind, None)
    rules._from_plugins, rules._revision = set(), None


@pytest.fixture(autouse=True)
def _ask_again() -> None:
    """Have NumPy's rules ask the plugins of this test."""
    if "weft_numpy.rules" in sys.modules:
        sys.modules["weft_numpy.rules"].rules._revision = None


def test_errors_of_the_users_own_passes_stay_as_they_are() -> None:
    class Mine(weft.GraphPass):
        def do_pass(self, graph: weft.Graph, target: weft.Target) -> weft.Graph:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        computed(passes=[Mine()])


WRONG_OFFERS: dict[str, tuple[str, str, str]] = {
    "a number as a backend": (BACKENDS, "weft_register_backends", "3"),
    "a function that returns a dict": (BACKENDS, "weft_register_backends", "dict"),
    "a factory that returns a dict": (BACKENDS, "weft_register_backends", "lambda: {}"),
    "a class that is not a backend": (BACKENDS, "weft_register_backends", "weft.GraphPass"),
    "an abstract backend": (BACKENDS, "weft_register_backends", "weft.Transformer"),
    "a factory of an abstract backend": (
        BACKENDS,
        "weft_register_backends",
        "lambda: weft.Transformer",
    ),
    "a pass that is an object": (PASSES, "weft_register_passes", "object()"),
    "a class that is not a pass": (PASSES, "weft_register_passes", "dict"),
    "an abstract pass": (PASSES, "weft_register_passes", "GraphPass"),
    "a function as an importer": (FRONTENDS, "weft_register_frontends", "lambda path: path"),
    "an importer with a word as suffixes": (
        FRONTENDS,
        "weft_register_frontends",
        "type('R', (), {'suffixes': '.gem', 'read': print})()",
    ),
}


@pytest.mark.parametrize("case", WRONG_OFFERS)
def test_what_is_registered_is_checked(site: Site, case: str) -> None:
    group, hook, value = WRONG_OFFERS[case]
    module = f"{HEAD}\n@hookimpl\ndef {hook}(register):\n    register('ghost', {value})\n"
    site.install("weft-ghost", f"[{group}]\nghost = ghost\n", {"ghost": module})
    with pytest.raises(PluginError, match=r"'ghost' of weft-ghost 1\.0\.0 registers"):
        plugins.load(group, "ghost")


def test_ops_that_are_registered_are_checked(site: Site) -> None:
    module = f"{HEAD}\n@hookimpl\ndef weft_register_ops(register):\n    register(dict)\n"
    site.install("weft-ghost", "[weft.ops]\nghost = ghost\n", {"ghost": module})
    with pytest.raises(PluginError, match="registers <class 'dict'> as an op"):
        plugins.load(OPS, "ghost")


def test_names_that_are_registered_are_checked() -> None:
    class Plugin:
        @hookimpl
        def weft_register_passes(self, register: Callable[..., None]) -> None:
            register(3, weft.GraphPass)

    with pytest.raises(PluginError, match="registers a pass under 3, which is not a name"):
        plugins.register(Plugin())


# Disabled means that no function is called

SHARED = (
    HEAD
    + PASS.format(base="GraphPass", body=WHOLE.format("return graph"))
    + (
        "called = []\n"
        "@hookimpl\ndef weft_change_pipeline():\n    called.append('change')\n"
        + COMPILED.format("called.append('compiled')")
    )
)


@pytest.mark.parametrize(
    ("entry_points", "disabled", "is_called"),
    [
        ("[weft.hooks]\nextras = ghost\n", "", True),
        ("[weft.hooks]\nextras = ghost\n", "hooks:extras", False),
        ("[weft.hooks]\nextras = ghost\n", "weft.hooks:extras", False),
        ("[weft.hooks]\nextras = ghost\n", "extras", False),
        ("[weft.hooks]\nextras = ghost\nmore = ghost\n", "extras", True),
        ("[weft.hooks]\nextras = ghost\nmore = ghost\n", "extras,more", False),
        ("", "", True),
        ("", "passes:other", True),
        ("", "hooks:ghost", False),
    ],
)
def test_no_hook_of_a_disabled_plugin_is_called(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    entry_points: str,
    disabled: str,
    is_called: bool,
) -> None:
    site.install("weft-ghost", f"{entry_points}[weft.passes]\nghost = ghost\n", {"ghost": SHARED})
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", disabled)
    computed(passes=["decompose", "ghost"])
    assert sys.modules["ghost"].called == (["change", "compiled"] if is_called else [])


def test_a_module_behind_two_entries_adds_its_rules_once(site: Site) -> None:
    module = HEAD + "called = []\n" + RULES.format("called.append(backend)")
    site.install("weft-ghost", "[weft.rules]\ngem.a = ghost\ngem.b = ghost\n", {"ghost": module})
    plugins.load_rules("gem", RuleTable("gem"))
    assert sys.modules["ghost"].called == ["gem"]


def test_a_disabled_pass_that_a_hook_puts_in_is_left_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = HEAD + whole("raise KeyError") + CHANGE.format("['ghost', *pipeline]")
    entry_points = "[weft.passes]\nghost = ghost\n[weft.hooks]\nextras = ghost\n"
    site.install("weft-ghost", entry_points, {"ghost": module})
    with pytest.raises(PluginError, match="Pass 'ghost' of weft-ghost"):
        computed()
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", "passes:ghost")
    assert computed().tolist() == [0, 0, 0]


# A clash of names


@pytest.fixture
def _clashes(site: Site) -> None:
    text = HEAD + (
        "import weft_numpy.transformer\nimport weft_passes.fusion\n"
        "class Other(weft_numpy.transformer.NumPyTransformer): pass\n"
        "class Fusion(weft_passes.fusion.Fusion): pass\n"
        "@hookimpl\ndef weft_register_backends(register): register('numpy', Other)\n"
        "@hookimpl\ndef weft_register_passes(register): register('fusion', Fusion)\n"
    )
    entry_points = "[weft.backends]\nnumpy = ghost\n[weft.passes]\nfusion = ghost\n"
    site.install("weft-ghost", entry_points, {"ghost": text})


@pytest.mark.usefixtures("_clashes")
def test_defaults_are_wefts_own_with_a_warning_each() -> None:
    with pytest.warns(PluginWarning) as caught:
        results = [computed().tolist() for _ in range(2)]
    assert results == [[0, 0, 0]] * 2
    assert type(weft.make_transformer()) is weft.NumPyTransformer
    messages = [str(each.message) for each in caught]
    for name in ("backends:numpy", "passes:fusion"):
        (message,) = (each for each in messages if f"WEFT_PREFER={name}=weft-ghost" in each)
        assert f"WEFT_PREFER={name}=weftc and" in message
        assert "also from weft-ghost 1.0.0 (ghost)" in message
    assert len(messages) == 2
    assert "ghost" not in sys.modules


@pytest.mark.usefixtures("_clashes")
@pytest.mark.parametrize(
    ("ask", "setting"),
    [
        (lambda: weft.make_transformer("numpy"), "backends:numpy=weftc"),
        (lambda: weft.backend("numpy"), "backends:numpy=weftc"),
        (lambda: computed(weft.NumPyTransformer, passes=["fusion"]), "passes:fusion=weftc"),
    ],
)
@pytest.mark.filterwarnings("ignore::weft.plugins.PluginWarning")
def test_a_clash_is_an_error_where_the_name_is_asked_for(
    ask: Callable[[], Any], setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PluginError, match="choose one by WEFT_PREFER=") as caught:
        ask()
    assert "weft-ghost 1.0.0 (ghost)" in str(caught.value)
    monkeypatch.setenv("WEFT_PREFER", setting)
    ask()


@pytest.mark.usefixtures("_clashes")
def test_a_preference_holds_for_the_defaults_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_PREFER", "backends:numpy=Weft_Ghost, weft.passes:fusion=weft-ghost")
    transformer = weft.make_transformer()
    ghost = sys.modules["ghost"]
    assert type(transformer) is type(weft.make_transformer("numpy")) is ghost.Other
    assert ghost.Fusion in map(type, transformer.graph_passes)
    states = {r.distribution: r.state for r in plugins.records(BACKENDS) if r.name == "numpy"}
    assert states == {"weftc": "duplicate", "weft-ghost": "loaded"}


@pytest.mark.usefixtures("_clashes")
@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        (
            "backends:numpy=elsewhere",
            "wants backend 'numpy' from 'elsewhere', and it is there from",
        ),
        ("numpy=weft", "'numpy=weft' is not of the form group:name=distribution"),
        ("backend:numpy=weft", "is not of the form"),
        ("backends:numpy", "is not of the form"),
    ],
)
def test_a_preference_that_cannot_be_met_is_an_error(
    setting: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_PREFER", setting)
    with pytest.raises(PluginError, match=problem):
        weft.make_transformer()


# Passes switched on and off without code

NOTING = HEAD + (
    "seen = []\n"
    + PASS.format(base="GraphPass", body=WHOLE.format("seen.append('ghost'); return graph"))
)


def names_of(transformer: weft.Transformer) -> list[str]:
    passes = transformer.graph_compiler.pipeline.changed(transformer.target)
    return [type(each).__name__ for each in passes]


def test_passes_are_switched_on_and_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("weft-ghost", "[weft.passes]\nghost = ghost\n", {"ghost": NOTING})
    plain = names_of(weft.make_transformer())
    for setting, expected in {
        "+ghost": ["Ghost", *plain],
        "-fusion": [name for name in plain if name != "Fusion"],
        "+ghost, -fusion": ["Ghost", *(name for name in plain if name != "Fusion")],
        "+ghost@fusion": [
            *plain[: plain.index("Fusion")],
            "Ghost",
            *plain[plain.index("Fusion") :],
        ],
        "": plain,
    }.items():
        monkeypatch.setenv("WEFT_PASSES", setting)
        assert names_of(weft.make_transformer()) == expected, setting
    monkeypatch.setenv("WEFT_PASSES", "+ghost")
    assert computed().tolist() == [0, 0, 0]
    assert sys.modules["ghost"].seen
    assert names_of(weft.make_transformer(passes=[])) == []


def test_a_pass_that_a_hook_puts_in_is_switched_off(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_points = "[weft.passes]\nghost = ghost\n[weft.hooks]\nextras = ghost\n"
    text = NOTING + CHANGE.format("['ghost', *pipeline]")
    site.install("weft-ghost", entry_points, {"ghost": text})
    assert names_of(weft.make_transformer())[0] == "Ghost"
    monkeypatch.setenv("WEFT_PASSES", "-ghost")
    assert "Ghost" not in names_of(weft.make_transformer())


@pytest.mark.parametrize(
    ("setting", "error", "problem"),
    [
        ("fusion", ArgumentError, "'fusion' is not one of +name, +name@before and -name"),
        ("+", ArgumentError, "'+' is not one of"),
        ("-fusion@layout", ArgumentError, "is not one of"),
        ("+fusoin", UnknownPluginError, "WEFT_PASSES=+fusoin: There is no pass named 'fusoin'"),
        ("-fusoin", UnknownPluginError, "Did you mean 'fusion'"),
        ("+layout@nowhere", ArgumentError, "layout is to stand before nowhere"),
    ],
)
def test_a_switch_that_makes_no_sense_is_an_error(
    setting: str, error: type[Exception], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_PASSES", setting)
    with pytest.raises(error, match=re.escape(problem)):
        _ = weft.make_transformer().graph_passes


# The line of the user


def test_an_op_made_before_any_plugin_is_loaded_points_at_its_caller(site: Site) -> None:
    text = HEAD + "def doubled(x): return x * 2\n"
    site.install("weft-ghost", "[weft.passes]\nghost = ghost_extras.passes\n", {})
    package = site.root / "weft-ghost" / "ghost_extras"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "ops.py").write_text(text)
    from ghost_extras.ops import doubled  # type: ignore[import-not-found]

    op = doubled(weft.placeholder((3,)))
    assert op.location[0] == __file__
    assert [record.state for record in plugins.records(PASSES) if record.name == "ghost"] == [
        "installed"
    ]
