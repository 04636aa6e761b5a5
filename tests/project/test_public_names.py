"""The public names change only together with the changelog."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import weft

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
ROW = re.compile(r"^\| `([\w.]+)` \| `([\w.]+)` \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """Return what the script that writes the list defines."""
    return runpy.run_path(str(ROOT / "docs" / "public_names.py"))


@pytest.fixture(scope="module")
def names(script: dict[str, Any]) -> list[str]:
    """Return the public names of this tree."""
    found: list[str] = script["public_names"]()
    return found


def section(heading: str) -> str:
    """Return the text of the changelog below one of its headings of releases."""
    (found,) = re.findall(
        rf"^## \[{re.escape(heading)}\].*?\n(.*?)(?=^## |\Z)", CHANGELOG, re.MULTILINE | re.DOTALL
    )
    return str(found)


def unannounced(old: Iterable[str], new: Iterable[str], text: str) -> list[str]:
    """Return the names that were added or removed and that the text does not tell.

    It tells a name that it gives in backticks, and every name that was moved as a row of a table
    says: from a module, or from a place of its own, to another.
    """
    old, new = set(old), set(new)
    told = set(re.findall(r"`([^`\n]+)`", text))
    for before, after in ROW.findall(text):
        for name in old - new:
            moved = after + name.removeprefix(before)
            if (name + ".").startswith(before + ".") and moved in new:
                told |= {name, moved}
    return sorted((old ^ new) - told)


def test_every_name_that_changed_since_the_last_release_is_in_the_changelog(
    script: dict[str, Any], names: list[str]
) -> None:
    _, released = script["read"]()
    assert unannounced(released, names, section("Unreleased")) == [], (
        "public names changed: name each under Unreleased in CHANGELOG.md, in backticks, "
        "as docs/stability.md says"
    )


def test_the_list_is_that_of_the_last_release_as_the_changelog_marks_it(
    script: dict[str, Any],
) -> None:
    """So nobody changes the list itself instead of writing a line in the changelog."""
    version, released = script["read"]()
    latest = re.findall(r"^## \[(\d.*?)\]", CHANGELOG, re.MULTILINE)[0]
    assert version == latest
    mark = f"Public names: {len(released)}, `{script['digest'](released)}`"
    assert mark in section(latest), "run docs/public_names.py only when a release is made"


def test_every_kind_of_name_is_in_the_list(names: list[str]) -> None:
    assert set(weft.__all__) <= {name.removeprefix("weft.") for name in names}
    for name in (
        "weft.add",
        "weft.errors.AxesError",
        "weft.plugins.load",
        "weft_hamkaas.parse_script",
        "weft_numpy.rules.rules",
        "hook weft_register_backends",
        "entry-point group weft.passes",
        "command weft doctor",
        "variable WEFT_BACKEND",
    ):
        assert name in names
    assert len(names) > 900
    assert names == sorted(set(names))


def test_names_that_pages_use_are_found(script: dict[str, Any]) -> None:
    page = (
        "```python\nimport weft\nfrom weft.errors import AxesError as E\n\n"
        "weft.dtypes.promote(a.b, weft.add)\n```\n```text\nweft.dtypes.other\n```\n"
    )
    assert set(script["used_names"](page)) == {"weft.errors.AxesError", "weft.dtypes.promote"}


def test_what_is_not_told_is_found() -> None:
    old = ["weft.a", "weft.b", "weft.m.x", "weft.m.y", "weft.mm.z", "weft.k"]
    new = ["weft.a", "weft.c", "weft.n.x", "weft.q", "weft_k"]
    changed = sorted({*old} ^ {*new})
    assert unannounced(old, new, "") == changed
    assert unannounced(old, old, "") == []
    # What tells nothing: a longer name, one without backticks, a row for another module.
    assert unannounced(old, new, "`weft.bb`, weft.b\n| `weft.a` | `weft.z` |\n") == changed
    text = "`weft.b` is `weft.c` now.\n| `weft.m` | `weft.n` |\n| `weft.k` | `weft_k` |\n"
    assert unannounced(old, new, text) == ["weft.m.y", "weft.mm.z", "weft.q"]
