"""The docstrings of public functions say what help and the pages of the reference need.

A docstring has the sections of NumPy's style, in the order Parameters, Returns, Raises, Examples.

* Every function has an example, which shows a result. Examples begin with ``np`` and ``weft``
  imported, and arrays print four digits.
* A function of two or more parameters describes each of them, and what it returns. Parameters that
  are described together stand in one line: ``axis, axes``. Types stand in the signature.
"""

import doctest
import importlib
import inspect
import re
import runpy
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.layers  # otherwise a look at `weft.nn` imports it while doctest reads names

ROOT = Path(__file__).parents[2]
SECTIONS = ("Parameters", "Returns", "Yields", "Raises", "Notes", "References", "Examples")
WORDS = {"Returns", "Yields"}


@cache
def public_functions() -> dict[str, Callable[..., Any]]:
    """Return each public function under the name that it was defined with."""
    found = runpy.run_path(str(ROOT / "docs" / "tools" / "public_functions.py"))
    functions = found["public_functions"]()
    return {f"{each.__module__}.{each.__name__}": each for each in functions}


def modules() -> list[str]:
    """Return the names of the modules that have examples."""
    root = Path(weft.__file__).parent
    paths = [path for path in sorted(root.rglob("*.py")) if ">>> " in path.read_text("utf-8")]
    found = [path.relative_to(root.parent).with_suffix("") for path in paths]
    return [".".join(path.parts).removesuffix(".__init__") for path in found]


@pytest.mark.parametrize("name", modules())
@pytest.mark.usefixtures("fresh_names")
def test_examples_in_docstrings_run(name: str) -> None:
    shown = {name for name, value in public_functions().items() if _examples(value)}
    names = {"np": np, "weft": weft}
    tests = doctest.DocTestFinder().find(importlib.import_module(name), extraglobs=names)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with np.printoptions(precision=4), weft.backend("numpy"):  # which has nothing to compile
        for test in tests:
            runner.run(test)
    assert runner.tries
    assert not runner.failures
    found = {test.name for test in tests if test.examples}
    assert {each for each in shown if each.rpartition(".")[0] == name} <= found


def test_docstrings_of_public_functions_have_what_they_need() -> None:
    found = {name: list(_faults(function)) for name, function in public_functions().items()}
    assert {name: faults for name, faults in found.items() if faults} == {}


def _faults(function: Callable[..., Any]) -> Iterator[str]:
    """Say what the docstring of a function lacks."""
    sections = _sections(inspect.getdoc(function) or "")
    if any(name not in SECTIONS for name in sections):
        yield f"sections {list(sections)}, which are {SECTIONS}"
    elif list(sections) != sorted(sections, key=SECTIONS.index):
        yield f"sections in the order {list(sections)}"
    if not any(example.want for example in _examples(function)):
        yield "no example with a result"
    elif "Examples" not in sections:
        yield "an example that does not stand under Examples"
    parameters = list(inspect.signature(function).parameters)
    described = re.findall(r"^(?! )(.+)$", sections.get("Parameters", ""), re.MULTILINE)
    named = [name.lstrip("*") for line in described for name in line.split(", ")]
    if (named or len(parameters) > 1) and sorted(named) != sorted(parameters):
        yield f"describes the parameters {named}, which are {parameters}"
    if len(parameters) > 1 and WORDS.isdisjoint(sections):
        yield "does not say what it returns"


def _examples(function: Callable[..., Any]) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")


def _sections(docstring: str) -> dict[str, str]:
    """Return the text of each section by its title."""
    _, *parts = re.split(r"^(\w[\w ]*)\n-+\n", docstring, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))
