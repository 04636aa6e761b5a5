"""Reports: their data is complete and true, and what cannot be reported is refused in full."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import skip_without_backend

import weft
from weft.errors import ArgumentError, StateError
from weft.passes.interface import PassHistory
from weft.report import document as documents
from weft.report.changes import changes
from weft.report.document import document
from weft.report.outline import LAYER, MOST_TOGETHER, Box, boxed, summary
from weft.report.page import page, unpacked
from weft.runtime import compile_cache
from weft.runtime.reporting import compiled, pass_histories

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)


def training_step() -> tuple[Any, Any]:
    x = weft.placeholder((6, 8), name="x")
    w = weft.variable((8, 8), initial_value=np.eye(8), name="w")
    with weft.name_scope("model"):
        hidden = weft.tanh(x @ w)
    loss = weft.mean(weft.softmax(hidden, 1) ** 2)
    return [loss, weft.assign(w, w - 0.1 * weft.deriv(loss, w))], x


def layers(count: int) -> tuple[Any, Any]:
    x = y = weft.placeholder((4, 4), name="x")
    for _ in range(count):
        y = weft.tanh(weft.exp(y @ y) - weft.max(y, 1, keepdims=True)) + y
    return y, x


def document_of(computation: Any, *args: Any) -> dict[str, Any]:
    """Return the document of a computation, as JSON gives it back."""
    profile = computation.profile(*args, repeat=1) if args else None
    made = document(compiled(computation, computation.program, profile))
    found: dict[str, Any] = json.loads(json.dumps(made))
    return found


def data_of(path: Path) -> dict[str, Any]:
    """Return the data of a page."""
    return unpacked(path.read_text("utf-8"))


def ops_of(found: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Return the ops of a graph with what their heads say of them."""
    return [_expanded(found, *record) for record in found["graphs"][number]["ops"]]


def _expanded(
    found: dict[str, Any], head: int, args: list[int], own: int, of: int = -1, body: Any = None
) -> dict[str, Any]:
    inside = [_expanded(found, *each) for each in body["ops"]] if body else []
    return {**found["heads"][head], "args": args, "id": own, "of": of, "inside": inside}


def items_of(item: Any) -> Iterator[int]:
    """Yield the numbers of ops in a box, and in those inside of it."""
    if isinstance(item, int):
        yield item
    else:
        for each in item.items if isinstance(item, Box) else item["items"]:
            yield from items_of(each)


def test_every_reference_leads_somewhere(transformer: weft.Transformer) -> None:
    results, x = training_step()
    found = document_of(transformer.computation(results, x), X)
    locations = range(len(found["locations"]))
    assert all(line in range(1, 10_000) for _, line, _ in found["locations"])
    for number, graph in enumerate(found["graphs"]):
        ops = ops_of(found, number)
        for place, op in enumerate(ops):
            assert op["line"] in locations
            assert op["type"] in range(len(found["types"]))
            assert all(arg < place for arg in op["args"])
            assert all(each["line"] in locations for each in op["inside"])
        drawn = [place for item in graph["items"] for place in items_of(item)]
        hidden = {n for n, op in enumerate(ops) if op.get("role") in ("constant", "result")}
        assert len(drawn) == len(set(drawn))
        assert set(range(graph["count"])) - hidden <= set(drawn)
    plan = found["plans"][0]
    planned = found["graphs"][plan["graph"]]
    assert all(place in range(planned["count"]) for place in plan["steps"])
    assert len(plan["live"]) == len(plan["steps"])
    for row in found["profile"]["rows"]:
        assert all(0 <= step < len(plan["steps"]) for _, step in row["steps"])
        assert all(each in locations for each in row["locations"])


def test_stages_add_up_to_the_compiled_graph(transformer: weft.Transformer) -> None:
    results, x = training_step()
    computation = transformer.computation(results, x)
    found = document_of(computation)
    (pipeline,) = found["pipelines"]
    counts = [found["graphs"][stage["graph"]]["count"] for stage in pipeline["stages"]]
    assert counts[0] == len(computation.graph.ops)
    assert counts[-1] == len(computation.program.graph.ops)
    for before, stage, after in zip(counts, pipeline["stages"][1:], counts[1:], strict=False):
        assert after == before + stage["added"] - stage["removed"]
        listed = sum(len(change["added"]) for change in stage["changes"])
        assert listed == stage["added"]


def test_a_pass_says_what_took_the_place_of_what() -> None:
    results, x = training_step()
    with weft.make_transformer("numpy") as transformer:
        graph = transformer.computation(results, x).graph
        (history,) = pass_histories(transformer, graph)
    stages = dict(zip([name for name, _ in history.steps], _changed(history), strict=True))
    decomposed = stages["Decompose"]
    softmax = [each for each in decomposed if type(each.removed[0]).__name__ == "SoftmaxOp"]
    assert softmax
    assert all(any(type(op).__name__ == "ExpOp" for op in each.added) for each in softmax)
    for change in stages["Fusion"]:
        inside = {id(op) for op in change.added[0].contained}
        assert {id(op) for op in change.removed} <= inside


