"""What objects show in a notebook, and their plain reprs: true, cut, escaped, and for nothing."""

from __future__ import annotations

import html
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.ir.graph import Graph
from weft.runtime.computation import Computation
from weft.runtime.program import Program
from weft.support.html import LONGEST, ROWS, escaped, facts, folded, section, table, text
from weft.support.source import quoted_line, short_info

HOSTILE = "<script>alert('1')</script> \" onload=x & \x00\u202e"
TAGS = {"b", "details", "div", "summary", "table", "tbody", "td", "th", "thead", "tr"}


class Page(HTMLParser):
    """The text of HTML that has some tags only, each of them closed, and no attribute but style."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.rows = 0
        self.feed(source)
        self.close()
        assert self.open == []
        self.text = " ".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert dict(attrs) in ({}, {"style": "text-align:left"}, {"style": "text-align:right"})
        self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def shown(what: Any) -> Page:
    return Page(what._repr_html_())


@pytest.fixture
def transformer() -> Iterator[weft.Transformer]:
    with weft.make_transformer("numpy", cache=False) as made:
        yield made


def hostile_step(transformer: weft.Transformer) -> tuple[Computation, weft.Op]:
    x = weft.placeholder([4, 4], name=HOSTILE)
    w = weft.variable([4, 4], initial_value=np.eye(4), name=HOSTILE + "w")
    loss = weft.mean(weft.tanh(x @ w) ** 2).named(HOSTILE + "loss")
    update = weft.assign(w, w - 0.1 * weft.deriv(loss, w))
    return transformer.computation([loss, update], x, name=HOSTILE), loss


def called(made: Computation) -> Computation:
    made(np.ones((4, 4), np.float32))
    return made


def closed(made: Computation) -> Computation:
    made.transformer.close()
    return made


def kernel(made: Computation) -> weft.Op:
    return next(op for op in called(made).program.graph.ops if op.contained)


OBJECTS: dict[str, Callable[[Computation, weft.Op], Any]] = {
    "op": lambda made, loss: loss,
    "placeholder": lambda made, loss: made.parameters[0],
    "variable": lambda made, loss: made.graph.states[0],
    "constant": lambda made, loss: weft.constant(np.ones((30, 30), np.float32), name=HOSTILE),
    "kernel": lambda made, loss: kernel(made),
    "graph": lambda made, loss: made.graph,
    "graph of kernels": lambda made, loss: called(made).program.graph,
    "plan": lambda made, loss: called(made).plan,
    "computation": lambda made, loss: made,
    "compiled computation": lambda made, loss: called(made),
    "closed computation": lambda made, loss: closed(made),
    "computation closed after a call": lambda made, loss: closed(called(made)),
    "profile": lambda made, loss: made.profile(np.ones((4, 4), np.float32), repeat=1),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_no_name_is_part_of_the_html(transformer: weft.Transformer, kind: str) -> None:
    what = OBJECTS[kind](*hostile_step(transformer))
    page = shown(what)
    assert "float32" in page.text or "matmul" in page.text
    if kind != "kernel":
        assert "<script>alert('1')</script>" in page.text
    assert len(repr(what)) < 400
    assert repr(what).startswith("<")


@given(st.text(), st.text())
def test_any_text_is_shown_and_none_is_html(first: str, second: str) -> None:
    cells = [first, second]
    made = section(first, facts({first: second}), folded(second, table(cells, [cells], 2)))
    Page(made)
    line = text(first).removeprefix("<div>").removesuffix("</div>")
    kept = "".join(each for each in first if each.isprintable() or each in "\n\t")
    assert html.unescape(line).replace("\N{REPLACEMENT CHARACTER}", "") == kept.replace(
        "\N{REPLACEMENT CHARACTER}", ""
    )
    assert escaped(first).encode() == line.encode()


@pytest.mark.parametrize("count", [1, ROWS, ROWS + 1, 5000])
def test_a_table_says_how_many_rows_it_leaves_out(count: int) -> None:
    page = Page(table(("n",), ([str(n)] for n in range(count)), count))
    assert page.rows == 1 + min(count, ROWS)
    assert (f"… {count - ROWS:,} more" in page.text) == (count > ROWS)


def test_a_long_cell_is_cut() -> None:
    page = Page(table((), [["a" * 1000]]))
    assert page.text == "a" * LONGEST + "…"


def test_a_long_graph_is_cut_and_counted() -> None:
    x = y = weft.placeholder([2], name="x")
    for _ in range(20_000):
        y = weft.tanh(y)
    page = shown(weft.capture([y], [x]))
    assert page.rows < ROWS + 10
    assert f"… {20_001 - ROWS:,} more" in page.text


def test_reprs_say_what_and_where() -> None:
    n = weft.Axis(None, "N")
    x = weft.placeholder([n, weft.Axis(3, "C")], name="x")
    # Names that no op of another test has, since a name that is in use gets a number.
    y, line = weft.tanh(x).named("squashed"), sys._getframe().f_lineno
    assert repr(y) == f"<TanhOp(squashed): float32(N, C=3), test_notebook.py:{line}>"
    write = weft.assign(weft.variable([2], name="w"), 0.0).named("overwritten")
    assert repr(write) == f"<AssignOp(overwritten), test_notebook.py:{line + 2}>"
    page = shown(y)
    for part in ("TanhOp squashed", "float32(N, C=3)", f"test_notebook.py:{line}", ".named", "x"):
        assert part in page.text


def test_a_computation_says_whether_it_is_compiled() -> None:
    x = weft.placeholder([3], name="x")
    n = weft.symbol("n")
    z = weft.placeholder([n], name="z")
    with weft.make_transformer("numpy", cache=False) as transformer:
        known = transformer.computation([x + 1, x * 2], x, name="known")
        open_ = transformer.computation(z + 1, z, name="open")
        head = "<Computation known on numpy: 1 parameters, 2 results"
        assert repr(known) == f"{head}, not compiled yet>"
        assert repr(open_).endswith("compiled for 0 shapes>")
        known(np.ones(3))
        open_(np.ones(2))
        assert repr(known) == f"{head}, compiled>"
        assert repr(open_).endswith("compiled for 1 shape>")
        assert "arena" in shown(known).text
        plan = known.plan
        assert repr(plan) == f"<Plan of known: {len(plan.steps)} steps, an arena of 0 bytes>"
        assert str(plan) == plan.table()
    assert repr(known) == f"{head}, closed>"


def test_looking_at_what_is_not_compiled_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch, transformer: weft.Transformer
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled")

    made, _ = hostile_step(transformer)
    with monkeypatch.context() as patched:
        patched.setattr(type(transformer), "compile", refuse)
        before = repr(made), made._repr_html_()
        assert (repr(made), made._repr_html_()) == before
    assert made.condition == "not compiled yet"


def test_the_plan_of_a_restored_program_is_shown_once_it_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def made(transformer: weft.Transformer) -> Computation:
        x = weft.placeholder([50], name="x")
        found = transformer.computation(weft.softmax(weft.cumsum(x, 0)), x, name="kept")
        found(np.ones(50, np.float32))
        return found

    monkeypatch.delenv("WEFT_CACHE", raising=False)
    with weft.make_transformer("numpy", cache=tmp_path) as first:
        made(first)
    with weft.make_transformer("numpy", cache=tmp_path) as second:
        restored = made(second)
        (program,) = restored.programs.values()
        assert isinstance(program, Program)
        assert program.is_restored
        assert "Plan" not in shown(restored).text
        assert program.later is not None
        assert restored.plan.steps
        assert "Plan" in shown(restored).text


def test_a_malformed_graph_is_shown_with_its_problem() -> None:
    x = weft.placeholder([2], name="x")
    good = weft.capture([weft.tanh(weft.exp(x))], [x])
    tanh = good.outputs[0]
    bad = Graph(good.inputs, good.outputs, after={tanh.args[0]: (tanh,)}, name="bad")
    assert repr(bad) == "<Graph bad: ops in a cycle, 1 outputs>"
    assert "the order of ops has a cycle" in shown(bad).text


def test_an_attribute_that_cannot_be_shown_is_no_error() -> None:
    class Unshown:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    class OddlyTunedOp(weft.TensorOp):
        """An op with an attribute that has no repr."""

        tuning: Any

        def infer(self) -> tuple[weft.Axes, Any]:
            return self.args[0].axes, self.args[0].dtype

    page = shown(OddlyTunedOp(weft.placeholder([2]), tuning=Unshown()))
    assert "tuning" in page.text
    assert "Unshown instance" in page.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("gone.py", None),
        ("short.py", b"x = 1\n"),
        ("latin.py", b"\xff\xfe\n\xe4\n\xe4\n"),
        ("nul.py", b"\0\0\0"),
        ("\0.py", None),
        ("<string>", None),
        ("", None),
    ],
)
def test_a_source_file_that_cannot_be_read_leaves_file_and_line(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    location = (str(tmp_path / name) if name.endswith(".py") else name, 3)
    linecache.checkcache()
    assert quoted_line(location) == short_info(location) == f"{name}:3"


def test_lines_of_a_notebook_are_those_of_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's compiler knows which cell a file stands for."""

    def format_code_name(name: str) -> tuple[str, str] | None:
        return ("Cell", "In[7]") if name.endswith("1234.py") else None

    shell = types.SimpleNamespace(compile=types.SimpleNamespace(format_code_name=format_code_name))
    ipython = types.ModuleType("IPython")
    monkeypatch.setattr(ipython, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert short_info(("/tmp/ipykernel_5/1234.py", 2)) == "In[7]:2"
    assert short_info(("/home/me/model.py", 2)) == "model.py:2"
    monkeypatch.setattr(ipython, "get_ipython", lambda: None)
    assert short_info(("/tmp/ipykernel_5/1234.py", 2)) == "1234.py:2"
