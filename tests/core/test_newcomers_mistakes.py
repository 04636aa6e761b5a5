"""The mistakes of newcomers, each with what the error says: what happened, where, what to do."""

from __future__ import annotations

import contextlib
import inspect
import io
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft import plugins
from weft.support import keyword_hints, source
from weft.testing.table import public_functions

LINE = Path(__file__).name
X = weft.placeholder((2, 3), name="x")
Y = weft.placeholder((2, 3), name="y")
W = weft.variable((2, 3), name="w")
RUNNING = weft.persistent_tensor((3,), name="running")
ONES = np.ones((2, 3), np.float32)


def call(results: Any, *parameters: Any, given: tuple[Any, ...] = ()) -> Any:
    with weft.make_transformer("numpy") as transformer:
        return transformer.computation(results, *parameters, name="step")(*given)


def batch_norm_with_variables() -> Any:
    mean, variance = (weft.variable((3,), initial_value=1, name=name) for name in ("m", "v"))
    return weft.batch_norm(X, mean=mean, variance=variance, training=True)


def onnx_model() -> Any:
    import weft_onnx

    return weft_onnx.export({"r": X * Y}, {"x": X})


def python_source() -> Any:
    with weft.make_transformer("numpy") as transformer:
        made: Any = transformer.computation(X * Y, X)
        return made.export_source("never.py")


MISTAKES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    # Truth and equality
    "an op in Python's if": (lambda: 1 if X > 0 else 2, ("no truth value", "where()", "cond()")),
    "equality as a truth": (lambda: X == Y and X, ("no truth value", "compares elements", "`is`")),
    "an op in a list": (lambda: Y in [X], ("`is`", "set or dict")),
    "a chain of comparisons": (lambda: 0 < X < 1, ("no truth value", "where()")),
    "a Python bool in where": (lambda: weft.where(True, X, Y), ("Python value True", "x == y")),
    "a Python bool in a sum": (lambda: weft.sum(True), ("Python value True", "calling sum")),
    "a Python bool negated": (lambda: weft.logical_not(False), ("Python value False", "constant")),
    "two Python bools": (lambda: weft.logical_and(True, False), ("Python value True", LINE)),
    "a Python bool in an assertion": (lambda: weft.assert_op(X, True), ("Python value True",)),
    # Values that nobody gave
    "a placeholder that is not given": (
        lambda: call(weft.tanh(X) + Y, Y, given=(ONES,)),
        ("step needs values", "computation(result, x)", " (float32 Axes(2, 3)), File",
         "used by TanhOp", LINE),
    ),
    "a variable without a value": (
        lambda: call(W * 2), ("w (float32", "initial_value=", "set_value()", "used by MultiplyOp")
    ),
    "a variable that is a result": (lambda: call(W), ("step needs values", "w (float32")),
    "several without a value": (
        lambda: call(X + Y + W), ("x (float32", "y (float32", "w (float32", "initial_value=")
    ),
    "a part written of nothing": (
        lambda: call([weft.assign(RUNNING[:2], 1.0), RUNNING]), ("running (float32 Axes(3))",)
    ),
    "too few arguments": (
        lambda: call(X * 2 + Y, X, Y, given=(ONES,)),
        ("expecting 2 arguments, but was called with 1", "y (float32", "used by AddOp"),
    ),
    "no arguments": (lambda: call(X * 2, X), ("called with 0", "x (float32", "MultiplyOp")),
    "a value that is not fed": (
        lambda: weft.make_transformer("numpy").computation(X + Y, X, Y)(feed_dict={X: ONES}),
        ("missing values for", "y, File"),
    ),
    "the value of what has none": (
        lambda: weft.make_transformer("numpy").get_value(W), ("no value", "initial_value=", "w")
    ),
    "an initial value of what has none": (
        lambda: call(weft.variable((2, 3), initial_value=W + 1)), ("initial values", "w (float32")
    ),
    "Python source of what has none": (python_source, ("y (float32", LINE)),
    "an ONNX model of what has none": (onnx_model, ("y (float32", LINE)),
    # Names
    "a misspelt function": (lambda: weft.reshap, ("no attribute 'reshap'", "mean 'reshape'")),
    "a function of NumPy": (lambda: weft.array, ("no attribute 'array'", "mean 'constant'")),
    "a function of PyTorch": (lambda: weft.permute, ("mean 'transpose'",)),
    "a method of PyTorch": (lambda: X.masked_fill(Y, 0), ("use weft.where(x)",)),
    "a misspelt method": (lambda: X.reshap, ("mean 'reshape'",)),
    "dim": (lambda: weft.softmax(X, dim=0), ("unexpected keyword", "no dim=", "mean 'axis'")),
    "keepdim": (lambda: weft.any(X, axis=0, keepdim=True), ("mean 'keepdims'",)),
    "lr": (lambda: weft.adam(weft.sum(W), lr=0.1), ("no lr=", "mean 'learning_rate'")),
    "a misspelt keyword": (lambda: weft.layer_norm(X, epsilom=1), ("mean 'epsilon'", "axes")),
    "a misspelt keyword of a method": (
        lambda: weft.make_transformer("numpy").computation(X, X, nam="x"), ("mean 'name'",)
    ),
    "the backend of PyTorch": (lambda: weft.make_transformer("cuda"), ("mean 'cupy'", "Installed")),
    "another case of a backend": (lambda: weft.make_transformer("NumPy"), ("mean 'numpy'",)),
    "a misspelt option": (
        lambda: weft.make_transformer("numpy", fast_maths=True), ("mean 'fast_math'",)
    ),
    "trained statistics": (
        batch_norm_with_variables, ("batch_norm", "m is a variable", "persistent_tensor()", LINE)
    ),
}  # fmt: skip


