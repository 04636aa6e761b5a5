"""Computations exported as C: compiled without a warning, and run from C."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pygments.lexer import words
from pygments.lexers.c_cpp import CLexer, CppLexer

import weft
from weft.errors import ArgumentError, BackendError
from weft_native.compiler import zig_command
from weft_native.exported_names import exported_name, words_of
from weft_native.transformer import NativeComputation, NativeTransformer

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2")
COMPILERS = [(name,) for name in ("gcc", "clang") if shutil.which(name)] or [zig_command()]
"""The commands of the compilers that are here."""

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "{name}.h"
static void *data(const char *path, size_t bytes) {{
    void *found = malloc(bytes);
    FILE *file = fopen(path, "rb");
    if (!file || fread(found, 1, bytes, file) != bytes) exit(2);
    fclose(file);
    return found;
}}
static void keep(const char *path, const void *found, size_t bytes) {{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(found, 1, bytes, file) != bytes) exit(2);
    fclose(file);
}}
int main(void) {{
    int status = 0;
{body}
    return status;
}}
"""


def run_in_c(
    compiled: NativeComputation,
    folder: Path,
    arrays: Sequence[Any],
    calls: int = 1,
    cc: Sequence[str] = COMPILERS[0],
    functions: str = "",
) -> tuple[int, list[np.ndarray[Any, Any]]]:
    """Export a computation and call it from C; returns its status and the last results.

    `functions` take the place of those of the C library.
    """
    source, _ = compiled.export_c(folder, "exported")
    outputs = compiled.program.captured.outputs
    lines, names = [], []
    for number, array in enumerate(arrays):
        (folder / f"in{number}").write_bytes(np.ascontiguousarray(array).tobytes())
        names.append(f"i{number}")
        lines.append(f'    void *i{number} = data("in{number}", {array.nbytes});')
    for number, op in enumerate(outputs):
        names.append(f"o{number}")
        lines.append(f"    void *o{number} = malloc({op.axes.size * op.dtype.itemsize});")
    lines += [f"    status = exported({', '.join(names)});"] * calls
    for number, op in enumerate(outputs):
        nbytes = op.axes.size * op.dtype.itemsize
        lines.append(f'    keep("out{number}", o{number}, {nbytes});')
    main = folder / "main.c"
    main.write_text(MAIN.format(name="exported", body="\n".join(lines)) + functions)
    command = [*cc, *STRICT, str(source), str(main), "-o", "program", "-lm"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    status = subprocess.run([folder / "program"], cwd=folder, timeout=60).returncode
    found = [
        np.frombuffer((folder / f"out{n}").read_bytes(), op.dtype).reshape(op.axes.shape)
        for n, op in enumerate(outputs)
    ]
    return status, found


@pytest.mark.parametrize("cc", COMPILERS, ids=" ".join)
def test_a_classifier_gives_the_same_digits(
    transformer: NativeTransformer, tmp_path: Path, cc: Sequence[str]
) -> None:
    rng = np.random.default_rng(0)
    images = weft.placeholder((20, 8, 8), name="images")
    shapes = [(64, 32), (32,), (32, 10), (10,)]
    w1, b1, w2, b2 = (
        weft.variable(shape, initial_value=rng.normal(0, 0.3, shape).astype(np.float32))
        for shape in shapes
    )
    hidden = weft.relu(weft.reshape(images, (20, 64)) @ w1 + b1)
    scores = weft.softmax(hidden @ w2 + b2)
    compiled = transformer.computation([scores, weft.argmax(scores, -1)], images)
    values = rng.normal(0, 1, (20, 8, 8)).astype(np.float32)
    expected = compiled(values)
    status, found = run_in_c(compiled, tmp_path, [values], cc=cc)
    assert status == 0
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], expected[1])


def test_states_loops_and_constants_are_exported(
    transformer: NativeTransformer, tmp_path: Path
) -> None:
    x = weft.placeholder((5,))
    count = weft.variable((5,), initial_value=np.full(5, 3, np.float32))
    value = weft.placeholder((5,))
    body = weft.capture([weft.tanh(value) + np.arange(5, dtype=np.float32)], [value])
    looped = weft.loop(body, 4, x)[0]
    step = weft.sequential([weft.assign(count, count + looped), count * 1])
    compiled = transformer.computation(step, x)
    values = np.linspace(-1, 1, 5, dtype=np.float32)
    compiled(values)
    status, found = run_in_c(compiled, tmp_path, [values], calls=2)
    compiled(values)
    assert status == 0
    np.testing.assert_allclose(found[0], compiled(values), rtol=1e-5)


