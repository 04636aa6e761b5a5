"""Tools are compared on the same work: with results that agree, or left out with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import peer_tools
import peers
import pytest
from peer_tools import Unavailable
from work import WORK, Work

LARGE = {"chain-1e7", "sum", "mean", "variance", "row-sums", "column-sums", "convolution", "token"}
"""Work that takes seconds and whose functions are those of other work, or are tested elsewhere."""


@pytest.mark.parametrize("name", [name for name in WORK if name not in LARGE])
def test_weft_and_numpy_agree(name: str) -> None:
    work = WORK[name]()
    _, expected = peer_tools.numpy(work)
    _, found = peer_tools.by_weft(work)
    assert len(found) == (1 if work.rate is None else peer_tools.STEPS)
    peers.require_close(found, expected, work.tolerance)


def test_a_step_of_training_lowers_the_loss() -> None:
    _, losses = peer_tools.by_weft(WORK["mlp-step"]())
    assert losses[0] > losses[1] > losses[2]


def wrong(work: Work) -> Any:
    call, results = peer_tools.numpy(work)
    return call, [2 * each for each in results]


def missing(work: Work) -> Any:
    peer_tools.required("no_such_module")


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> peers.Outcome:
    others = {"wrong": wrong, "missing": missing, "double": peer_tools.numpy}
    monkeypatch.setattr(peers, "TOOLS", peer_tools.TOOLS | others)
    return peers.outcome(WORK["chain-1e3"](), ["numpy", "weft", *others], 2)


def test_tools_that_err_or_lack_are_left_out_with_the_reason(outcome: peers.Outcome) -> None:
    assert set(outcome.samples.seconds) == {"numpy", "weft", "double"}
    assert outcome.reasons["wrong"] == "wrong by 1.0e+00 of the largest value"
    assert outcome.reasons["missing"].startswith("not installed (No module named 'no_such_module'")
    assert outcome.best == "double"
    assert outcome.speed("numpy") == 1
    assert outcome.speed("missing") is None


def test_a_table_has_a_row_for_each_work_and_the_means(outcome: peers.Outcome) -> None:
    chosen = ["numpy", "weft", "double", "missing"]
    section = peers.markdown([outcome, outcome], chosen, "Somewhere.")
    table = [line for line in section.splitlines() if line.startswith("|")]
    assert len(table) == 5
    assert len({line.count("|") for line in table}) == 1
    assert table[-1].startswith("| geometric mean (rows) |")
    assert [cell.strip() for cell in table[-1].split("|")][6] == ""
    assert "* missing: not installed" in section


def test_weft_itself_is_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "TOOLS", peer_tools.TOOLS | {"weft": wrong})
    with pytest.raises(Unavailable, match="wrong by"):
        peers.outcome(WORK["call"](), ["numpy", "weft"], 2)


def test_a_summary_has_the_time_of_each_tool_over_that_of_weft(outcome: peers.Outcome) -> None:
    seconds = outcome.samples.seconds
    seconds["weft"], seconds["numpy"], seconds["double"] = [2.0, 2.0], [5.0, 5.0], [250.0, 250.0]
    section = peers.summary([outcome], ["numpy", "weft", "double", "missing"], "Somewhere.")
    assert section.splitlines() == [
        "| time over weft's | numpy | double | missing |",
        "|---|---|---|---|",
        "| chain of ten, 1e3 | 2.5 | 125 |  |",
        "",
        "Somewhere.",
    ]


def test_a_section_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(SystemExit, match=r"page\.md lacks the marks"):
        peers.write("new", page, "peers")
    assert page.read_text() == "no marks"
    opening, closing = peers.marks("peers")
    page.write_text(f"before\n{opening}\nold\n{closing}\nafter\n")
    peers.write("new", page, "peers")
    assert page.read_text() == f"before\n{opening}\nnew\n{closing}\nafter\n"
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize(
    ("page", "names"), [(peers.RESULTS, ["peers", "peers clang"]), (peers.README, ["ratios"])]
)
def test_the_pages_have_the_marks(page: Path, names: list[str]) -> None:
    text = page.read_text()
    for name in names:
        opening, closing = peers.marks(name)
        assert text.index(opening) < text.index(closing)


def test_not_a_number_is_not_close() -> None:
    with pytest.raises(Unavailable, match="wrong by nan"):
        peers.require_close([np.array(np.nan)], [np.array(1.0)], 1e-4)