def shown(mistake: Callable[[], Any]) -> str:
    """Return what the interpreter shows of the error that a mistake raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        mistake()
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        sys.excepthook(caught.type, caught.value, None)
    return stream.getvalue()


@pytest.mark.parametrize(("mistake", "pieces"), MISTAKES.values(), ids=MISTAKES)
def test_the_error_says(mistake: Callable[[], Any], pieces: tuple[str, ...]):
    text = shown(mistake)
    missing = [piece for piece in pieces if piece not in text]
    assert not missing, f"{missing} not in:\n{text}"


def test_c_source_of_what_has_no_value(tmp_path: Path):
    if not plugins.backend_status("native").usable:
        pytest.skip("there is no C compiler")
    with weft.make_transformer("native") as transformer:
        made: Any = transformer.computation(X * Y, X)
        with pytest.raises(weft.errors.StateError, match=r"y .float32"):
            made.export_c(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_bool_beside_a_tensor_is_an_operand(transformer: weft.Transformer):
    flags = weft.placeholder((2,), "bool")
    results = [flags & True, flags | False, weft.logical_xor(flags, True), flags == True, ~flags]  # noqa: E712
    results += [weft.where(flags, True, False), weft.logical_and(True, flags)]
    given = np.array([True, False])
    found = transformer.computation(results, flags)(given)
    wanted = [given, given, ~given, given, ~given, given, given]
    assert [each.tolist() for each in found] == [each.tolist() for each in wanted]
    assert {op.dtype.name for op in results} == {"bool"}


@pytest.mark.parametrize("write", ["assign", "set_value", "load_states", "another", "initial"])
def test_a_value_may_come_from(transformer: weft.Transformer, write: str, tmp_path: Path):
    w = weft.variable((2,), name="w", initial_value=5 if write == "initial" else None)
    if write == "assign":
        with weft.saved_user_deps() as inside:
            weft.assign(w, 5.0)
        with weft.saved_user_deps(inside):
            read = transformer.computation(w * 2)
    else:
        read = transformer.computation(w * 2)
    if write in ("set_value", "another", "load_states"):
        with pytest.raises(weft.errors.StateError, match=r"w\w* .float32"):
            read()
    if write == "set_value":
        transformer.set_value(w, [5, 5])
    if write == "another":
        with weft.saved_user_deps():
            transformer.computation(weft.assign(w, 5.0))()
    if write == "load_states":
        with weft.make_transformer("numpy") as other:
            other.set_value(w, [5, 5])
            other.save_states(tmp_path / "states.safetensors")
        transformer.load_states(tmp_path / "states.safetensors", [w])
    assert read().tolist() == read().tolist() == [10, 10]
    assert transformer.get_value(w).tolist() == [5, 5]


def test_a_call_that_raised_has_written_nothing(transformer: weft.Transformer):
    w, x = weft.variable(()), weft.placeholder(())
    with weft.saved_user_deps():
        step = transformer.computation(weft.assign(w, weft.assert_op(x, weft.greater(x, 0))), x)
    read = transformer.computation(w + 0)
    with pytest.raises(weft.errors.CheckFailed):
        step(-1.0)
    with pytest.raises(weft.errors.StateError, match="needs values"):
        read()
    step(2.0)
    assert read() == 2


def test_a_variable_of_unknown_lengths_is_zeros_at_first(transformer: weft.Transformer):
    n = weft.symbol("n")
    w, x = weft.variable((n,)), weft.placeholder((n,))
    assert transformer.computation(w + x, x)([1.0, 2.0]).tolist() == [1, 2]


def test_zero_is_an_initial_value_without_a_program(transformer: weft.Transformer):
    w = weft.variable((3,), initial_value=0)
    step = transformer.computation([weft.assign(w, w + 1), w])
    assert step()[1].tolist() == [1, 1, 1]
    assert transformer._program_count == 1
    transformer.init_computation()
    assert transformer.get_value(w).tolist() == [0, 0, 0]


def test_a_misspelt_plugin_is_not_silently_kept(monkeypatch: pytest.MonkeyPatch):
    from weft.plugins import entrypoints

    monkeypatch.setattr(entrypoints, "_looked_at", set())
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", "nativ,backends:openl,elsewhere,numpy")
    with pytest.warns(entrypoints.PluginWarning) as caught:
        entrypoints.discover()
    texts = [str(each.message) for each in caught]
    assert len(texts) == 2
    assert "'nativ'" in texts[0]
    assert "mean 'native'" in texts[0]
    assert "mean 'opencl'" in texts[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        entrypoints.discover()


@pytest.mark.parametrize("name", ["/a/b/../c/model.py", "/a/./c/model.py"])
def test_paths_are_shown_without_detours(name: str):
    scope: dict[str, Any] = {}
    code = compile("import weft\nx = weft.placeholder(())", name, "exec")
    exec(code, scope)
    x = scope["x"]
    assert ".." not in x.filename + x.file_info
    assert "/./" not in x.filename + x.file_info
    assert x.file_info == f'File "{x.filename}", line 2'


def test_errors_in_a_notebook_name_the_cell(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source, "_cell", lambda name: "In[3]" if name == "/tmp/cell.py" else "")
    scope: dict[str, Any] = {}
    exec(compile("import weft\nx = weft.placeholder((2,))", "/tmp/cell.py", "exec"), scope)
    with pytest.raises(weft.WeftError) as caught:
        weft.add(scope["x"], np.ones(3))
    assert "In[3]:2" in str(caught.value)
    assert "cell.py" not in str(caught.value)
    assert "  # In[3]:2\n" in str(weft.capture([scope["x"] * 2], [scope["x"]]))


def test_every_function_says_what_it_calls_an_axis():
    checked = set()
    for name, function in public_functions().items():
        if "." in name:
            continue  # the line of the call says which function of a module it is
        parameters = inspect.signature(function).parameters
        with pytest.raises(TypeError) as caught:
            function(dim=0)
        if "missing" in str(caught.value):
            continue  # names of axes are keywords there
        text = keyword_hints.hint(caught.value)
        assert f"{name} has no dim=." in text.replace(function.__name__, name)
        if "axis" in parameters:
            assert "mean 'axis'" in text
            checked.add(name)
    assert {"sum", "softmax", "concat", "cumsum", "argmax", "cross_entropy"} <= checked


def test_a_function_of_a_module_says_what_it_calls_an_axis():
    with pytest.raises(TypeError) as caught:
        weft.fft.fft(weft.placeholder((2,)), dim=0)
    assert "fft has no dim=. Did you mean 'axis'?" in keyword_hints.hint(caught.value)


def test_the_interpreter_shows_what_keyword_was_meant():
    program = "import weft\nweft.softmax(weft.placeholder((2,)), dim=0)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-2:]
    assert "unexpected keyword argument 'dim'" in last[0]
    assert last[1] == "softmax has no dim=. Did you mean 'axis'? It has x, normalization_axes, axis"


def test_a_notebook_shows_what_keyword_was_meant(monkeypatch: pytest.MonkeyPatch):
    handlers: list[Any] = []
    shown_errors: list[Any] = []
    shell = SimpleNamespace(
        custom_exceptions=(),
        set_custom_exc=lambda kinds, handler: handlers.append((kinds, handler)),
        showtraceback=lambda error, tb_offset: shown_errors.append(error),
    )
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    keyword_hints.install()
    (((kind,), handler),) = handlers
    assert kind is TypeError
    with pytest.raises(TypeError) as caught:
        weft.softmax(X, dim=0)  # type: ignore[call-arg]
    handler(shell, caught.type, caught.value, None)
    assert shown_errors == [(caught.type, caught.value, None)]
    assert "mean 'axis'" in caught.value.__notes__[0]


@pytest.mark.needs("compiler")
def test_an_artifact_is_loaded_for_its_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WEFT_BACKEND", raising=False)
    path = tmp_path / "double.weft"
    with weft.make_transformer("numpy") as transformer:
        transformer.computation(X * 2, X, name="double").save(path)
    loaded = weft.load(path)
    assert "double on numpy" in repr(loaded)
    with weft.backend("native"):
        assert weft.load(path).transformer.transformer_name == "native"
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", "backends:numpy")
    with pytest.raises(weft.errors.ArtifactError) as caught:
        weft.load(path)
    for piece in ("saved for the backend 'numpy'", "backend=", "is disabled"):
        assert piece in str(caught.value)
