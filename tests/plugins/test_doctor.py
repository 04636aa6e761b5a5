"""`weft doctor` against hostile packages: what it exits with, and whom it names."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from plugin_site import Site
from typer.testing import CliRunner

import weft.cli.examination
from weft.cli.app import app

pytestmark = pytest.mark.slow

HEAD = """
import os, sys, time
import numpy as np
import weft
import weft_array_api
from weft.plugins import hookimpl
from weft import GraphPass
"""
CHANGE = "@hookimpl\ndef weft_change_pipeline(pipeline): {}\n"
COMPILED = "@hookimpl\ndef weft_computation_compiled(computation): {}\n"
RULES = "@hookimpl\ndef weft_register_rules(backend, rules): {}\n"
PASS = (
    "class Ghost(GraphPass):\n    def do_pass(self, graph, target): {}\n"
    "@hookimpl\ndef weft_register_passes(register): register({!r}, Ghost)\n"
)
BACKEND = (
    "class Engine(weft_array_api.ArrayTransformer):\n"
    "    transformer_name = 'ghost'\n"
    "    @classmethod\n    def namespace(cls): return np\n"
    "    {}\n"
    "@hookimpl\ndef weft_register_backends(register): register({!r}, Engine)\n"
)
PROBE = "@classmethod\n    def probe(cls): {}"
RUN = "def transform_ordered_ops(self, *args): {}"
HOOKS = "[weft.hooks]\nghost = ghost\n"
RULE = "[weft.rules]\nnumpy.ghost = ghost\n"
PASSES = "[weft.passes]\nghost = ghost\n"
BACKENDS = "[weft.backends]\nghost = ghost\n"


@dataclass(frozen=True)
class Case:
    """A hostile package, what `weft doctor` exits with, and words that it prints."""

    entry_points: str
    module: str
    status: int
    words: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


def named(kind: str, name: str = "ghost") -> tuple[str, str]:
    switch = {"Hook plugin": "hooks", "Rule plugin": "rules", "Pass": "passes"}.get(
        kind, "backends"
    )
    return f"{kind} {name!r} of weft-ghost 1.0.0", f"WEFT_DISABLE_PLUGINS={switch}:{name}"


HOOK = named("Hook plugin")
CASES = {
    "a hook raises": Case(HOOKS, CHANGE.format("{}['x']"), 1, HOOK),
    "an observer raises": Case(HOOKS, COMPILED.format("{}['x']"), 1, HOOK),
    "a hook returns rubbish": Case(HOOKS, CHANGE.format("return 3"), 1, HOOK),
    "a hook puts rubbish in": Case(HOOKS, CHANGE.format("return [*pipeline, 3]"), 1, HOOK),
    "a hook leaves passes out": Case(HOOKS, CHANGE.format("return []"), 1, HOOK),
    "a hook ends the process": Case(
        HOOKS, CHANGE.format("os._exit(3)"), 1, ("ended with exit status 3", *HOOK)
    ),
    "a hook ends the process in silence": Case(HOOKS, COMPILED.format("os._exit(0)"), 1, HOOK),
    "hooks that cannot be imported": Case(HOOKS, "raise OSError('x')", 0, ("OSError: x.",)),
    "hooks that end the process when imported": Case(
        HOOKS, "os._exit(3)", 1, ("Loading it did not come back", *HOOK)
    ),
    "adding rules raises": Case(
        RULE, RULES.format("{}['x']"), 1, named("Rule plugin", "numpy.ghost")
    ),
    "a rule is there twice": Case(
        RULE,
        RULES.format("rules.add(weft.ops.AddOp, print)"),
        1,
        named("Rule plugin", "numpy.ghost"),
    ),
    "a pass raises that was switched on": Case(
        PASSES,
        PASS.format("raise KeyError('x')", "ghost"),
        1,
        named("Pass"),
        {"WEFT_PASSES": "+ghost"},
    ),
    "a pass of the default pipeline raises": Case(
        "[weft.passes]\nfusion = ghost\n",
        PASS.format("raise KeyError('x')", "fusion"),
        1,
        named("Pass", "fusion"),
        {"WEFT_PREFER": "passes:fusion=weft-ghost"},
    ),
    "a pass of the default pipeline fails to load": Case(
        "[weft.passes]\nfusion = ghost\n",
        "raise KeyError('x')",
        1,
        ("The default pipeline does not work: Pass 'fusion' of weft-ghost 1.0.0",),
        {"WEFT_PREFER": "passes:fusion=weft-ghost"},
    ),
    "an unused pass raises": Case(PASSES, PASS.format("raise KeyError('x')", "ghost"), 0),
    "the names of the defaults": Case(
        "[weft.passes]\nfusion = ghost\n[weft.backends]\nnumpy = ghost\n",
        "os._exit(3)",
        0,
        ("WEFT_PREFER=passes:fusion=weft",),
    ),
    "the name of the default, asked for": Case(
        "[weft.backends]\nnumpy = ghost\n",
        "os._exit(3)",
        1,
        ("WEFT_PREFER=backends:numpy=weft",),
        {"WEFT_BACKEND": "numpy"},
    ),
    "a probe ends the process": Case(
        BACKENDS,
        BACKEND.format(PROBE.format("print('goodbye'); sys.stdout.flush(); os._exit(3)"), "ghost"),
        0,
        ("Its probe did not come back: the process ended with exit status 3. It printed: goodbye",),
    ),
    "the probe of the backend in use ends the process": Case(
        BACKENDS,
        BACKEND.format(PROBE.format("os._exit(3)"), "ghost"),
        1,
        ("WEFT_BACKEND=ghost: The backend 'ghost' would be used", "exit status 3"),
        {"WEFT_BACKEND": "ghost"},
    ),
    "a probe returns a string": Case(
        BACKENDS,
        BACKEND.format(PROBE.format("return 'ab'"), "ghost"),
        0,
        ("its probe returned 'ab'",),
    ),
    "a backend ends the process when imported": Case(
        BACKENDS, "os._exit(3)", 0, ("Loading it did not come back",)
    ),
    "a factory returns a dict": Case(
        BACKENDS,
        "@hookimpl\ndef weft_register_backends(register): register('ghost', dict)\n",
        0,
        ("registers <class 'dict'> as the backend 'ghost'",),
    ),
    "a backend does not compile": Case(
        BACKENDS, BACKEND.format(RUN.format("{}['x']"), "ghost"), 1, named("Backend")
    ),
    "a backend computes wrong numbers": Case(
        BACKENDS,
        BACKEND.format(RUN.format("return lambda *arrays: None"), "ghost"),
        1,
        ("Backend 'ghost' does not run a small program: CheckFailed: the loss of step 0",),
    ),
    "a plugin prints": Case(HOOKS, "print('{\"begin\": 3}')\n" + COMPILED.format("print('{}')"), 0),
    "a plugin takes its time": Case(
        HOOKS, "time.sleep(2.2)", 0, ("weft.hooks:ghost of weft-ghost takes 2.",)
    ),
    "a misspelt group": Case(
        "[weft.backend]\nghost = g\n[weft_hooks]\nghost = g\n[weft.kernels]\nghost = g\n",
        "",
        0,
        (
            "weft-ghost 1.0.0 puts 'ghost' into the group weft.backend, which weft does not have: "
            "did it mean weft.backends?",
            "group weft_hooks, which weft does not have: did it mean weft.hooks?",
            "group weft.kernels, which weft does not have: there are weft.backends, ",
        ),
    ),
}


OTHERS = ",".join(f"backends:{name}" for name in ("native", "opencl", "cupy", "webgpu"))
"""Backends that compile or look for a device, which is another subject and takes long."""


def doctor(*options: str) -> tuple[int, Any]:
    result = CliRunner().invoke(app, ["doctor", "--json", *options], catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


QUICK = (
    "a hook returns rubbish",
    "a hook ends the process",
    "hooks that end the process when imported",
    "a rule is there twice",
    "a pass of the default pipeline raises",
    "the names of the defaults",
    "a probe ends the process",
    "a backend computes wrong numbers",
    "a misspelt group",
)
"""The cases that `make test` runs; the others take the same ways."""


@pytest.mark.share(9)
@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in CASES],
)
def test_the_doctor_survives_and_says_whose_fault_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    found = CASES[case]
    site.install("weft-ghost", found.entry_points, {"ghost": HEAD + found.module})
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", OTHERS)
    for name, value in found.variables.items():
        monkeypatch.setenv(name, value)
    status, report = doctor()
    text = "\n".join(
        [
            *report["troubles"],
            *report["remarks"],
            *(record["reason"] for record in report["unusable"]),
            *(str(backend["reason"]) for backend in report["backends"]),
        ]
    )
    assert status == found.status, text
    assert bool(report["troubles"]) is bool(status)
    for words in found.words:
        assert words in text
    if not status and "Loading it" not in text:
        (numpy,) = (each for each in report["backends"] if each["name"] == "numpy")
        assert numpy["runs"]


@pytest.mark.long
def test_a_probe_that_never_comes_back_is_given_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = BACKEND.format(PROBE.format("time.sleep(600)"), "ghost")
    site.install("weft-ghost", BACKENDS, {"ghost": HEAD + module})
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", OTHERS)
    monkeypatch.setattr(weft.cli.examination, "LIMIT", 4.0)
    found = CliRunner().invoke(app, ["backends", "--json"], catch_exceptions=False)
    (ghost,) = (each for each in json.loads(found.stdout) if each["name"] == "ghost")
    assert not ghost["usable"]
    assert "did not come back within 4 seconds" in ghost["reason"]
