"""The page of the architecture: its picture is up to date, its functions run, its paths exist."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import weft

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()

STEPS = re.findall(r"^\| (\d+) \| `([\w.<>]+)` \|", PAGE, re.MULTILINE)
FIRST_CALL = "weft.runtime.computation.Computation.__call__"
FIRST_PASS = "weft.passes.interface.run_passes"


def called_by(code: str, scope: dict[str, Any]) -> list[str]:
    """Return the qualified names of the functions that code calls, in order."""
    names: list[str] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            names.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}")

    sys.setprofile(profile)
    try:
        exec(compile(code, "<architecture.md>", "exec"), scope)
    finally:
        sys.setprofile(None)
    return names


def test_the_functions_on_the_way_of_an_expression_are_called_in_this_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert [int(number) for number, _ in STEPS] == list(range(1, 18))
    scope: dict[str, Any] = {}
    left = iter(called_by(code, scope))
    for _, name in STEPS:
        assert name in left, f"{name} is not called after the function before it"
    assert scope["result"].tolist() == [3, 3, 3]


class Watching(weft.GraphPass):
    """Notes weft's functions that have been called and have not returned."""

    def do_pass(self, graph: weft.Graph, target: weft.Target) -> weft.Graph:
        frame = sys._getframe()
        self.active: list[str] = []
        while frame := frame.f_back:
            self.active.insert(0, f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}")
        return graph


def test_the_first_pass_is_six_hops_from_the_first_call() -> None:
    watching = Watching()
    x = weft.placeholder((3,))
    with weft.make_transformer("numpy", passes=[watching], cache=False) as transformer:
        transformer.computation(x * 2, x)(np.ones(3, "float32"))
    active = watching.active
    between = active[active.index(FIRST_CALL) : active.index(FIRST_PASS) + 1]
    own = [name for name in between if name.startswith("weft.")]  # NumPy's extends one
    listed = [name for _, name in STEPS]
    assert own == listed[listed.index(FIRST_CALL) : listed.index(FIRST_PASS) + 1]
    assert len(own) == 1 + 6


def test_every_path_on_the_page_exists() -> None:
    paths = re.findall(r"`((?:core|codegen|backends|passes|tests)/[\w/.]+)`", PAGE)
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_picture_of_the_layers_is_what_its_script_draws() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "tools" / "layers.py"))
    assert script["IMAGE"].read_text() == script["picture"](), "run: make docs"
