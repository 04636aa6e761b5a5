"""The picture of a plan: one box a tensor, whatever its name is, and complete or not there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from planned import deep, plan_of, target

import weft
from weft.errors import MemoryLimitError
from weft.plan import picture
from weft.plan.picture import TOP, boxes
from weft.plan.plan import ARENA, STATE, make_plan
from weft.plan.steps import Plan

SVG = "{http://www.w3.org/2000/svg}"


def drawn(plan: Plan, tmp_path: Path):
    plan.picture(tmp_path / "plan.svg")
    return ElementTree.parse(tmp_path / "plan.svg").getroot()


def labeled(root: Any):
    """Return the rectangles that say something, by what they say."""
    found = {}
    for each in root.iter(f"{SVG}rect"):
        title = each.find(f"{SVG}title")
        if title is not None:
            found.setdefault(title.text, []).append(each)
    return found


def texts(root: Any):
    return [each.text for each in root.iter(f"{SVG}text")]


def training_step(**options: Any):
    w = weft.variable((32, 32), initial_value=0.1, name="weight")
    x = weft.placeholder((16, 32))
    loss = weft.sum(weft.square(weft.tanh(x @ w)), (0, 1))
    with weft.saved_user_deps():
        update = weft.assign(w, w - weft.deriv(loss, w))
        return plan_of([loss, update], x, **options)


def test_every_tensor_of_the_arena_is_a_box(tmp_path: Path):
    plan = training_step(workspace=lambda op: 100)
    in_arena = [o for s in plan.steps for o in (*s.outs, s.workspace) if o and o.base.kind == ARENA]
    found = boxes(plan)
    assert sorted(map(id, in_arena)) == sorted(id(box.tensor) for box in found)
    root = drawn(plan, tmp_path)
    assert sum(len(each) for each in labeled(root).values()) == len(found) + 2
    for box in found:
        assert box.tensor.base.first <= box.first <= box.last <= box.tensor.base.last


def test_boxes_lie_apart(tmp_path: Path):
    found = boxes(training_step(workspace=lambda op: 100))
    for number, one in enumerate(found):
        for other in found[number + 1 :]:
            if one.first <= other.last and other.first <= one.last:
                a, b = one.tensor.base, other.tensor.base
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


def test_a_box_says_what_it_is_and_where_it_was_written(tmp_path: Path):
    plan = training_step()
    labels = labeled(drawn(plan, tmp_path))
    lines = next(each for each in labels if each.startswith("MatmulOp")).splitlines()
    assert lines[1] == "float32[16, 32], 2048 bytes"
    assert re.fullmatch(r"steps \d+ to \d+, bytes \d+ to \d+", lines[2])
    assert re.fullmatch(
        r"test_plan_picture.py:\d+  loss = weft.sum\(weft.square\(weft.tanh\(x @ w\)\), .*",
        lines[3],
    )


def test_states_have_rows_of_their_own_with_marks_where_they_are_written(tmp_path: Path):
    plan = training_step()
    rows = {label: each for label, each in labeled(drawn(plan, tmp_path)).items()
            if "weight" in label.splitlines()[0]}  # fmt: skip
    (state, write) = rows
    assert re.match(r"weight\w*\nfloat32 Axes\(32, 32\), 4.1 kB\ntest_plan_picture.py:", state)
    assert re.match(r"writes weight\w*\nSubtractOp\n", write)
    below = min(float(each.get("y")) for (each,) in rows.values())
    arena = [rect for label, rects in labeled(drawn(plan, tmp_path)).items()
             for rect in rects if label not in rows]  # fmt: skip
    assert max(float(each.get("y")) + float(each.get("height")) for each in arena) < below
    assert sum(buffer.kind == STATE for buffer in plan.buffers) == 1


def test_the_heading_and_the_levels_tell_the_bytes(tmp_path: Path):
    results, x = deep(16)
    with pytest.raises(MemoryLimitError) as caught:
        plan_of(results, x, limit=0)
    plan = plan_of(results, x, limit=caught.value.smallest)
    root = drawn(plan, tmp_path)
    found = texts(root)
    arena = f"{plan.arena_size / 1000:.3g} kB"
    assert any(each.endswith(f"arena {arena}, at most {arena} live, "
                             f"{plan.peak_as_written / 1000:.3g} kB in the order as written")
               for each in found)  # fmt: skip
    assert f"most live {arena}" in found
    assert f"memory limit {arena}" in found
    line = next(root.iter(f"{SVG}polyline")).get("points")
    heights = [float(point.split(",")[1]) for point in line.split()]
    assert min(heights) == pytest.approx(TOP), "the line touches the level of the peak"


@pytest.mark.parametrize("name", ["<b>&\"'", "]]>", "\x00\x1b", "\ud800", "名前"])
def test_names_are_escaped(name: str, tmp_path: Path):
    w = weft.variable((4,), name=name)
    x = weft.placeholder((4,))
    y = weft.tanh(x * w).named(name)
    plan = make_plan(weft.capture([weft.sum(y)], [x], name), target())
    root = drawn(plan, tmp_path)
    shown = name if name.isprintable() else "\N{REPLACEMENT CHARACTER}" * len(name)
    assert any(label.startswith(shown) for label in labeled(root))
    assert any(each.startswith(f"{shown}: arena") for each in texts(root))


def test_the_page_shows_what_its_script_draws(tmp_path: Path):
    docs = Path(__file__).parents[3] / "docs"
    runpy.run_path(str(docs / "tools" / "pictures.py"))["draw"](tmp_path)
    drawn, shown = (folder / "transformer_block_plan.svg" for folder in (tmp_path, docs / "images"))
    for each in (drawn, shown):
        root = ElementTree.parse(each).getroot()
        assert texts(root)[0].startswith("transformer block: arena ")
        assert any(label.startswith("w_up") for label in labeled(root))
    assert "planning.md" in (docs.parent / "README.md").read_text()


def test_a_plan_without_an_arena_is_drawn(tmp_path: Path):
    x = weft.placeholder((4,))
    root = drawn(plan_of(weft.exp(x), x), tmp_path)
    assert not labeled(root)
    assert any("arena 0 bytes" in each for each in texts(root))


def test_a_plan_without_steps_is_drawn(tmp_path: Path):
    assert drawn(plan_of([]), tmp_path).tag == f"{SVG}svg"


def test_the_file_is_complete_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = training_step()
    path = tmp_path / "plan.svg"
    path.write_text("as it was")
    monkeypatch.setattr(picture, "quoted_line", lambda location: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plan.picture(path)
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(weft.errors.ArgumentError, match=r"plan\.svg cannot be written"):
        training_step().picture(tmp_path / "no" / "plan.svg")


def test_large_plans_are_drawn_in_one_sweep(tmp_path: Path):
    x = y = weft.placeholder((4,))
    for _ in range(2000):
        y = weft.sin(y) + x
    plan = plan_of([weft.sum(y[::-1] * y)], x)
    assert len(labeled(drawn(plan, tmp_path))) >= 4000
