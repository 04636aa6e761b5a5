"""The page for users of Nervana Graph: names that exist, and an example for each statement."""

import re
from pathlib import Path

import weft

TEXT = (Path(__file__).parents[2] / "docs" / "coming-from-nervana-graph.md").read_text()


def rows_of(section: str) -> list[tuple[str, str]]:
    """Return the rows of the table of a section, without its head."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| (.*) \| (.*) \|$", text, re.MULTILINE)[1:]  # type: ignore[no-any-return]


NOT_THERE = rows_of("Not there")


def test_functions_in_the_tables_exist() -> None:
    rows = [right for _, right in (*rows_of("Names"), *NOT_THERE)]
    called = {name for row in rows for name in re.findall(r"`(\w+)[`(]", row)}
    assert len(called) > 20
    there = {name for name in called if hasattr(weft, name) or hasattr(weft.Op, name)}
    assert called - there == {"initial_value", "weft_c"}


def test_what_is_called_absent_is_absent() -> None:
    names = re.findall(r"`([\w.]+)", " ".join(left for left, _ in NOT_THERE))
    assert {"AxesMap", "NameableValue", "Fill", "ConstantOp", "Digraph.can_reach"} <= {*names}
    owners = {"Computation": weft.Computation, "op": weft.Op, "axis": weft.Axis}
    there = []
    for name in names:
        owner, _, attribute = name.rpartition(".")
        if hasattr(owners.get(owner, weft), attribute):
            there.append(name)
    assert there == ["axis.length"]


def test_each_statement_has_an_example() -> None:
    parts = re.split(r"^\*\*", TEXT, flags=re.MULTILINE)[1:]
    assert len(parts) > 20
    assert [part.splitlines()[0] for part in parts if "```python\n" not in part] == []
    assert [part.splitlines()[0] for part in parts if "assert" not in part] == []
