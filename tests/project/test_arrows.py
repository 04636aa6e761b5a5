"""Imports run one way, `import weft` is light, and everything public says what it is."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import weft
from weft import plugins
from weft.ir.op import op_classes
from weft.plugins.entrypoints import DEFAULT_PIPELINE

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path
    for root in ("core", "passes", "codegen", "backends", "frontends", "communicators")
    for path in (ROOT / root).rglob("*.py")
)
LOADERS = {
    "weft/__init__.py": "the default backend's class, which is loaded when it is asked for",
    "weft/cli/examination.py": "a process that tries a backend imports more than others",
    "weft/testing/report.py": "pytest's plugin loads weft only when it is used",
    "weft_cupy/__init__.py": "a hook loads its backend",
    "weft/report/profile.py": "few programs write a page",
    "weft/runtime/computation.py": "few programs write a report",
    "weft/runtime/transformer.py": "few programs keep or check states",
    "weft/plan/steps.py": "few programs draw or verify a plan",
    "weft/cache/serialization.py": "few programs have ops that a pass made",
    "weft_hamkaas/__init__.py": "a hook loads its importer",
    "weft_onnx/__init__.py": "a hook loads its importer",
    "weft_torch/__init__.py": "torch is loaded only for those who use it",
    "weft_numpy/__init__.py": "a hook loads its backend",
    "weft_numpy/transformer.py": "kernels are not needed for a program from the cache",
    "weft_mpi/__init__.py": "a hook loads its communicator",
    "weft_native/__init__.py": "a hook loads its backend",
    "weft_nccl/__init__.py": "a hook loads its communicator",
    "weft_opencl/__init__.py": "a hook loads its backend",
    "weft_webgpu/__init__.py": "a hook loads its backend",
    "weft_pytest.py": "pytest's plugin loads weft only when it is used",
}
"""The modules with imports of weft inside functions, and why."""


def late_imports(tree: ast.AST) -> Iterator[str]:
    """Yield the top-level package of each import inside a function."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield str(node.module).partition(".")[0]


LARGEST = 8
"""The most modules that may refer to one another, if imports for type checkers count too."""


def early_imports(body: list[ast.stmt], is_typing: bool) -> Iterator[str]:
    """Yield what a module imports when it is loaded; `is_typing` is for type checkers."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and (is_typing or "TYPE_CHECKING" not in ast.unparse(node)):
            yield from early_imports(node.body, is_typing)


EARLY = re.compile(r"^(?:import |from [\w.]+ import |if .*:(?:  #.*)?$).*(?:\n(?:[ )].*)?)*", re.M)
"""A statement outside of functions that may import something: to parse all takes seconds."""


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax of the early imports of each module, by its name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__"):
            ast.parse("\n".join(EARLY.findall(path.read_text())))
        for path in MODULES
    }  # fmt: skip


def circles(is_typing: bool) -> list[set[str]]:
    """Return the sets of modules that import one another, directly or through others."""
    trees = modules()
    direct = {
        module: {
            name if name in trees else name.rpartition(".")[0]
            for name in early_imports(tree.body, is_typing)
        }
        & trees.keys() - {module}
        for module, tree in trees.items()
    }

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        pending = [start]
        while pending:
            new = direct[pending.pop()] - found
            found |= new
            pending += new
        return found

    below = {name: reached(name) for name in direct}
    found = {frozenset({name} | {each for each in under if name in below[each]})
             for name, under in below.items() if name in under}  # fmt: skip
    return [set(each) for each in found]


def test_imports_make_no_circles():
    assert not circles(is_typing=False)
    largest = max(circles(is_typing=True), key=len)
    assert 1 < len(largest) <= LARGEST, sorted(largest)


def test_only_loaders_import_weft_late():
    """The direction of imports itself is a contract of import-linter, in pyproject.toml."""
    found = {
        "/".join(path.relative_to(ROOT).parts[1:])
        for path in MODULES
        if re.search(r"^ +(?:from|import) weft", text := path.read_text(), re.MULTILINE)
        and any(name.startswith("weft") for name in late_imports(ast.parse(text)))
    }
    assert len(MODULES) > 400
    assert sorted(found) == sorted(LOADERS)


HEAVY = (
    "typer", "click", "rich", "ml_dtypes", "hypothesis", "pytest", "opt_einsum", "platformdirs",
    "scipy", "matplotlib", "pyopencl", "wgpu", "cupy", "torch", "jax", "onnx", "numba",
    "jinja2", "mpi4py",
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


@pytest.mark.parametrize("use", ["str(graph)", "graph._repr_html_()", "x._repr_html_()"])
def test_a_graph_reaches_the_layers_that_show_it_in_a_fresh_process(use: str) -> None:
    code = f"import weft; x = weft.placeholder((2,)); graph = weft.capture([x], [x]); {use}"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_transformer_loads_its_own_backend_alone():
    loaded = loaded_by("import weft; weft.make_transformer('numpy', passes=[])")
    assert {name for name in loaded if name.startswith("weft")} == {"weft", "weft_numpy"}


def test_every_public_name_is_there_and_documented():
    names = sorted(set(weft.__all__) - {"__version__", "newaxis"})
    assert [name for name in names if not inspect.getdoc(getattr(weft, name))] == []


def test_all_lists_each_name_once_in_order():
    assert len(set(weft.__all__)) == len(weft.__all__)
    assert {name for name in dir(weft) if name.endswith("Op")} <= set(weft.__all__)


def own_classes() -> list[str]:
    return sorted(
        name for name, kind in op_classes.items() if kind.__module__.partition(".")[0] == "weft"
    )


def test_every_op_class_is_documented():
    for name in own_classes():
        kind = op_classes[name]
        assert kind.__dict__.get("__doc__"), f"{kind.__module__}.{name} has no docstring of its own"
        documented = inspect.getdoc(kind) or ""
        inherited = {field for base in bases(kind) for field in base.fields}
        missing = [f for f in kind.fields if f not in inherited and f not in documented]
        assert not missing, f"{kind.__module__}.{name} does not describe {missing}"


def bases(kind: type[weft.Op]) -> list[type[weft.Op]]:
    return [base for base in kind.__mro__[1:] if issubclass(base, weft.Op)]


def test_an_op_class_is_named_for_what_it_is():
    assert [name for name in own_classes() if not name.endswith("Op")] == []


def test_the_passes_of_the_pipeline_are_installed():
    assert set(DEFAULT_PIPELINE) <= set(plugins.names(plugins.PASSES))
