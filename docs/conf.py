"""Configures Sphinx, which builds the site from these pages: ``make docs``."""

from __future__ import annotations

import pkgutil
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

import weft

DOCS = Path(__file__).parent
sys.path += [str(DOCS / "extensions"), str(DOCS / "tools")]

project = "weft"
author = copyright = "the weft authors"  # Sphinx reads this name
version = release = weft.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "api_links",
    "generated_pages",
    "mathml",
    "repository_files",
    "shared_navigation",
]
exclude_patterns = ["gallery"]
# A block without a language is text: output, or a listing of a graph.
highlight_language = "none"
myst_enable_extensions = ["colon_fence"]
# The anchors of headings are those that a forge makes of them.
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"weft {version}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
pygments_dark_style = "github-dark"
html_math_renderer = "mathml"

# `plot_gallery=0` on the command line builds the pages of the gallery without running it.
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "generated/gallery",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
}

# Inventories from `inventories.py`, since a build has no network.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "inventories/python.inv"),
    "numpy": ("https://numpy.org/doc/stable", "inventories/numpy.inv"),
}

# Single backticks in docstrings are code, which is a link where the reference has the name.
default_role = "py:obj"
# Parameters whose names end in an underscore keep it.
strip_signature_backslash = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Signatures name these types, which `reference/graphs.md` describes, rather than spell them out.
autodoc_type_aliases = {
    name.rpartition(".")[2]: name
    for name in (
        "weft.ir.tensor.TensorLike",
        "weft.ir.axes.AxesLike",
        "weft.ir.axes.AxisKey",
        "weft.ir.axes.AxisKeys",
        "weft.ir.dtypes.DTypeLike",
        "weft.ir.storage.InitialValue",
        "weft.nn.spatial.geometry.Padding",
        "weft.nn.spatial.geometry.PerAxis",
        "weft.ops.reductions.reduced_axes.OutAxes",
        "weft.ops.shape.joining.PadWidth",
    )
}
autosummary_generate = False  # `docs/tools/catalog.py` writes the pages
maximum_signature_line_length = 88
python_use_unqualified_type_names = True


def without_index(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Keep what a class says of its attributes out of the index: properties are entries there."""
    for number in reversed(range(len(lines))):
        if lines[number].startswith(".. attribute:: "):
            lines.insert(number + 1, "   :no-index:")


def with_short_types(
    app: Sphinx,
    what: str,
    name: str,
    value: object,
    options: object,
    signature: str | None,
    result: str | None,
) -> tuple[str | None, str | None]:
    """Leave out that a parameter may be anything, and name types that others are made of."""
    if signature is not None:
        signature = re.sub(r"TypeAliasForwardRef\('([\w.]+)'\)", r"\1", signature)
        signature = re.sub(r": ~?(typing\.)?Any = ", "=", signature)
        signature = re.sub(r": ~?(typing\.)?Any(?=[,)])", "", signature)
    return signature, result


def module_with_source(app: Sphinx, module: str | None, attribute: str) -> str | None:
    """Return the module itself for an attribute whose class is built in, and has no source."""
    if module is None:
        return None
    try:
        value = pkgutil.resolve_name(f"{module}:{attribute}")
    except AttributeError:
        return None
    return module if getattr(value, "__module__", None) == "builtins" else None


def setup(app: Sphinx) -> None:
    """Connect what follows Napoleon and viewcode."""
    # Napoleon has a priority of 500.
    app.connect("autodoc-process-docstring", without_index, priority=900)
    app.connect("autodoc-process-signature", with_short_types)
    app.connect("viewcode-follow-imported", module_with_source)
