"""Writes the page of all ops, `ops.md`, from signatures, docstrings and the op table.

Run it after a public function has changed: ``make docs``. A test fails while the page is stale. The
site has more pages, which are written when it is built: one for each public function, with what
`op_facts` finds, one for each family, and one that lists all functions (`pages`).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))
from op_facts import BACKENDS, Facts, facts
from public_functions import public_functions

PAGE = Path(__file__).parents[1] / "ops.md"

HEAD = """\
# Operations

Every public function that makes ops, by family; each is `weft.<name>`, and `help(weft.<name>)`, or
its page on the site, says the rest. This page is written by `docs/tools/catalog.py`.
[Semantics](semantics.md) says what holds for all of them: dtypes, broadcasting, NaN, overflow,
ties, gradients.
[Primitives](primitives.md) lists what a backend must have, [support](support.md) what each backend
was found to do.

*∂* marks what has a gradient. The last column names the backends that have a rule for each op that
a plain use builds; the others run what these decompose into. *C* stands for native, OpenCL and
CuPy. Axes may be positional or named, except where a function says otherwise.
"""

HEAD_OF_INDEX = """\
# All functions

Every public function has a page: its signature, parameters, results, errors and an example. Of one
that makes ops the page says, too, which dtypes and gradients are tested, which ops it builds, and
which backends run these as they are. [Operations](../ops.md) compares them in tables.

Examples begin with `import numpy as np` and `import weft`; arrays print four digits, as after
`np.set_printoptions(precision=4)`.
"""

BACKENDS_IN_FULL = {"C": "native, OpenCL, CuPy"}

FAMILIES = (
    "ops.pointwise.elementwise", "ops.pointwise.comparison", "ops.pointwise.bits",
    "ops.pointwise.math", "ops.pointwise.trigonometry", "ops.pointwise.special",
    "ops.pointwise.rounding", "ops.pointwise.complex_parts", "nn.activation",
    "ops.reductions.reduction", "ops.reductions.statistics", "ops.reductions.nan_reductions",
    "ops.reductions.cumulative",
    "ops.reductions.sorting", "ops.reductions.counting", "ops.shape.creation", "ops.shape.movement",
    "ops.shape.arrangement", "ops.shape.joining", "ops.indexing.slicing", "ops.indexing.gathering",
    "ops.indexing.multi_index", "ops.indexing.segments", "ops.indexing.dynamic_slices",
    "ops.products.linalg", "ops.products.contraction", "ops.products.decompositions",
    "nn.spatial.windows", "nn.spatial.convolutions", "nn.spatial.pooling", "nn.spatial.unpooling",
    "nn.spatial.resampling", "nn.spatial.regions", "ops.reductions.probabilities",
    "nn.normalization", "nn.losses", "nn.distances", "nn.ctc", "nn.dot_product_attention",
    "ops.indexing.positions", "nn.quantization", "nn.cells", "nn.recurrent", "ops.random.philox",
    "ops.random.distributions", "nn.regularization", "train.initializers", "ir.storage",
    "ops.control.state", "train.clipping", "train.optimizers", "train.schedules",
    "ops.control.effects", "transforms.computation_op", "ops.control.calls", "ranks.collectives",
    "train.parallelism", "ops.control.recomputation",
)  # fmt: skip
"""The modules of `weft` in the order of the page."""

BESIDE_OPS = (
    "functional.jit", "functional.gradients", "functional.vectorization", "functional.control_flow",
    "random", "optim", "fft.fourier", "fft.cosines", "signal.windows", "signal.spectra",
    "signal.convolutions", "linalg.factorizations", "linalg.systems", "linalg.norms", "special",
    "ops.special.logarithms",
    "standard", "autodiff.reverse", "autodiff.gradient_graph", "runtime.factory",
    "runtime.artifact_loading", "ir.axes", "ir.lengths", "ir.dtypes", "ir.op", "ir.scope",
    "transforms.capture", "text.parser", "nervana",
)  # fmt: skip
"""The modules of public functions that make no ops, or ops in other functions."""


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(_family(name) for name in FAMILIES)


def functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the public functions of a family by name, aliases included."""
    found = ((name, getattr(module, name)) for name in module.__all__)
    return {name: value for name, value in found if inspect.isfunction(value)}


