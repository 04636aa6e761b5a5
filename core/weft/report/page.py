"""Pages: a document as one HTML file that needs nothing else, not even a network.

The data is compressed JSON in a script element, as text in which no tag can end or begin. A policy
in the page lets the browser run the scripts of this package only, by their hashes.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from base64 import b64decode, b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from weft.files import replacing

LIBRARIES = (
    "dagre.min.js",
    "d3-dispatch.min.js", "d3-selection.min.js", "d3-color.min.js", "d3-interpolate.min.js",
    "d3-ease.min.js", "d3-timer.min.js", "d3-transition.min.js", "d3-drag.min.js",
    "d3-zoom.min.js", "d3-array.min.js", "d3-format.min.js", "d3-time.min.js",
    "d3-time-format.min.js", "d3-scale.min.js", "d3-axis.min.js",
)  # fmt: skip
"""The libraries in the order in which they need each other."""

SCRIPTS = ("elements.js", "model.js", "graph.js", "code.js", "memory.js", "profile.js", "report.js")
"""The scripts of a page, which share one scope."""


def write_report_page(document: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the document of a report as a page.

    Raises ArgumentError if the file cannot be written; an older file then stays as it is.
    """
    _write(f"{document['computation']} on {document['backend']}", document, path)


def write_profile_page(profile: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a profile, as `Profile.to_dict` returns it, as a page.

    Raises ArgumentError if the file cannot be written; an older file then stays as it is.
    """
    title = f"Profile of {profile['computation']} on {profile['backend']}"
    _write(title, {"profile": profile}, path)


def _write(title: str, data: dict[str, Any], path: str | os.PathLike[str]) -> None:
    # Opened first: what cannot be written is refused before any work.
    with replacing(path) as file:
        file.write(page(title, data).encode("utf-8", "replace"))


def page(title: str, data: dict[str, Any]) -> str:
    """Return a page with a title and the data that its scripts show."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_asset("report.html"))
    scripts = _scripts()
    return template.render(
        title=title,
        style=_asset("report.css"),
        scripts=scripts,
        hashes=" ".join(f"'sha256-{_hash(each)}'" for each in scripts),
        data=packed(data),
    )


def packed(data: dict[str, Any]) -> str:
    """Return data for JSON as text of letters and digits, which `unpacked` reads back."""
    text = json.dumps(data, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpacked(page: str) -> dict[str, Any]:
    """Return the data of a page."""
    (text,) = re.findall(r'id="data">([^<]*)</script>', page)
    return json.loads(gzip.decompress(b64decode(text)))  # type: ignore[no-any-return]


def _scripts() -> list[str]:
    """Return the libraries, and what shows the data, as two scripts."""
    libraries = "\n".join(_library(name) for name in LIBRARIES)
    own = "\n".join(_asset(name) for name in SCRIPTS)
    return [libraries, f'"use strict";\n(async () => {{\n{own}\n}})();']


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text("utf-8")


def _library(name: str) -> str:
    """Return a library without the comment by which browsers look for its source map."""
    text = _asset(f"vendor/{name}")
    return text.partition("//# sourceMappingURL=")[0]


def _hash(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode()
