"""Every example of the gallery runs, keeps what it asserts, and draws a picture."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import skip_without
from threadpoolctl import threadpool_limits

from weft import plugins

pytestmark = pytest.mark.slow

for package in ("matplotlib", "sklearn"):
    pytest.importorskip(package)

FOLDER = Path(__file__).parents[2] / "docs" / "gallery"
EXAMPLES = sorted(FOLDER.glob("plot_*.py"))
BY_NAME = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


@pytest.fixture
def _figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw into memory; show nothing, as there is nobody to look."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    monkeypatch.setattr(pyplot, "show", lambda: None)
    yield
    pyplot.close("all")


@pytest.mark.usefixtures("_figures")
@BY_NAME
def test_example_runs_and_draws(example: Path) -> None:
    if example.stem.endswith("_opencl"):
        skip_without("opencl")
    registered = plugins.revision()
    with threadpool_limits(1):  # threads of a BLAS spin, which takes long if tests run side by side
        runpy.run_path(str(example))

    from matplotlib import pyplot

    (number,) = pyplot.get_fignums()
    figure = pyplot.figure(number)
    figure.canvas.draw()
    assert any(axes.has_data() for axes in figure.axes)
    if plugins.any_by_hand():
        assert plugins.revision() == registered, "a plugin of the example is still there"


@BY_NAME
def test_example_has_the_form_of_the_gallery(example: Path) -> None:
    text = example.read_text()
    tree = ast.parse(text)
    title, underline, *_ = (ast.get_docstring(tree) or "").splitlines()
    assert underline == "=" * len(title)
    assert "\n# %%\n" in text, "no text between its parts"
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree)) or "testing.assert" in text
    assert text.endswith("\nplt.show()\n")
    words = {"fetch_", "urlopen", "import time", "default_rng()"}
    assert {word for word in words if word in text} == set(), "neither network, clock nor chance"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8