def _changed(history: PassHistory) -> list[Any]:
    graphs = [history.graph, *(graph for _, graph in history.steps)]
    return [changes(*pair) for pair in pairwise(graphs)]


def test_generated_lines_lead_to_the_users(transformer: weft.Transformer) -> None:
    results, x = training_step()
    found = document_of(transformer.computation(results, x))
    (number,) = [n for n, file in enumerate(found["files"]) if file["path"] == __file__]
    text = dict(found["files"][number]["lines"])
    runs = found["source"]["locations"]
    assert sum(count for count, _ in runs) <= found["source"]["lines"]
    linked = {location for _, here in runs for location in here}
    lines = {text[line].strip() for _, line in (found["locations"][each][:2] for each in linked)}
    assert "loss = weft.mean(weft.softmax(hidden, 1) ** 2)" in lines


def test_an_op_is_found_in_every_graph(transformer: weft.Transformer) -> None:
    results, x = training_step()
    found = document_of(transformer.computation(results, x))
    captured = ops_of(found, found["captured"])
    planned = found["plans"][0]
    steps = {place for place in planned["steps"] if place >= 0}
    places = {}
    for place, op in enumerate(ops_of(found, planned["graph"])):
        for each in (op, *op["inside"]):
            places.setdefault(each["id"], set()).add(place)
    for kind, scope in (("Tanh", "model"), ("Softmax", None)):
        op = next(op for op in captured if op["kind"] == kind)
        assert op.get("scope") == scope
        assert places[op["id"]] & steps
    softmax = next(op for op in captured if op["kind"] == "Softmax")
    parts = ["Max", "Subtract", "Exp", "Sum", "Divide"]
    assert [kind for kind, *_ in softmax["parts"]] == parts
    assert [kinds for *_, kinds in softmax["parts"]] == [[kind] for kind in parts]
    assert found["locations"][softmax["line"]][2] == "training_step"


def test_gradients_lead_to_what_they_are_of(transformer: weft.Transformer) -> None:
    results, x = training_step()
    found = document_of(transformer.computation(results, x))
    captured = ops_of(found, found["captured"])
    forward = {op["id"]: op for op in captured if op["of"] < 0}
    kinds = {forward[op["of"]]["kind"] for op in captured if op["of"] >= 0}
    assert {"Tanh", "Softmax", "Mean", "Power", "Matmul"} >= kinds >= {"Tanh", "Softmax"}
    for op in captured:
        if op["of"] >= 0:
            assert op["line"] == forward[op["of"]]["line"]
            assert op.get("scope") == forward[op["of"]].get("scope")


def test_the_first_and_the_last_graph_are_listed_before_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y, x = layers(30)
    with weft.make_transformer("numpy") as transformer:
        computation = transformer.computation(y, x)
        computation.prepare()
        monkeypatch.setattr(documents, "MOST_OPS_IN_ALL", len(computation.graph.ops) * 3)
        found = document_of(computation)
    listed = {number for number, graph in enumerate(found["graphs"]) if "ops" in graph}
    assert {found["captured"], found["plans"][0]["graph"]} <= listed
    assert len(listed) < len(found["graphs"])


@pytest.mark.parametrize("backend", ["numpy", "opencl", "native"])
def test_a_program_from_the_cache_is_linked_as_well(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compile_cache, "_memory", compile_cache.MemoryCache())
    skip_without_backend(backend)
    results, x = training_step()
    found = []
    for is_restored in (False, True):
        with weft.make_transformer(backend) as transformer:
            step = transformer.computation(results, x, name="step")
            assert step.program.is_restored == is_restored
            source, locations = step.source.split("\n"), step.program.source_locations
            found.append(
                [(text, tuple(here)) for text, here in zip(source, locations, strict=False) if here]
            )
    first, again = found
    assert {location for _, here in first for location in here}
    assert [here for _, here in first] == [here for _, here in again]


def test_blocks_know_what_keeps_them() -> None:
    results, x = training_step()
    with weft.make_transformer("numpy") as transformer:
        step = transformer.computation(results, x)
        plan = document_of(step)["plans"][0]
        assert max(plan["live"]) == step.plan.peak_live
    for block in plan["blocks"]:
        assert block["offset"] + block["bytes"] <= plan["arena"]
        if not block.get("workspace"):
            assert block["readers"]
            ends = block.get("overwritten", block["last"])
            assert ends in block["readers"] or ends > max(block["readers"])