def _family(name: str) -> str:
    module = _module(name)
    found = functions(module)
    if not found:
        return ""
    lines = [
        "",
        f"## {_title(module)}",
        "",
        "| function | gives | | whole on |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *_rows(found)]) + "\n"


def _rows(found: dict[str, Callable[..., Any]]) -> Iterator[str]:
    for name, function in sorted(found.items(), key=lambda item: item[0].lower()):
        if name != function.__name__:
            yield f"| `{name}` | is `{function.__name__}` | | |"
            continue
        found = facts(name)
        mark = "∂" if found and found.gradient else ""
        whole = _whole(found) if found else ""
        yield f"| `{name}{_signature(function)}` | {_gives(function)} | {mark} | {whole} |"


def _whole(found: Facts) -> str:
    return "all" if len(found.whole) == len(BACKENDS) else ", ".join(found.whole)


def pages() -> dict[str, str]:
    """Return the pages that the site has beside `ops.md`, by the names of their files."""
    names = public_functions()
    families = {name: each for name in FAMILIES if functions(each := _module(name))}
    found = {f"ops/{_last(name)}": family_page(each, names) for name, each in families.items()}
    found |= {f"api/{own[0]}": function_page(each, own) for each, own in names.items()}
    return found | {"api": _index(names, found)}


def function_page(function: Callable[..., Any], names: list[str]) -> str:
    """Return the page of a function: what its docstring says, its facts and its other names."""
    name, *others = names
    family = function.__module__.removeprefix("weft.")
    where = f"../ops/{_last(family)}.md" if family in FAMILIES else "../api.md"
    parts = [
        f"---\norphan: true\n---\n\n# {name}",
        _directive("autofunction", name),
        "\n".join(_facts_table(function.__name__)) if name.count(".") == 1 else "",
        *(_alias(other, name) for other in others),
        f"Family: [{_title(_module(family))}]({where})",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def family_page(module: ModuleType, names: dict[Callable[..., Any], list[str]]) -> str:
    """Return the page of a family: its functions with a line each, and its op classes."""
    parts = [f"# {_title(module)}", (module.__doc__ or "").strip().partition("\n")[2].strip()]
    parts.append(_summary(names[each] for each in names if each.__module__ == module.__name__))
    found = {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower)}
    classes = {name: value for name, value in found.items() if inspect.isclass(value)}
    own = [name for name, value in classes.items() if value.__name__ == name]
    if own:
        parts += ["## Classes", *(_directive("autoclass", f"weft.{name}") for name in own)]
    aliases = [
        _alias(f"weft.{name}", f"weft.{value.__name__}", "class")
        for name, value in classes.items()
        if name not in own
    ]
    if aliases:
        parts += ["## Aliases", *aliases]
    return "\n\n".join(part for part in parts if part) + "\n"


def _index(names: dict[Callable[..., Any], list[str]], families: Iterable[str]) -> str:
    """Return the page that lists all functions, by family."""
    by_module: dict[str, list[list[str]]] = {}
    for function, own in names.items():
        by_module.setdefault(function.__module__.removeprefix("weft."), []).append(own)
    parts = [HEAD_OF_INDEX]
    for family in (*BESIDE_OPS, *(each for each in FAMILIES if each in by_module)):
        parts += [f"## {_title(_module(family))}", _summary(by_module.pop(family))]
    assert not by_module, f"name these modules in BESIDE_OPS or FAMILIES: {list(by_module)}"
    inner = [name for name in families if name.startswith("ops/")]
    parts.append("\n".join(["```{toctree}", ":hidden:", "", *inner, "```"]))
    return "\n\n".join(parts) + "\n"


def _summary(functions: Iterable[list[str]]) -> str:
    """Return the table of functions, by their names, with the first sentence of each."""
    lines = "".join(f"   {names[0]}\n" for names in sorted(functions))
    return f"```{{eval-rst}}\n.. autosummary::\n   :nosignatures:\n\n{lines}```"


def _title(module: ModuleType) -> str:
    return (module.__doc__ or "").partition("\n")[0].rstrip(".")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _alias(name: str, value: str, kind: str = "function") -> str:
    entry = f"```{{py:{kind}}} {name}"
    return f"{entry}\n`{value}` by another name.\n```"


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"weft.{name}")


def _directive(kind: str, name: str) -> str:
    return f"```{{eval-rst}}\n.. {kind}:: {name}\n```"


def _facts_table(name: str) -> Iterator[str]:
    found = facts(name)
    if found is None:
        return
    yield from ("| | |", "| --- | --- |")
    shapes = [
        f"`{operands}` → `{result}`" if operands else f"`{result}`"
        for operands, result in found.shapes
    ]
    if shapes:
        yield f"| shapes, for example | {'; '.join(shapes)} |"
    yield f"| dtypes, as tested | {', '.join(found.dtypes)} |"
    yield f"| gradient | {found.gradient or 'none'} |"
    yield f"| builds | {_classes(found.ops)} |"
    if found.primitives != found.ops:
        yield f"| decomposes into | {_classes(found.primitives)} |"
    if found.whole or found.primitives != found.ops:
        whole = ", ".join(BACKENDS_IN_FULL.get(each, each) for each in found.whole)
        yield f"| runs whole on | {whole or 'none: backends run what it decomposes into'} |"


def _classes(names: Iterable[str]) -> str:
    return ", ".join(f"`weft.{name}`" for name in names)


def _signature(function: Callable[..., Any]) -> str:
    parameters = inspect.signature(function).parameters.values()
    parts = []
    for each in parameters:
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f"={_shown(each.default)}"
        parts.append(f"{star}{each.name}{default}")
    return f"({', '.join(parts)})"


def _shown(default: Any) -> str:
    if default is ...:
        return "..."
    return default.name if isinstance(default, np.dtype) else repr(default).replace("'", '"')


def _gives(function: Callable[..., Any]) -> str:
    sentence = " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())
    gives = sentence.removeprefix("Return ")
    return (gives[:1].lower() + gives[1:] if gives == sentence else gives).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
