from __future__ import annotations

import sys
from pathlib import Path

import mutant_switch
import pytest
from source_mutants import KINDS, choose, mutants_of, write

TEXT = '''
def f(x: int = 3, *, y: int = 4) -> bool:
    """Return 5."""
    if not x:
        raise ValueError(f"{x + 1}" + str(2))
    print(x)
    return divmod(x, -y)[0] < 7 and True
'''


def test_each_kind_of_expression_is_changed() -> None:
    changes = {(each.kind, each.before, each.after) for each in mutants_of("a.py", TEXT)}
    assert changes == {
        ("condition", "not x", "not (not x)"),
        ("sign", "not x", "(x)"),
        ("call", "print(x)", "None"),
        ("logic", "divmod(x, -y)[0] < 7 and True", "(divmod(x, -y)[0] < 7) or (True)"),
        ("comparison", "divmod(x, -y)[0] < 7", "(divmod(x, -y)[0]) <= (7)"),
        ("operands", "divmod(x, -y)", "divmod(-y, x)"),
        ("sign", "-y", "(y)"),
        ("constant", "0", "1"),
        ("constant", "7", "8"),
        ("constant", "True", "False"),
    }
    assert {each.kind for each in mutants_of("a.py", "def f(x):\n    return x + 1")} < {*KINDS}


def test_a_tree_with_all_mutants_is_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "part" / "mutated_module.py"
    path.parent.mkdir()
    path.write_text("# Größe\ndef f(x):\n    return (x +\n        10) * 2 < x - 3\n")
    chosen = choose(tmp_path, [["part"]], 20, seed=1)
    assert chosen == choose(tmp_path, [["part"]], 20, seed=1)
    kinds = {each.after: number for number, each in enumerate(chosen, 1)}
    write(tmp_path, chosen)
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(mutant_switch, "active", 0)
    import mutated_module  # type: ignore[import-not-found]

    assert [mutated_module.f(x) for x in (-23, -24)] == [False, True]
    results = []
    for number in kinds.values():
        monkeypatch.setattr(mutant_switch, "active", number)
        results.append([mutated_module.f(x) for x in (-40, -24, -23, -22, 0)])
    assert [True, True, False, False, False] not in results
    sys.modules.pop("mutated_module")


def test_what_is_evaluated_is_noted_with_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_MUTANT_HITS", str(tmp_path))
    for _ in range(2):
        assert not mutant_switch.is_on(12345)
    (noted,) = tmp_path.iterdir()
    (line,) = noted.read_text().splitlines()
    number, _, name = line.partition("\t")
    assert number == "12345"
    assert name.endswith("::test_what_is_evaluated_is_noted_with_its_test")
