"""Choosing a backend: argument, then context, factory, environment, and the default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import plugins
from weft.plugins import hookimpl, status
from weft.plugins.status import status_after


class Marked(weft.NumPyTransformer):
    """The NumPy backend under another name, with an option of its own."""

    def __init__(self, mark: str = "plain", **options: Any):
        super().__init__(**options)
        self.mark = mark


@pytest.fixture(autouse=True)
def _marked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WEFT_BACKEND", raising=False)

    class Plugin:
        @staticmethod
        @hookimpl
        def weft_register_backends(register: Callable[..., Any]):
            register("marked", Marked)

    plugin = Plugin()
    plugins.register(plugin, "marked")
    yield
    plugins.unregister(plugin)


@pytest.mark.parametrize(
    ("steps", "is_broken", "expected"),
    [(4, False, "native"), (2, False, "numpy"), (2, True, "numpy"), (0, True, "numpy")],
    ids=["usable", "no compiler", "broken compiler", "not installed"],
)
def test_without_a_choice_it_is_native_where_that_is_usable(
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
    steps: int,
    is_broken: bool,
    expected: str,
):
    found = status_after(steps, "native", "weftc", "the compiler crashed", is_broken)
    monkeypatch.setattr(status, "backend_status", lambda name: found)
    assert plugins.default_backend() == plugins.default_backend() == expected
    messages = [str(each.message) for each in recwarn.list]
    if steps == 2 and is_broken:
        assert len(messages) == 1, "it is asked for once"
        assert "'native' is skipped, as WEFT_BACKEND=numpy does" in messages[0]
        assert messages[0].endswith("the compiler crashed")
    else:
        assert not messages


def test_without_a_choice_it_is_the_default_backend(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plugins, "default_backend", lambda: "marked")
    assert isinstance(weft.make_transformer(), Marked)


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WEFT_BACKEND", "marked")
    assert isinstance(weft.make_transformer(), Marked)


def test_a_factory_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WEFT_BACKEND", "numpy")
    weft.set_transformer_factory(weft.make_transformer_factory("marked", mark="factory"))
    try:
        assert weft.make_transformer().mark == "factory"
    finally:
        weft.set_transformer_factory(None)


def test_a_context_wins_over_a_factory_and_ends():
    weft.set_transformer_factory(weft.make_transformer_factory("marked", mark="factory"))
    try:
        with weft.backend("marked", mark="context"):
            assert weft.make_transformer().mark == "context"
        assert weft.make_transformer().mark == "factory"
    finally:
        weft.set_transformer_factory(None)


def test_an_argument_wins_over_all():
    with weft.backend("marked"):
        assert type(weft.make_transformer("numpy")) is weft.NumPyTransformer


def test_a_class_chooses_too():
    assert weft.make_transformer(Marked, mark="class").mark == "class"
    with weft.backend(Marked, mark="context"):
        assert weft.make_transformer().mark == "context"
    with pytest.raises(weft.errors.ArgumentError, match="'Marked' has no option 'color'"):
        weft.make_transformer(Marked, color="red")


@pytest.mark.parametrize(
    "name", [3, weft.GraphPass, ["numpy"], object()], ids=["number", "pass", "list", "object"]
)
@pytest.mark.parametrize(
    "ask", [weft.make_transformer, weft.backend, weft.make_transformer_factory]
)
def test_what_is_no_backend_is_refused(ask: Callable[..., Any], name: Any):
    with pytest.raises(weft.errors.ArgumentError, match="by its name or as a subclass"):
        ask(name)


@pytest.mark.parametrize(
    "ask", [weft.make_transformer, weft.backend, weft.make_transformer_factory]
)
@pytest.mark.parametrize("name", ["NUMPY", "nunpy", "Marked"])
def test_an_unknown_name_is_refused_at_once_with_a_suggestion(ask: Callable[..., Any], name: str):
    meant = "marked" if name == "Marked" else "numpy"
    with pytest.raises(weft.errors.UnknownPluginError, match=f"Did you mean '{meant}'"):
        ask(name)


def test_the_variable_is_named_where_its_backend_is_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WEFT_BACKEND", "nmba")
    message = "^WEFT_BACKEND=nmba: There is no backend named 'nmba'. "
    with pytest.raises(weft.errors.UnknownPluginError, match=message):
        weft.make_transformer()


def test_options_go_to_the_backend():
    assert weft.allocate_transformer("marked", mark="option").mark == "option"
    with pytest.raises(weft.errors.ArgumentError, match=r"color.* It has .*mark"):
        weft.make_transformer("marked", color="red")


def test_the_choices_are_listed():
    assert {"numpy", "marked"} <= set(weft.transformer_choices())


def test_passes_are_checked_when_the_transformer_is_made():
    with pytest.raises(weft.errors.UnknownPluginError, match="simple-prune"):
        weft.make_transformer("numpy", passes=["simple-pruning"])


def test_graphs_are_written_around_each_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path / "dump"))
    x = weft.placeholder((3,))
    weft.make_transformer().computation(x * 1 + 0, x, name="a/b")([1, 2, 3])
    written = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert written
    text = (tmp_path / "dump" / written[0]).read_text()
    assert "MultiplyOp" in text.split("# after")[0]
    assert "MultiplyOp" not in text.split("# after")[1]


def test_dumps_have_a_file_each_whatever_the_computations_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path / "dump"))
    names = [
        "long" * 100,
        "long" * 100 + "er",
        "a/b",
        "a_b",
        "../up",
        "\udcff",
        "\0",
        "µ",
        "é" * 80,
    ]
    x = weft.placeholder((3,))
    transformer = weft.make_transformer(passes=["simple-prune"])
    for name in names:
        transformer.computation(x * 1, x, name=name)([1, 2, 3])
    written = list((tmp_path / "dump").iterdir())
    assert len(written) == len(names)
    assert [each.name for each in tmp_path.iterdir()] == ["dump"]


def test_a_folder_for_dumps_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path / "file" / "dump"))
    x = weft.placeholder((3,))
    with pytest.raises(weft.errors.ArgumentError, match=r"WEFT_DUMP=.*file.dump: nothing"):
        weft.make_transformer().computation(x * 1, x)([1, 2, 3])


def test_a_closed_transformer_says_so():
    x = weft.placeholder(())
    with weft.make_transformer() as transformer:
        twice = transformer.computation(x * 2, x)
        assert twice(3) == 6
    with pytest.raises(weft.errors.StateError, match="has been closed"):
        twice(3)


def test_visitors_of_one_name_add_up():
    class Swap(weft.PeepholeGraphPass):
        @weft.visit.on_type(weft.ops.SinOp)
        def visit(self, op: weft.TensorOp):
            self.replace_op(op, weft.cos(op.args[0]))

        @weft.visit.on_type(weft.ops.TanhOp)
        def visit(self, op: weft.TensorOp):  # noqa: F811
            self.replace_op(op, weft.exp(op.args[0]))

    x = weft.placeholder(())
    transformer = weft.make_transformer(passes=[Swap()])
    source = transformer.computation(weft.sin(x) + weft.tanh(x), x).source
    assert "cos(" in source
    assert "exp(" in source


def test_choosing_a_backend(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WEFT_BACKEND", raising=False)
    assert weft.make_transformer().transformer_name in ("native", "numpy")
    assert "numpy" in weft.transformer_choices()
    assert weft.make_transformer_factory("numpy")().transformer_name == "numpy"
    monkeypatch.setenv("WEFT_BACKEND", "nothing-of-that-name")
    with pytest.raises(ValueError, match="nothing-of-that-name"):
        weft.make_transformer()
    with weft.backend("numpy", fast_math=True):
        assert weft.make_transformer().fast_math
    weft.set_transformer_factory(lambda: weft.make_transformer("numpy", fast_math=True))
    try:
        assert weft.make_transformer().fast_math
        assert not weft.make_transformer("numpy").fast_math
    finally:
        weft.set_transformer_factory(None)
