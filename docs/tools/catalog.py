"""Writes the page of all ops, `ops.md`, from signatures, docstrings and the op table.

Run it after a public function has changed: ``make docs``. A test fails while the page is stale. The
site has a page for each family too (`family_pages`), with what `op_facts` finds.
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

PAGE = Path(__file__).parents[1] / "ops.md"

HEAD = """\
# Operations

Every public function that makes ops, by family; each is `weft.<name>`, and `help(weft.<name>)` says
the rest. This page is written by `docs/tools/catalog.py`. [Semantics](semantics.md) says what
holds for all of them: dtypes, broadcasting, NaN, overflow, ties, gradients.
[Primitives](primitives.md) lists what a backend must have, [support](support.md) what each backend
was found to do.

*∂* marks what has a gradient. The last column names the backends that have a rule for each op that
a plain use builds; the others run what these decompose into. *C* stands for native, OpenCL and
CuPy. Axes may be positional or named, except where a function says otherwise.
"""

HEAD_OF_FAMILIES = """\
# Operations by family

Each function with its formula, shapes, dtypes and gradient, the ops that it builds, and the
backends that run these as they are. [Operations](../../ops.md) lists all of them on one page.

```{toctree}
:maxdepth: 1

"""

BACKENDS_IN_FULL = {"C": "native, OpenCL, CuPy"}

FAMILIES = (
    "ops.pointwise.elementwise", "ops.pointwise.comparison", "ops.pointwise.bits",
    "ops.pointwise.math", "ops.pointwise.trigonometry", "ops.pointwise.special",
    "ops.pointwise.rounding", "ops.pointwise.complex_parts", "nn.activation",
    "ops.reductions.reduction", "ops.reductions.statistics", "ops.reductions.cumulative",
    "ops.reductions.sorting", "ops.reductions.counting", "ops.shape.creation", "ops.shape.movement",
    "ops.shape.arrangement", "ops.shape.joining", "ops.indexing.slicing", "ops.indexing.gathering",
    "ops.indexing.multi_index", "ops.indexing.dynamic_slices", "ops.products.linalg",
    "ops.products.contraction", "ops.products.decompositions", "nn.spatial.windows",
    "nn.spatial.convolutions", "nn.spatial.pooling", "nn.spatial.unpooling",
    "nn.spatial.resampling", "nn.spatial.regions", "ops.reductions.probabilities",
    "nn.normalization", "nn.losses", "nn.distances", "nn.ctc", "nn.dot_product_attention",
    "ops.indexing.positions", "nn.cells", "nn.recurrent", "ops.random.philox",
    "ops.random.distributions", "nn.regularization", "train.initializers", "ir.storage",
    "ops.control.state", "train.clipping", "train.optimizers", "train.schedules",
    "ops.control.effects", "transforms.computation_op", "ops.control.calls", "ranks.collectives",
    "train.parallelism", "ops.control.recomputation",
)  # fmt: skip
"""The modules of `weft` in the order of the page."""


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
    title = (module.__doc__ or "").partition("\n")[0].rstrip(".")
    lines = [
        "",
        f"## {title}",
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


def family_pages() -> dict[str, str]:
    """Return a page for each family by its name, and under `index` one that lists them."""
    modules = {name.rpartition(".")[2]: _module(name) for name in FAMILIES}
    pages = {name: family_page(module) for name, module in modules.items() if functions(module)}
    pages["index"] = HEAD_OF_FAMILIES + "".join(f"{name}\n" for name in pages) + "```\n"
    return pages


def family_page(module: ModuleType) -> str:
    """Return the page of a family: its functions with their facts, and its op classes."""
    title, _, rest = (module.__doc__ or "").strip().partition("\n")
    parts = [f"# {title.rstrip('.')}", rest.strip()]
    found = {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower)}
    own = {name: value for name, value in found.items() if value.__name__ == name}
    for name in own:
        if inspect.isfunction(own[name]):
            parts += [_directive("autofunction", name), "\n".join(_facts_table(name))]
    classes = [name for name in own if inspect.isclass(own[name])]
    if classes:
        parts += ["## Classes", *(_directive("autoclass", name) for name in classes)]
    aliases = [(name, value) for name, value in found.items() if name not in own]
    if aliases:
        parts += ["## Aliases", *(_alias(name, value) for name, value in aliases)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _alias(name: str, value: Any) -> str:
    kind = "class" if inspect.isclass(value) else "function"
    entry = f"```{{py:{kind}}} weft.{name}"
    return f"{entry}\n`weft.{value.__name__}` by another name.\n```"


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"weft.{name}")


def _directive(kind: str, name: str) -> str:
    return f"```{{eval-rst}}\n.. {kind}:: weft.{name}\n```"


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
