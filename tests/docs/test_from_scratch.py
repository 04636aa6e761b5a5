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
        _, _, places = step.partition("\n**In weft**\n")
        assert re.search(r"\]\(\.\./core/weft/[\w/]+\.py\)", places), step[:40]


def test_names_that_the_page_gives_for_a_module_are_in_it() -> None:
    named = re.findall(r"`(\w+)` in \[`[\w/.]+`\]\(\.\./([\w/]+\.py)\)", TEXT)
    assert len(named) > 10
    for name, path in named:
        source = (ROOT / path).read_text()
        assert re.search(rf"^ *(def|class) {name}\b|^{name}\b.*=", source, re.MULTILINE), name


def test_the_source_on_the_page_is_what_the_program_prints(page: dict[str, Any]) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert page["printed"].strip() == shown.strip()


def random_graph(page: dict[str, Any], seed: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Return results, inputs and arrays for these; results may be inputs, views and gradients."""
    random = np.random.default_rng(seed)
    inputs = [page["placeholder"](3, 3) for _ in range(3)]
    ops = list(inputs)
    for _ in range(random.integers(1, 25)):
        a, b = (ops[index] for index in random.integers(len(ops), size=2))
        make = (
            lambda a, b: a + b,
            lambda a, b: a * b * random.integers(3),
            lambda a, b: page["tanh"](a) + 0,
            lambda a, b: page["tanh"](a) @ b,
            lambda a, b: a.T,
            lambda a, b: page["broadcast"](page["Sum"](a, count=1), (3,)),
        )[random.integers(6)]
        ops.append(make(a, b))
    results = [ops[index] for index in random.integers(len(ops), size=3)]
    loss = page["total"](page["tanh"](results[0]))
    results += [loss, *(page["deriv"](loss, each) for each in inputs)]
    return results, inputs, [random.uniform(-1, 1, op.shape) for op in inputs]


def require_close(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_compute_what_their_references_do(page: dict[str, Any], seed: int) -> None:
    results, inputs, arrays = random_graph(page, seed)
    expected = page["evaluate"](results, dict(zip(inputs, arrays, strict=True)))
    computation = page["Computation"](results, inputs)
    first = computation(*arrays)
    computation(*(array + 1 for array in arrays))
    require_close(first, expected)  # results are the caller's, whatever the next call computes
    require_close(computation(*arrays), expected)


def test_a_plan_that_the_verifier_accepts_computes_what_it_should(page: dict[str, Any]) -> None:
    """Offsets are drawn at random: most plans are wrong, and each of these must be refused."""
    verdicts = []
    for seed in range(400):
        results, inputs, arrays = random_graph(page, seed)
        plan = page["Plan"](results)
        random = np.random.default_rng(seed)
        for op in random.choice(np.array(plan.steps, object), random.integers(1, 3)):
            plan.offsets[op] = int(random.integers(plan.arena_size - page["size"](op) + 1))
        try:
            page["verify"](plan, results)
        except AssertionError:
            verdicts.append(False)
            continue
        verdicts.append(True)
        source, names = page["generate"](results, inputs, plan)
        exec(source, names)
        expected = page["evaluate"](results, dict(zip(inputs, arrays, strict=True)))
        require_close(names["run"](*arrays), expected)
    assert 20 < sum(verdicts) < 380


def test_a_result_over_an_operand_of_its_own_step_is_refused(page: dict[str, Any]) -> None:
    results = [page["tanh"](page["tanh"](page["placeholder"](2)))]
    plan = page["Plan"](results)
    page["verify"](plan, results)
    plan.offsets = dict.fromkeys(plan.steps, 0)
    with pytest.raises(AssertionError):
        page["verify"](plan, results)
