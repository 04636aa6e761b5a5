"""The page that builds a small weft: its program is small, checks itself, and computes right.

That its blocks run is tested with all other pages; here random graphs go through its compiler.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "from-scratch.md").read_text()
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
STEPS = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Return what the program of the page defines, and under `printed` what it prints."""
    scope: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("\n".join(BLOCK.findall(TEXT)), "from-scratch.md", "exec"), scope)
    scope["printed"] = printed.getvalue()
    return scope


def test_the_program_has_some_300_lines() -> None:
    lines = [line for block in BLOCK.findall(TEXT) for line in block.splitlines() if line.strip()]
    assert 250 < len(lines) < 350


def test_each_step_asserts_something_and_names_the_module_that_does_it() -> None:
    steps = [step for step in STEPS if re.match(r"\d", step)]
    assert len(steps) == 6
    for step in steps:
        assert re.search(r"^assert ", "".join(BLOCK.findall(step)), re.MULTILINE), step[:40]
    for step in steps[:-1]:
        (paragraph,) = re.findall(r"^\*\*In weft:\*\* (.+)$", step, re.MULTILINE)
        assert re.search(r"\]\(\.\./core/weft/[\w/]+\.py\)", paragraph), step[:40]


def test_names_that_the_page_gives_for_a_module_are_in_it() -> None:
    named = re.findall(r"`(\w+)` in \[`[\w/.]+`\]\(\.\./([\w/]+\.py)\)", TEXT)
    assert len(named) > 10
    for name, path in named:
        source = (ROOT / path).read_text()
        assert re.search(rf"^ *(def|class) {name}\b|^{name}\b.*=", source, re.MULTILINE), name


def test_the_source_on_the_page_is_what_the_program_prints(page: dict[str, Any]) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert page["printed"].strip() == shown.strip()


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_compute_what_their_references_do(page: dict[str, Any], seed: int) -> None:
    """The results are several values and gradients, some of them inputs and views of others."""
    random = np.random.default_rng(seed)
    inputs = [page["placeholder"](3, 3) for _ in range(3)]
    ops = list(inputs)
    for _ in range(random.integers(1, 25)):
        a, b = (ops[index] for index in random.integers(len(ops), size=2))
        made = (
            lambda a, b: a + b,
            lambda a, b: a * b * random.integers(3),
            lambda a, b: page["tanh"](a) + 0,
            lambda a, b: page["tanh"](a) @ b,
            lambda a, b: a.T,
            lambda a, b: page["broadcast"](page["Sum"](a, count=1), (3,)),
        )[random.integers(6)](a, b)
        ops.append(made)
    results = [ops[index] for index in random.integers(len(ops), size=3)]
    loss = page["total"](page["tanh"](results[0]))
    results += [loss, *(page["deriv"](loss, each) for each in inputs)]
    arrays = [random.uniform(-1, 1, op.shape) for op in inputs]
    expected = page["evaluate"](results, dict(zip(inputs, arrays, strict=True)))
    computation = page["Computation"](results, inputs)
    for _ in range(2):  # the second call finds what the first one left in the arena
        for one, other in zip(computation(*arrays), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
