"""The public names change only together with their list."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import weft

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """Return what the script that writes the list defines."""
    return runpy.run_path(str(ROOT / "docs" / "tools" / "public_names.py"))


@pytest.fixture(scope="module")
def names(script: dict[str, Any]) -> list[str]:
    """Return the public names of this tree."""
    found: list[str] = script["public_names"]()
    return found


def test_a_public_name_is_added_or_removed_on_purpose(
    script: dict[str, Any], names: list[str]
) -> None:
    listed = script["read"]()
    assert names == listed, (
        f"public names changed: {', '.join(sorted({*names} ^ {*listed}))}. If that is meant, run "
        "docs/tools/public_names.py; docs/stability.md says what a removal needs"
    )


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
