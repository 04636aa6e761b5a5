"""Imports run one way, `import weft` is light, and everything public says what it is."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import weft
from weft import plugins
from weft.op import op_classes

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = [ROOT / name for name in ("core", "passes", "backends", "frontends")]
PACKAGES = {
    folder.name: root.name
    for root in SOURCE_ROOTS
    if root.is_dir()
    for folder in root.iterdir()
    if (folder / "__init__.py").is_file()
}
MODULES = sorted(
    path for root in SOURCE_ROOTS for package in PACKAGES for path in (root / package).rglob("*.py")
)


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[str, int]]:
    """Yield the top-level package of each import that runs, and its line."""
    below: Iterable[ast.AST] = ast.iter_child_nodes(tree)
    if isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING"):
        below = tree.orelse
    elif isinstance(tree, ast.Import):
        yield from ((alias.name.partition(".")[0], tree.lineno) for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        assert not tree.level, f"{path}:{tree.lineno} imports relatively"
        yield str(tree.module).partition(".")[0], tree.lineno
    for node in below:
        yield from imports(node, path)


def allowed(package: str) -> set[str]:
    """Return the packages of this house that one of them may import."""
    return {package} if package == "weft" else {package, "weft"}


def test_there_is_something_to_look_at():
    assert PACKAGES["weft"] == "core"
    assert PACKAGES["weft_passes"] == "passes"
    assert PACKAGES["weft_numpy"] == "backends"
    assert len(MODULES) > 40


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    package = path.relative_to(ROOT).parts[1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {(name, line) for name, line in imports(tree, path) if name in PACKAGES}
    assert [(name, line) for name, line in found if name not in allowed(package)] == []


def test_the_walk_sees_every_kind_of_import():
    text = (
        "import weft_numpy.rules\n"
        "def f():\n    from weft_passes import x\n"
        "if TYPE_CHECKING:\n    import weft_cupy\n"
        "else:\n    import weft_opencl\n"
        "try:\n    import json\nexcept ImportError:\n    import os.path\n"
    )
    found = [name for name, _ in imports(ast.parse(text), Path("x.py"))]
    assert found == ["weft_numpy", "weft_passes", "weft_opencl", "json", "os"]


HEAVY = (
    "typer", "click", "rich", "ml_dtypes", "hypothesis", "pytest", "opt_einsum", "platformdirs",
    "scipy", "matplotlib", "pyopencl", "cupy", "torch", "jax", "onnx", "numba",
)  # fmt: skip


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has after running code."""
    code += "\nimport sys; print('\\n'.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_import_weft_loads_no_plugin_and_nothing_heavy():
    loaded = loaded_by("import weft")
    own = {name for name in loaded if name.startswith("weft")}
    assert own == {"weft"}
    assert loaded.isdisjoint(HEAVY)
    assert {"numpy", "pluggy"} <= loaded


def test_building_a_graph_loads_no_plugin():
    loaded = loaded_by(
        "import weft; x = weft.placeholder((2,)); weft.deriv(weft.sum(weft.tanh(x)), x);"
        "weft.transformer_choices()"
    )
    assert {name for name in loaded if name.startswith("weft")} == {"weft"}
    assert loaded.isdisjoint(HEAVY)


def test_a_transformer_loads_its_own_backend_alone():
    loaded = loaded_by("import weft; weft.make_transformer('numpy', passes=[])")
    assert {name for name in loaded if name.startswith("weft")} == {"weft", "weft_numpy"}


@pytest.mark.parametrize("name", sorted(set(weft.__all__) - {"__version__"}))
def test_every_public_name_is_there_and_documented(name):
    assert inspect.getdoc(getattr(weft, name))


def test_all_lists_each_name_once_in_order():
    assert len(set(weft.__all__)) == len(weft.__all__)
    assert {name for name in dir(weft) if name.endswith("Op")} <= set(weft.__all__)


def own_classes() -> list[str]:
    return sorted(
        name for name, kind in op_classes.items() if kind.__module__.partition(".")[0] == "weft"
    )


@pytest.mark.parametrize("name", own_classes())
def test_every_op_class_is_documented(name):
    kind = op_classes[name]
    assert kind.__dict__.get("__doc__"), f"{kind.__module__}.{name} has no docstring of its own"
    documented = inspect.getdoc(kind) or ""
    own = [field for field in kind.fields if not any(field in base.fields for base in bases(kind))]
    assert [field for field in own if field not in documented] == []


def bases(kind: type[weft.Op]) -> list[type[weft.Op]]:
    return [base for base in kind.__mro__[1:] if issubclass(base, weft.Op)]


@pytest.mark.parametrize("name", own_classes())
def test_an_op_class_is_named_for_what_it_is(name):
    assert name == "Op" or name.endswith("Op")


def test_the_passes_of_the_pipeline_are_installed():
    assert set(weft.passes.PIPELINE) <= set(plugins.names(plugins.PASSES))
