"""The page for users of Nervana Graph: names that exist, and an example for each statement."""

import re
from pathlib import Path

import weft

TEXT = (Path(__file__).parents[2] / "docs" / "coming-from-nervana-graph.md").read_text()


def test_functions_in_the_table_of_names_exist() -> None:
    rows = re.findall(r"^\| .* \| (.*) \|$", TEXT, re.MULTILINE)[1:]
    called = {name for row in rows for name in re.findall(r"`(\w+)[`(]", row)}
    assert len(called) > 20
    assert {name for name in called - {"initial_value"} if not hasattr(weft, name)} == set()


def test_each_statement_has_an_example() -> None:
    parts = re.split(r"^\*\*", TEXT, flags=re.MULTILINE)[1:]
    assert len(parts) > 12
    assert [part.splitlines()[0] for part in parts if "```python\n" not in part] == []
    assert [part.splitlines()[0] for part in parts if "assert" not in part] == []
