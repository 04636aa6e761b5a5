"""Artifacts: what is saved is what is loaded, in any process, and a hostile file is an error."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from needs import skip_without_backend
from op_table import FUNCTIONS, program_of
from typer.testing import CliRunner

import weft
from weft import errors
from weft.cli.app import app
from weft.errors import ArgumentError, ArtifactError
from weft.runtime import artifact_saving, safetensors_content
from weft.testing.random_graphs import RandomProgram, programs

pytestmark = pytest.mark.slow

pytest.importorskip("safetensors")


def model() -> Any:
    """Return a computation with states, random numbers, a large constant and an open length."""
    x = weft.placeholder((weft.symbol("n"), 40), name="x")
    w = weft.variable((40, 3), initial_value=np.arange(120).reshape(40, 3) / 100, name="w")
    b = weft.variable((3,), initial_value=weft.uniform((3,), seed=5), name="b")
    steps = weft.persistent_tensor((), "int64", 0, name="steps")
    shifted = x + np.arange(40, dtype="float32")
    y = weft.tanh(shifted @ w + b) + weft.uniform((3,), seed=7)
    weft.assign(b, b * 2)
    updated = weft.assign(steps, steps + 1)
    return weft.make_transformer("numpy").computation(
        {"y": y, "b": b, "done": updated, 3: steps}, x, name="step"
    )


ARGUMENT = np.linspace(-1, 1, 80, dtype=np.float32).reshape(2, 40)


def assert_same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        got, expected = tuple(got.values()), tuple(expected.values())
    if isinstance(expected, tuple):
        for one, other in zip(got, expected, strict=True):
            assert_same(one, other)
    elif expected is not None:
        np.testing.assert_array_equal(got, expected, strict=True)


def assert_close(got: dict[Any, Any], expected: dict[Any, Any]) -> None:
    """Compare but for the order of additions in BLAS, which depends on the place in memory."""
    assert list(got) == list(expected)
    assert got.pop("done") is expected.pop("done") is None
    for key, value in expected.items():
        np.testing.assert_allclose(got[key], value, 1e-5, strict=True)


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("trust", [False, True])
def test_a_loaded_computation_goes_on_as_the_saved_one(
    tmp_path: Path, states: bool, trust: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")
    saved = model()
    before = [saved(ARGUMENT), saved(ARGUMENT[:1])]
    saved.save(tmp_path / "step.weft", states=states)
    loaded = weft.load(tmp_path / "step.weft", "numpy", trust=trust)
    assert loaded.name == "step"
    assert [op.label for op in loaded.parameters] == ["x"]
    expected = [saved(ARGUMENT), saved(ARGUMENT[:1])] if states else before
    assert_close(loaded(ARGUMENT), expected[0])
    assert_close(loaded(ARGUMENT[:1]), expected[1])
    assert {each.is_restored for each in loaded.programs.values()} == {trust}


def test_parameters_keep_their_order(tmp_path: Path) -> None:
    a, b = (weft.placeholder((2,), name=name) for name in "ab")
    with weft.make_transformer("numpy") as transformer:
        transformer.computation(a - 2 * b, b, a).save(tmp_path / "swapped.weft")
        loaded = weft.load(tmp_path / "swapped.weft", transformer)
        np.testing.assert_array_equal(loaded(np.ones(2), np.zeros(2)), [-2, -2])


@pytest.mark.parametrize("backend", ["native", "opencl"])
def test_another_backend_computes_the_same(tmp_path: Path, backend: str) -> None:
    skip_without_backend(backend)
    saved = model()
    saved(ARGUMENT)
    saved.save(tmp_path / "step.weft", states=True)
    with weft.make_transformer(backend) as transformer:
        got = weft.load(tmp_path / "step.weft", transformer)(ARGUMENT)
        np.testing.assert_allclose(got["y"], saved(ARGUMENT)["y"], 1e-5)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_of_the_table_survives(function: str, tmp_path: Path) -> None:
    program = program_of(function)
    with weft.make_transformer("numpy") as transformer:
        saved = transformer.computation(program.results, *program.placeholders)
        saved.save(tmp_path / "function.weft")
        loaded = weft.load(tmp_path / "function.weft", transformer)
        assert_same(loaded(*program.arrays), saved(*program.arrays))


@given(program=programs())
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_random_programs_survive(program: RandomProgram, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("random") / "program.weft"
    with weft.make_transformer("numpy") as transformer:
        saved = transformer.computation(program.results, *program.placeholders)
        saved.save(path)
        loaded = weft.load(path, transformer)
        for _ in range(2):
            assert_same(loaded(*program.arrays), saved(*program.arrays))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint64", "float16", "bfloat16", "float64", "complex64", "complex128"],
)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 20)])
def test_arrays_of_every_dtype_survive(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).normal(size=shape).astype(weft.dtypes.as_dtype(dtype))
    content = safetensors_content.content_of({"a": array}, {"note": "text"})
    arrays, texts = safetensors_content.arrays_in(content)
    assert texts == {"note": "text"}
    assert (arrays["a"].dtype, arrays["a"].shape) == (array.dtype, shape)
    assert arrays["a"].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "results",
    [
        pytest.param(lambda x, s: None, id="nothing"),
        pytest.param(lambda x, s: x + 1, id="one"),
        pytest.param(lambda x, s: [x + 1, s], id="a list"),
        pytest.param(lambda x, s: {"a": x, 1: s}, id="a dictionary"),
        pytest.param(lambda x, s: weft.assign(s, x), id="a write"),
        pytest.param(lambda x, s: weft.capture([x + s], [x]), id="a graph"),
    ],
)
def test_results_keep_their_structure(results: Any, tmp_path: Path) -> None:
    x, s = weft.placeholder((2,)), weft.variable((2,), initial_value=2)
    made = results(x, s)
    parameters = [] if isinstance(made, weft.Graph) else [x]
    saved = weft.make_transformer("numpy").computation(made, *parameters)
    saved.save(tmp_path / "a.weft")
    assert_same(weft.load(tmp_path / "a.weft")([1, 2]), saved([1, 2]))


def test_a_process_without_the_model_runs_it(tmp_path: Path) -> None:
    (tmp_path / "private_model.py").write_text(
        "import numpy as np, weft\n"
        "x = weft.placeholder((weft.symbol('n'), 2), name='x')\n"
        "w = weft.variable((2, 2), initial_value=np.eye(2) * 3, name='w')\n"
        "step = weft.make_transformer('numpy').computation(weft.tanh(x @ w), x)\n"
        "step(np.ones((1, 2), 'float32'))\n"
        "step.save('model.weft')\n"
    )
    script = (
        "import importlib.util, numpy as np, weft\n"
        "assert importlib.util.find_spec('private_model') is None\n"
        f"step = weft.load({str(tmp_path / 'model.weft')!r}, 'numpy')\n"
        "print(step(np.ones((1, 2), 'float32')).tolist())\n"
    )
    (tmp_path / "elsewhere").mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    python = [sys.executable, "-W", "error"]
    subprocess.run([*python, "private_model.py"], cwd=tmp_path, env=environment, check=True)
    found = subprocess.run(
        [*python, "-c", script],
        cwd=tmp_path / "elsewhere", env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.strip() == str(np.tanh(np.full((1, 2), 3, "float32")).tolist())


def saved_parts(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    path = tmp_path / "step.weft"
    saved = model()
    saved(ARGUMENT)
    saved.save(path)
    with zipfile.ZipFile(path) as archive:
        return path, {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def with_document(**changes: Any) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    def change(parts: dict[str, bytes]) -> dict[str, bytes]:
        document = json.loads(parts["artifact.json"]) | changes
        return {**parts, "artifact.json": json.dumps(document).encode()}

    return change


def with_text(old: str, new: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    def change(parts: dict[str, bytes]) -> dict[str, bytes]:
        text = parts["graph.txt"].decode()
        assert old in text
        return {**parts, "graph.txt": text.replace(old, new).encode()}

    return change


def without(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda parts: {key: part for key, part in parts.items() if key != name}


HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "no document": (without("artifact.json"), "is not an artifact"),
    "no graph": (without("graph.txt"), "graph.txt"),
    "no constants": (without("constants.safetensors"), "constants"),
    "a newer format": (with_document(format=99), "version 99 of the format"),
    "a format that is not a number": (with_document(format={}), "of the format"),
    "a document that is not a dictionary": (lambda p: {**p, "artifact.json": b"[]"}, "malformed"),
    "a deep document": (lambda p: {**p, "artifact.json": b"[" * 10**5}, "malformed"),
    "a name that is a number": (with_document(name=3), "expected str"),
    "results that are none": (with_document(results=3), "malformed"),
    "an unknown form": (
        with_document(results={"form": "x", "keys": None, "tensors": [True] * 3}),
        "malformed",
    ),
    "too many results": (
        with_document(results={"form": "tuple", "keys": None, "tensors": [True] * 9}),
        "malformed",
    ),
    "a length of nothing": (with_document(given={"q": 3}), "malformed"),
    "a length that is text": (with_document(given={"n": "3"}), "expected int"),
    "a negative length": (with_document(given={"n": -3}), "malformed"),
    "ops that are a list": (with_document(ops=["AddOp"]), "expected dict"),
    "a package that is a number": (with_document(ops={"SoftOp": 3}), "expected str"),
    "an op that is nowhere": (
        with_document(ops={"SoftOp": "weft_soft"}),
        r"not installed here, or do not register them .*: SoftOp of weft_soft",
    ),
    "options that are a list": (with_document(options=[1]), "expected dict"),
    "an option that is text": (with_document(options={"fast_math": "yes"}), "expected bool"),
    "a limit that is text": (with_document(options={"memory_limit": "1"}), "expected int"),
    "a negative limit": (with_document(options={"memory_limit": -1}), "malformed"),
    "a path out of the folder": (lambda p: {**p, "../evil": b""}, "no plain name"),
    "an absolute path": (lambda p: {**p, "/evil": b""}, "no plain name"),
    "a call": (with_text("TanhOp(", "open("), "unknown op 'open'"),
    "a cycle": (with_text("result(", "after(v0, v5)\nafter(v5, v0)\nresult("), "cycle|malformed"),
    "a wrong type": (with_text("float32(40, 3)", "float32(40, 4)"), "malformed"),
    "a negative axis": (with_text("float32(40, 3)", "float32(-40, 3)"), "malformed"),
    "a huge axis": (with_text("float32(40, 3)", f"float32({10**30}, 3)"), "malformed"),
    "packed values": (with_text("stored('c0')", "packed('eJwDAAAAAAE=')"), "malformed"),
    "an unknown constant": (with_text("stored('c0')", "stored('c99')"), "no such one"),
    "a graph that is not text": (lambda p: {**p, "graph.txt": b"\xff\xfe"}, "malformed"),
    "arrays that are none": (lambda p: {**p, "constants.safetensors": b"\0" * 64}, "safetensors"),
    "a header without end": (
        lambda p: {**p, "constants.safetensors": b"\xff" * 8 + b"{}"},
        "safetensors",
    ),
    "a value of no state": (
        lambda p: {**p, "states.safetensors": safetensors_content.content_of({"q": ARGUMENT})},
        "malformed",
    ),
    "states without values": (
        lambda p: {**p, "states.safetensors": safetensors_content.content_of({})},
        "no values of",
    ),
}


@pytest.mark.parametrize("options", [{}, {"fast_math": True}, {"memory_limit": 10**6}])
def test_options_that_change_values_or_memory_are_kept(
    options: dict[str, Any], tmp_path: Path
) -> None:
    x = weft.placeholder((3,), name="x")
    path = tmp_path / "saved.weft"
    with weft.make_transformer("numpy", **options) as transformer:
        transformer.computation(x * 0, x).save(path)
    loaded = weft.load(path, "numpy")
    with loaded.transformer:
        assert loaded.transformer.fast_math is options.get("fast_math", False)
        assert loaded.transformer.memory_limit == options.get("memory_limit")
        is_nan = bool(np.isnan(loaded(np.full(3, np.nan, np.float32))).any())
        assert is_nan != options.get("fast_math", False)
    with weft.make_transformer("numpy") as transformer:
        weft.load(path, transformer)
        assert (transformer.fast_math, transformer.memory_limit) == (False, None)


def constant_model() -> Any:
    x = weft.placeholder((40,), name="x")
    return weft.make_transformer("numpy").computation(
        weft.tanh(x) + np.arange(40, dtype="float32"), x
    )


@pytest.mark.parametrize("flaw", HOSTILE)
def test_a_hostile_file_is_an_error(flaw: str, tmp_path: Path) -> None:
    path, parts = saved_parts(tmp_path)
    change, message = HOSTILE[flaw]
    rewritten(path, change(parts))
    with pytest.raises(ArtifactError, match=message):
        weft.load(path)


def test_compressed_parts_are_refused(tmp_path: Path) -> None:
    path, parts = saved_parts(tmp_path)
    bomb = {**parts, "bomb": b"\0" * 10**7}
    rewritten(path, bomb, zipfile.ZIP_DEFLATED)
    with pytest.raises(ArtifactError, match="compressed"):
        weft.load(path)


def test_parts_of_one_name_are_refused(tmp_path: Path) -> None:
    path, _ = saved_parts(tmp_path)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("graph.txt", "")
    with pytest.raises(ArtifactError, match="share a name"):
        weft.load(path)


@given(data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_damaged_file_is_an_error_or_the_same(data: Any, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    whole = DAMAGED.setdefault("whole", _content(folder))
    start = data.draw(st.integers(0, len(whole) - 1))
    count = data.draw(st.sampled_from([0, 1, 8, 10**9]))
    put = data.draw(st.binary(max_size=8))
    path = folder / "damaged.weft"
    path.write_bytes(whole[:start] + put + whole[start + count :])
    try:
        loaded = weft.load(path)
    except ArtifactError:
        return
    assert loaded(np.zeros(40)).shape == (40,)


DAMAGED: dict[str, bytes] = {}


def _content(folder: Path) -> bytes:
    constant_model().save(folder / "whole.weft")
    return (folder / "whole.weft").read_bytes()


@pytest.mark.parametrize(
    ("what", "value"),
    [("weft", "9.9"), ("backend", "abacus"), ("python", "p"), ("numpy", 3)],
)
def test_code_for_something_else_is_refused_with_the_difference(
    what: str, value: Any, tmp_path: Path
) -> None:
    path, parts = saved_parts(tmp_path)
    rewritten(path, with_document(**{what: value})(parts))
    with pytest.raises(ArtifactError, match=f"code for {what} .*without trust=True"):
        weft.load(path, "numpy", trust=True)
    weft.load(path, "numpy")


def test_code_for_another_processor_is_refused(tmp_path: Path) -> None:
    path, parts = saved_parts(tmp_path)
    rewritten(path, with_document(processor=["avx9000"])(parts))
    with pytest.raises(ArtifactError, match="a processor with avx9000"):
        weft.load(path, trust=True)


def test_code_of_the_file_runs_only_if_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")
    path = tmp_path / "a.weft"
    constant_model().save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    code = parts["programs/0/code"]
    assert b"tanh(x0" in code
    parts["programs/0/code"] = code.replace(b"tanh(x0", b"tanh(c0")
    rewritten(path, parts)
    (honest, forged) = (weft.load(path, trust=trust)(np.ones(40)) for trust in (False, True))
    assert honest[0] == np.tanh(np.float32(1))
    assert forged[0] != honest[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: {x + 1, x + 2}, "results in a list"),
        (lambda x: {2.5: x}, "results in a list"),
    ],
)
def test_results_that_a_file_cannot_hold_are_refused(
    make: Any, message: str, tmp_path: Path
) -> None:
    x = weft.placeholder((2,))
    with pytest.raises(ArtifactError, match=message):
        weft.make_transformer("numpy").computation(make(x), x).save(tmp_path / "a.weft")
    assert not list(tmp_path.iterdir())


def test_initial_values_of_open_lengths_are_refused(tmp_path: Path) -> None:
    n = weft.symbol("n")
    x, s = weft.placeholder((n,)), weft.variable((n,), initial_value=3.0)
    computation = weft.make_transformer("numpy").computation(x + s, x)
    with pytest.raises(ArtifactError, match="only a call tells"):
        computation.save(tmp_path / "a.weft")
    given_ = weft.make_transformer("numpy").computation(x + s, x, axes={n: 2})
    given_.save(tmp_path / "a.weft")
    assert weft.load(tmp_path / "a.weft")([1, 2]).tolist() == [4, 5]


def test_a_failed_save_leaves_the_last_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = saved_parts(tmp_path)
    before = path.read_bytes()

    def fail(*_: Any) -> bytes:
        raise MemoryError

    monkeypatch.setattr(artifact_saving, "content_of", fail)
    with pytest.raises(MemoryError):
        model().save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    saved = constant_model()
    with pytest.raises(ArgumentError, match="states="):
        saved.save(tmp_path / "a", states=1)
    with pytest.raises(ArgumentError, match="is a folder"):
        saved.save(tmp_path)
    with pytest.raises(ArgumentError, match="path of a file"):
        weft.load(io.BytesIO())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="trust="):
        weft.load(tmp_path, trust=1)  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match="cannot be read"):
        weft.load(tmp_path / "missing")
    with pytest.raises(ArtifactError, match="cannot be read"):
        weft.load(tmp_path)


@pytest.mark.parametrize(
    ("former", "present"),
    [("ArtefactError", errors.ArtifactError), ("BatchError", errors.BatchFailed)],
)
def test_former_spellings_of_errors_warn(former: str, present: type[Exception]) -> None:
    with pytest.warns(DeprecationWarning, match=f"is now spelled {present.__name__}"):
        assert getattr(errors, former) is present


def test_other_names_of_errors_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ArtefactErrors'"):
        _ = errors.ArtefactErrors


RESULTS: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "one": (weft.exp, ["result0"]),
    "a list": (lambda x: [weft.exp(x), weft.sum(x)], ["result0", "result1"]),
    "a dict": (lambda x: {"first": weft.exp(x), 2: weft.sum(x)}, ["first", "2"]),
}


@pytest.mark.parametrize("form", RESULTS)
def test_commands_take_artifacts(tmp_path: Path, form: str) -> None:
    build, names = RESULTS[form]
    x, path = weft.placeholder((2,), "float64", name="x"), tmp_path / "a.weft"
    scale = weft.variable((), "float64", initial_value=2.0)
    computation = weft.make_transformer("numpy").computation(build(x * scale), x)
    computation([1, 2])
    computation.save(path, states=True)
    output = tmp_path / "found.npz"
    options = ["--backend", "numpy", "--input", "x=3"]
    done = CliRunner().invoke(app, ["run", f"{path}", *options, "--output", f"{output}"])
    assert done.exit_code == 0, done.output
    with np.load(output) as found:
        assert {name: found[name].sum() for name in found.files} == pytest.approx(
            dict(zip(names, (2 * np.exp(6.0), 12.0), strict=False))
        )
    assert CliRunner().invoke(app, ["show", f"{path}", "--backend", "numpy"]).exit_code == 0
    for option in ("--length=n=3", f"--constants={output}"):
        refused = CliRunner().invoke(app, ["run", f"{path}", option])
        assert refused.exit_code == 1
        assert "is an artifact" in refused.output