@pytest.mark.parametrize("count", [1, 12, 300])
def test_repeated_layers_are_one_box(count: int) -> None:
    y, x = layers(count)
    graph = weft.capture([y], [x])
    shown = range(len(graph.ops))
    items = boxed(graph.ops, shown)
    assert sorted(place for item in items for place in items_of(item)) == list(shown)
    boxes = [item for item in items if isinstance(item, Box) and item.kind == LAYER]
    assert bool(boxes) == (count > 1)
    waiting = list(items)
    while waiting:
        item = waiting.pop()
        if isinstance(item, Box):
            assert len(item.items) <= MOST_TOGETHER
            waiting += item.items


def test_a_large_graph_is_counted_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_OPS", 50)
    y, x = layers(30)
    with weft.make_transformer("numpy") as transformer:
        computation = transformer.computation(y, x)
        found = document_of(computation)
    graph = found["graphs"][found["captured"]]
    assert "ops" not in graph
    assert sum(line["count"] for line in graph["lines"]) == len(computation.graph.ops)
    assert graph["lines"] == sorted(graph["lines"], key=lambda line: -line["count"])
    assert summary(computation.graph)[0].count > 100


def test_a_called_graph_is_described_once() -> None:
    x, inner = weft.placeholder((4, 4), name="x"), weft.placeholder((4, 4), name="inner")
    body = inner
    for _ in range(20):
        body = weft.tanh(body @ body)
    layer = weft.capture([body], [inner], "layer")
    y = weft.call(layer, weft.call(layer, x)[0])[0]
    with weft.make_transformer("numpy") as transformer:
        found = document_of(transformer.computation(y, x, name="net"))
    assert [pipeline["name"] for pipeline in found["pipelines"]] == ["net", "layer"]
    calls = [op["graphs"] for op in ops_of(found, found["captured"]) if "graphs" in op]
    assert len(calls) == 2
    assert calls[0] == calls[1]
    assert found["graphs"][calls[0][0]]["name"] == "layer"


def test_lengths_that_were_unknown_are_solved_by_arguments(tmp_path: Path) -> None:
    x = weft.placeholder((weft.Axis(None, "N"), weft.Axis(3, "C")), name="x")
    path = tmp_path / "report.html"
    with weft.make_transformer("numpy") as transformer:
        computation = transformer.computation(weft.sum(x * x), x)
        with pytest.raises(ArgumentError, match=r"report\(path, x\)"):
            computation.report(path)
        assert not path.exists()
        computation.report(path, np.ones((5, 3), np.float32))
        assert data_of(path)["lengths"] == {"N": 5}
        assert data_of(path)["profile"]["rows"]
        computation.report(path)
        assert data_of(path)["profile"] is None


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    results, x = training_step()
    old = tmp_path / "report.html"
    old.write_text("old")
    transformer = weft.make_transformer("numpy")
    step = transformer.computation(results, x)
    profile = step.profile(X, repeat=1)
    for path in (tmp_path, tmp_path / "missing" / "report.html"):
        with pytest.raises(ArgumentError, match="folder"):
            step.report(path)
        with pytest.raises(ArgumentError, match="folder"):
            profile.to_html(path)
    with pytest.raises(ArgumentError, match="profile= takes"):
        step.report(old, profile=profile.to_dict())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="1 arguments"):
        step.report(old, X, X)
    transformer.close()
    with pytest.raises(StateError, match="closed"):
        step.report(old)
    assert old.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("results", [[], None])
def test_a_graph_without_ops_has_a_report(results: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    with weft.make_transformer("numpy") as transformer:
        transformer.computation(results, name="nothing").report(path)
    found = data_of(path)
    assert found["graphs"][found["captured"]]["ops"] == []
    assert found["plans"][0]["steps"] == []


HOSTILE = "</script><script>alert(1)</script><!-- \" ' & \u2028 ${x} \ud800"


def test_names_are_data_and_never_markup() -> None:
    text = page(HOSTILE, {"profile": {"computation": HOSTILE}})
    assert "<script>alert" not in text
    assert "<!--" not in text.partition("</head>")[2].partition("</script>")[0]
    assert unpacked(text)["profile"]["computation"] == HOSTILE
    assert len(re.findall(r"</script>", text)) == 3


def test_a_page_asks_for_nothing(tmp_path: Path) -> None:
    results, x = training_step()
    path = tmp_path / "report.html"
    with weft.make_transformer("numpy") as transformer:
        step = transformer.computation(results, x)
        step.report(path, X)
        step.profile(X, repeat=1).to_html(tmp_path / "profile.html")
    for each in (path, tmp_path / "profile.html"):
        text = each.read_text("utf-8")
        assert not re.findall(
            r"<link[^>]*href=\"(?!data:)|<script[^>]*src=|@import|url\(http", text
        )
        assert "default-src 'none'" in text
        assert "sourceMappingURL" not in text
    assert path.stat().st_size < 1_500_000
    assert set(data_of(tmp_path / "profile.html")) == {"profile"}
