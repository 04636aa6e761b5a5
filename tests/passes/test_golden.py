"""Each file in golden/ holds a graph before a pass and the graph expected after it.

The first line names the pass and the options of the target. A file without its second part is
completed by running this test with WEFT_WRITE_GOLDEN=1; look at what it wrote before committing it.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fusing import fusible

import weft
from weft import plugins
from weft.plugins.entrypoints import OWN
from weft.testing.reference import evaluate

FOLDER = Path(__file__).parent / "golden"
BEFORE, AFTER = "# before\n", "# after\n"


def target(**options: Any) -> weft.Target:
    keeps = options.pop("keeps", ())
    if options.pop("fuses", False):
        options["fusible"] = fusible
    return weft.Target("golden", supports=lambda op: type(op).__name__ in keeps, **options)


def read(path: Path) -> tuple[str, dict[str, Any], str, str]:
    head, rest = path.read_text().split(BEFORE)
    before, _, after = rest.partition(AFTER)
    words = head.removeprefix("#").split()
    options = {key: eval(value, {}) for key, value in (word.split("=") for word in words[1:])}
    return words[0], options, before, after


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_pass_turns_before_into_after(path: Path) -> None:
    name, options, before, after = read(path)
    graph = weft.parse(before)
    assert graph.text() == before
    result = plugins.load(plugins.PASSES, name)().do_pass(graph, target(**options))
    result.verify()
    assert graph.text() == before, "a pass must leave its graph as it was"
    if not after and os.environ.get("WEFT_WRITE_GOLDEN"):
        path.write_text(f"{path.read_text()}{AFTER}{result}")
    else:
        assert result.text() == after
    if result.text() == before:
        assert result is graph, "a pass that changes nothing returns the very graph it got"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_pass_keeps_the_value(path: Path) -> None:
    _, options, before, after = read(path)
    if options.get("fast_math"):
        pytest.skip("fast_math changes values by its nature")
    graphs = weft.parse(before), weft.parse(after)
    random = np.random.default_rng(0)
    inputs = [random.uniform(0.5, 2, op.axes.shape).astype(op.dtype) for op in graphs[0].inputs]
    states = {
        state.label: random.uniform(0.5, 2, state.axes.shape).astype(state.dtype)
        for state in graphs[0].states
    }
    results = [
        evaluate(graph, inputs, {state: states[state.label] for state in graph.states})
        for graph in graphs
    ]
    (before_values, before_states), (after_values, after_states) = results
    for one, other in zip(before_values, after_values, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    after_by_name = {state.label: value for state, value in after_states.items()}
    for state, value in before_states.items():
        np.testing.assert_allclose(value, after_by_name.get(state.label, value), rtol=1e-6)


def test_every_pass_has_a_golden_file() -> None:
    covered = {read(path)[0] for path in FOLDER.glob("*.txt")}
    records = plugins.records(plugins.PASSES)
    assert covered == {each.name for each in records if each.distribution == OWN}