def test_integers_and_half_precision_are_exported(
    transformer: NativeTransformer, tmp_path: Path
) -> None:
    x, n = weft.placeholder((4, 6), "float16"), weft.placeholder((4, 6), "int16")
    compiled = transformer.computation([weft.exp(x) * 2, n * n + 1, weft.sort(n), x > 0], x, n)
    arrays = [
        np.linspace(-2, 2, 24).astype(np.float16).reshape(4, 6),
        np.arange(24, dtype=np.int16).reshape(4, 6)[::-1],
    ]
    status, found = run_in_c(compiled, tmp_path, arrays)
    assert status == 0
    for one, other in zip(found, compiled(*arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3)


def test_transforms_are_exported(transformer: NativeTransformer, tmp_path: Path) -> None:
    x, z = weft.placeholder((9, 24)), weft.placeholder((3, 64), "complex128")
    spectra = [weft.fft.rfft(x), weft.fft.ifft(z), weft.fft.fft(z[:, :17]), weft.fft.irfft(z, 126)]
    compiled = transformer.computation(spectra, x, z)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=x.axes.shape).astype(np.float32), rng.normal(size=(3, 64)) * (1 + 2j)]
    status, found = run_in_c(compiled, tmp_path, arrays)
    assert status == 0
    for one, other in zip(found, compiled(*arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_acosh_below_1_is_not_that_of_the_library(
    transformer: NativeTransformer, tmp_path: Path
) -> None:
    """That of musl gives numbers for some, such as -16.5 for -6517."""
    x = weft.placeholder((4,), "float64")
    compiled = transformer.computation(weft.acosh(x), x)
    function = "double acosh(double x);\ndouble acosh(double x) { return x < 1 ? -16.5 : 2 * x; }\n"
    values = np.array([-6517, 0.5, 1, 3])
    status, found = run_in_c(compiled, tmp_path, [values], functions=function)
    assert status == 0
    np.testing.assert_array_equal(found[0], [np.nan, np.nan, 2, 6])


def test_an_index_out_of_range_is_the_status(
    transformer: NativeTransformer, tmp_path: Path
) -> None:
    table, index = weft.placeholder((5, 3)), weft.placeholder((4,), "int32")
    compiled = transformer.computation(weft.take(table, index, 0), table, index)
    arrays = [np.ones((5, 3), np.float32), np.array([0, 9, 1, 2], np.int32)]
    assert run_in_c(compiled, tmp_path, arrays)[0] == 1
    arrays[1][1] = 4
    assert run_in_c(compiled, tmp_path, arrays)[0] == 0


def test_what_cannot_be_exported_is_refused(transformer: NativeTransformer, tmp_path: Path) -> None:
    a = weft.placeholder((33, 33))
    solved = weft.inverse(a)
    with pytest.raises(BackendError, match="Python computes it") as caught:
        transformer.computation(solved, a).export_c(tmp_path)
    assert f'File "{__file__}", line {solved.lineno}' in str(caught.value)
    rows = weft.placeholder((weft.Axis(name="N"),))
    with pytest.raises(
        ArgumentError, match=r"unknown lengths, N: .*max=64.*transformer\.computation\(.*axes="
    ):
        transformer.computation(rows * 2, rows).export_c(tmp_path)
    assert not list(tmp_path.iterdir())


NEW_KEYWORDS = ("contract_assert",)
"""Words of C++26 that Pygments may not know."""


def keywords() -> Iterator[str]:
    """Yield the words that Pygments knows in C and C++."""
    for lexer in (CLexer, CppLexer):
        yield from (*lexer.stdlib_types, *lexer.c99_types, *lexer.linux_types)
        for rules in lexer.tokens.values():
            for rule in rules:
                if isinstance(rule, tuple) and isinstance(rule[0], words):
                    yield from rule[0].words


def library_names() -> Iterator[str]:
    """Yield the names in the libraries of C that the compiler links."""
    for library in ("libc.so.6", "libm.so.6"):
        command = [*COMPILERS[0], f"-print-file-name={library}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        listed = subprocess.run(["nm", "-D", path], capture_output=True, text=True).stdout
        yield from re.findall(r" [A-Za-z] (\w+)", listed)


@pytest.mark.needs("cc")
def test_no_name_is_one_of_c_or_of_the_text_itself(
    transformer: NativeTransformer, tmp_path: Path
) -> None:
    x, n = weft.placeholder((6, 4), name="exp"), weft.placeholder((6,), "int32", name="float")
    results = [weft.exp(x) @ weft.transpose(x), weft.take(x, n, 0), weft.sort(n), weft.sum(x, 0)]
    compiled = transformer.computation(results, x, n)
    source, header = compiled.export_c(tmp_path, "plain")
    text = source.read_text()
    own = words_of(text) - {"plain"}
    given = {*own, *keywords(), *library_names(), *NEW_KEYWORDS}
    assert len(own) > 100
    assert len(given) > 1000, "names of libraries and of the text are found"
    names = {exported_name(each, own) for each in given}
    assert names.isdisjoint(NEW_KEYWORDS), "which compilers before GCC 16 take"
    assert exported_name("step", own) == "step"
    declared = [f"int {each}(const float *in0, double *out0);" for each in sorted(names)]
    whole = "\n".join([
        text, "#include <stdio.h>", "#include <stdlib.h>", "#include <time.h>", *declared,
        *(f"int {each}(const float *in0, double *out0) {{ return in0[0] < out0[0]; }}"
          for each in sorted(names)),
    ])  # fmt: skip
    (tmp_path / "whole.c").write_text(whole)
    joined = "\n".join([header.read_text(), "#include <cmath>", 'extern "C" {', *declared, "}"])
    (tmp_path / "whole.cpp").write_text(joined + "\n")
    for standard in ("-std=c11", "-std=gnu17"):
        command = [*COMPILERS[0], *STRICT[1:], "-Wno-pedantic", standard, "-c", "whole.c"]
        subprocess.run([*command, "-O0"], cwd=tmp_path, check=True, timeout=300)
    if shutil.which("g++"):
        command = ["g++", *STRICT[1:], "-fsyntax-only", "whole.cpp"]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=300)


NAMES = (
    "exp",
    "float",
    "free",
    "runtime",
    "segment_0_0",
    "main",
    "in0",
    "b",
    "math",
    "3d",
    "size_t",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_computation_of_any_name_is_exported(
    transformer: NativeTransformer, tmp_path: Path, name: str
) -> None:
    x = weft.placeholder((5,), name=name)
    state = weft.variable((5,), initial_value=np.ones(5, np.float32), name=name)
    compiled = transformer.computation(weft.exp(x) + state, x, name=name)
    source, header = compiled.export_c(tmp_path)
    assert source.stem == header.stem != name
    assert f" in0: float32 (5,), {name}\n" in header.read_text()
    command = [*COMPILERS[0], *STRICT, "-I.", "-c", str(source)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)


CLASHES = [
    ("exp", "weft_exp"), ("weft_exp", "exp"), ("step 1", "step_1"), ("Step", "step"),
    ("a" * 50 + "b", "a" * 50 + "c"), ("...", "kernel"), ("in0", "weft_in0"), ("a\\b", "a/b"),
]  # fmt: skip


@pytest.mark.parametrize("by_argument", [False, True])
@pytest.mark.parametrize(("first", "second"), CLASHES)
def test_an_export_replaces_that_of_its_own_name_only(
    transformer: NativeTransformer, tmp_path: Path, first: str, second: str, by_argument: bool
) -> None:
    def export(op: Any, name: str) -> list[str]:
        title = None if by_argument else name
        computation = transformer.computation(op, x, name=title)
        paths = computation.export_c(tmp_path / "made", name if by_argument else None)
        return [path.read_text() for path in paths]

    x = weft.placeholder((3,), name="x")
    before = export(weft.exp(x), first)
    after = export([weft.log(x), x + 1], first)
    assert all(old != new for old, new in zip(before, after, strict=True))
    with pytest.raises(ArgumentError, match=r"no export of this name.*give another name"):
        export(weft.sin(x), second)
    (tmp_path / "made").rename(tmp_path / "kept")
    export(weft.sin(x), second)
    names = [sorted(each.name for each in (tmp_path / f).iterdir()) for f in ("made", "kept")]
    assert names[0] == names[1]
    assert export([weft.log(x), x + 1], second) != after
    kept = [path.read_text() for path in sorted((tmp_path / "kept").iterdir())]
    assert kept == after


@pytest.mark.parametrize("suffix", ["c", "h"])
def test_a_file_that_weft_did_not_write_stays(
    transformer: NativeTransformer, tmp_path: Path, suffix: str
) -> None:
    x = weft.placeholder((3,), name="x")
    mine = tmp_path / f"step.{suffix}"
    mine.write_text("int mine;\n")
    with pytest.raises(ArgumentError, match=rf"step\.{suffix} is there"):
        transformer.computation(x + 1, x, name="step").export_c(tmp_path)
    assert [(path, path.read_text()) for path in tmp_path.iterdir()] == [(mine, "int mine;\n")]


def test_results_and_parameters_have_their_names_in_the_header(
    transformer: NativeTransformer, tmp_path: Path
) -> None:
    x, y = weft.placeholder((3,), name="x"), weft.placeholder((3,), name="x")
    compiled = transformer.computation({"loss": x * y, "rest": x + y}, x, y, name="step")
    one = transformer.computation((x - y).named("difference"), x, y, name="other")
    text = compiled.export_c(tmp_path)[1].read_text()
    assert re.findall(r"(\w+): float32 \(3,\), (.+)", text) == [
        ("in0", "x"), ("in1", "x"), ("out0", "loss"), ("out1", "rest"),
    ]  # fmt: skip
    assert " out0: float32 (3,), difference\n" in one.export_c(tmp_path)[1].read_text()


def test_lengths_that_were_given_are_those_of_the_exported_function(
    transformer: NativeTransformer, tmp_path: Path
) -> None:
    rows, columns = weft.Axis(name="N"), weft.Axis(name="C")
    x = weft.placeholder((rows, columns), name="x")
    compiled = transformer.computation(weft.sum(x, 0) * 2, x, axes={rows: 3, columns: 4})
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    status, found = run_in_c(compiled, tmp_path, [values])
    assert status == 0
    np.testing.assert_array_equal(found[0], compiled(values))
    assert "in0: float32 (3, 4), x" in (tmp_path / "exported.h").read_text()
    with pytest.raises(ArgumentError, match="unknown lengths"):
        transformer.computation(weft.sum(x, 0), x, axes={rows: 3}).export_c(tmp_path, "other")


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.needs("compiler")
def test_an_exported_function_has_the_options_of_its_transformer(
    tmp_path: Path, fast_math: bool
) -> None:
    x = weft.placeholder((5,))
    with NativeTransformer(cache=False, fast_math=fast_math) as transformer:
        compiled = transformer.computation(x * 0 + 1, x)
        values = np.array([1, np.inf, np.nan, -2, 0], np.float32)
        status, found = run_in_c(compiled, tmp_path, [values])
        assert status == 0
        np.testing.assert_array_equal(found[0], compiled(values))
        assert np.isnan(found[0]).any() != fast_math


@pytest.mark.needs("compiler")
def test_a_limit_on_memory_holds_for_the_exported_function(tmp_path: Path) -> None:
    x = weft.placeholder((1000,))
    with NativeTransformer(cache=False, memory_limit=100) as transformer:
        compiled = transformer.computation([weft.sort(x) @ weft.sort(-x)], x)
        with pytest.raises(weft.errors.MemoryLimitError):
            compiled.export_c(tmp_path)


# Lengths as arguments


def weights(*shape: int) -> Any:
    values = np.random.default_rng(sum(shape)).normal(0, 0.3, shape)
    return weft.variable(shape, initial_value=values.astype(np.float32))


def two_layers(x: Any) -> Any:
    return weft.softmax(weft.relu(x @ weights(6, 20) + weights(20)) @ weights(20, 5), axis=-1)


def attention(x: Any) -> Any:
    q, k, v = (x @ weights(6, 6) for _ in range(3))
    return weft.softmax(q @ weft.transpose(k), axis=-1) @ v


def counted(x: Any) -> Any:
    calls = weft.persistent_tensor((), initial_value=0.0)
    return weft.sequential([weft.assign(calls, calls + 1), x * calls])


def shrinking(x: Any) -> Any:
    """Return what needs the more memory in a loop, the fewer rows there are."""
    carried = weft.placeholder((6,), name="carried")
    rest = weft.broadcast_to(carried, (LONGEST + 2 - x.axes[0].length, 6))
    sums = weft.cumsum(weft.tanh(rest), axis=0)
    body = weft.capture([weft.tanh(weft.sum(sums[::-1] * sums, axis=0) + carried)], [carried])
    return weft.loop(body, 3, weft.sum(x, axis=0))[0]


LONGEST = 19
MODELS: dict[str, Any] = {
    "two layers": two_layers,
    "attention": attention,
    "columns": lambda x: [weft.mean(x, axis=0), weft.cumsum(x, axis=0)],
    "moved": lambda x: weft.concat([weft.flip(x, axis=0), weft.pad(x, ((1, 2), (0, 0)))], axis=0),
    "sorted": lambda x: [weft.sort(x, axis=0), weft.argmax(x, axis=1)],
    "convolution": lambda x: weft.conv2d(
        weft.reshape(x, (-1, 1, 2, 3)), weights(4, 1, 2, 2), padding=1
    ),
    "gradient": lambda x: weft.deriv(weft.mean((x @ weights(6, 3)) ** 2, axis=None), x),
    "calls": counted,
    "median": lambda x: weft.quantile(x, 0.5, axis=0),
    "shrinking": shrinking,
    "deviations": lambda x: [weft.std(x, axis=0), weft.logsumexp(x, axis=0)],
    "spectra": lambda x: [weft.fft.rfft(x), weft.fft.fft(x, axis=1, n=16)],
    "random": lambda x: x + 0 * weft.uniform(x.axes),
    "causal": lambda x: weft.attention(
        *[weft.reshape(x, (1, 2, -1, 3)) for _ in range(3)], is_causal=True
    ),
}


def exported(source: Path, folder: Path) -> Any:
    """Compile an exported function, and return it."""
    library = folder / f"{source.stem}.so"
    command = [*COMPILERS[0], *STRICT, "-fPIC", "-shared", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True, timeout=120)
    return ctypes.CDLL(str(library))[source.stem]


def address(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.needs("cc")
@pytest.mark.parametrize("name", MODELS)
def test_lengths_with_maxima_are_arguments(tmp_path: Path, name: str) -> None:
    x = weft.placeholder((weft.symbol("rows", max=LONGEST), 6), name="x")
    built = MODELS[name](x)
    native, numpy = (
        weft.make_transformer(each, cache=False).computation(built, x, name="exported")
        for each in ("native", "numpy")
    )
    assert isinstance(native, NativeComputation)
    source, header = native.export_c(tmp_path)
    assert "length0: rows, from 0 to 19" in header.read_text()
    assert "in0: float32 (rows, 6), x" in header.read_text()
    f = exported(source, tmp_path)
    random = np.random.default_rng(1)
    for n in [*range(1, LONGEST + 1), 7, LONGEST]:
        array = random.normal(size=(n, 6)).astype(np.float32)
        results = numpy(array)
        wanted = [*results] if isinstance(results, list | tuple) else [np.asarray(results)]
        found = [np.empty_like(each) for each in wanted]
        assert f(ctypes.c_int64(n), address(array), *map(address, found)) == 0, n
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6, err_msg=f"{n} rows")
    for n in (-1, LONGEST + 1, 2**40):
        assert f(ctypes.c_int64(n), *[ctypes.c_void_p()] * (1 + len(found))) == 2


@pytest.mark.needs("cc")
def test_several_lengths_are_arguments(tmp_path: Path) -> None:
    n, m = weft.symbol("n", max=9), weft.symbol("m", max=7)
    x, y = weft.placeholder((n, m), name="x"), weft.placeholder((m, n), name="y")
    product = weft.tanh(x @ y)
    with weft.make_transformer("native", cache=False) as transformer:
        compiled = transformer.computation(product, x, y, name="exported")
        assert isinstance(compiled, NativeComputation)
        f = exported(compiled.export_c(tmp_path)[0], tmp_path)
    random = np.random.default_rng(1)
    for rows, columns in itertools.product(range(10), range(8)):
        left, right = (
            random.normal(size=shape).astype(np.float32)
            for shape in ((rows, columns), (columns, rows))
        )
        found = np.empty((rows, rows), np.float32)
        lengths = ctypes.c_int64(rows), ctypes.c_int64(columns)
        assert f(*lengths, *map(address, (left, right, found))) == 0
        np.testing.assert_allclose(found, np.tanh(left @ right), rtol=1e-5, atol=1e-6)


@pytest.mark.needs("cc")
def test_lengths_that_are_not_possible_are_refused_by_the_function(tmp_path: Path) -> None:
    x = weft.placeholder((weft.symbol("n", max=8),), name="x")
    windows = weft.conv1d(weft.reshape(x, (1, 1, -1)), weft.constant(np.ones((1, 1, 3), "f4")))
    for name, results in (("windows", windows), ("largest", weft.topk(x, 3)[0])):
        with weft.make_transformer("native", cache=False) as transformer:
            compiled = transformer.computation(results, x, name=name)
            assert isinstance(compiled, NativeComputation)
            source, header = compiled.export_c(tmp_path)
        assert "2 for lengths out of range or refused by an op" in header.read_text()
        f = exported(source, tmp_path)
        for n in range(9):
            array, found = np.arange(n, dtype=np.float32), np.zeros(9, np.float32)
            assert f(ctypes.c_int64(n), address(array), address(found)) == (2 if n < 3 else 0)
            if n >= 3:
                assert found[0] == (3 if name == "windows" else n - 1)


@pytest.mark.needs("compiler")
def test_lengths_that_are_all_refused_are_an_error(tmp_path: Path) -> None:
    x = weft.placeholder((weft.symbol("n", max=2),), name="x")
    with weft.make_transformer("native", cache=False) as transformer:
        compiled = transformer.computation(weft.topk(x, 3)[0], x)
        assert isinstance(compiled, NativeComputation)
        with pytest.raises(ArgumentError, match="takes none of the lengths") as caught:
            compiled.export_c(tmp_path)
        assert "k must be from 0 to" in str(caught.value.__cause__)


@pytest.mark.needs("compiler")
def test_code_that_depends_on_lengths_says_so(tmp_path: Path) -> None:
    x = weft.placeholder((weft.symbol("n", max=60),), name="x")
    with weft.make_transformer("native", cache=False) as transformer:
        compiled = transformer.computation(weft.quantile(x, 0.5), x)
        assert isinstance(compiled, NativeComputation)
        with pytest.raises(ArgumentError, match=r"more than 32 of its lengths: .* smaller max="):
            compiled.export_c(tmp_path)


@pytest.mark.needs("compiler")
@pytest.mark.parametrize("is_called", [False, True])
def test_states_of_unknown_lengths_are_not_exported(tmp_path: Path, is_called: bool) -> None:
    n = weft.symbol("n", max=8)
    y, total = weft.placeholder((n,), name="y"), weft.persistent_tensor((n,), initial_value=0.0)
    result = weft.sequential([weft.assign(total, total + y), total * 1])
    with weft.make_transformer("native", cache=False) as transformer:
        compiled = transformer.computation(result, y)
        assert isinstance(compiled, NativeComputation)
        if is_called:
            compiled(np.ones(5))
        with pytest.raises(ArgumentError, match=r"has an unknown length .*test_native_export"):
            compiled.export_c(tmp_path)


@pytest.mark.needs("compiler")
@pytest.mark.parametrize(
    ("lengths", "options", "words"),
    [
        ((300, 300), {}, "more than 65536 combinations of lengths"),
        ((9, None), {}, r"unknown lengths, s1: .*weft.symbol\('s1', max=64\)"),
        ((9, 9), {"memory_limit": 10**6}, "unknown lengths and a limit on memory"),
    ],
)
def test_lengths_that_cannot_be_arguments_are_refused(
    tmp_path: Path, lengths: Sequence[int | None], options: Any, words: str
) -> None:
    symbols = [weft.symbol(f"s{number}", max=most) for number, most in enumerate(lengths)]
    x = weft.placeholder(symbols, name="x")
    with weft.make_transformer("native", cache=False, **options) as transformer:
        compiled = transformer.computation(x + 1, x)
        assert isinstance(compiled, NativeComputation)
        with pytest.raises(ArgumentError, match=words):
            compiled.export_c(tmp_path)
    assert not list(tmp_path.iterdir())
