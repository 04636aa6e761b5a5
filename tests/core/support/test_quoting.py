"""What users name never becomes code, and generated text is not read back."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from needs import skip_without

import weft
from weft.support.quoting import harmless, identifier, variable
from weft_c.dialect import CUDA, OPENCL
from weft_c.source.functions import Function, GPUKernel, Parameter, Source
from weft_c.source.helpers import HELPERS

HOSTILE = [
    "weft_model",
    "weft_tanh_f32(x)",
    "my f64 model",
    "SHUFFLE_XOR",
    "void kernel(",
    "[a, b] = tensors",
    "µ-batch",
    "ﬁt",
    "\N{KELVIN SIGN}",
    "x²",
    "\N{ARABIC-INDIC DIGIT ONE}",
    "class",
    "",
    " ",
    "a\nb = 1/0",
    "a\r\n#error",
    "a\n#define f32 double",
    "a\u2028b\x0cc\x85d\x0be",
    "*/ int x; /*",
    "// what",
    "ends with \\",
    "\\\nreturn",
    "ends with ??/",
    "?" * 5 + "/",
    "\"quoted\" 'twice' \"\"\" '''",
    "{braces} {0} %s %(name)s",
    "nul \0 inside",
    "surrogate \udcff\ud800",
    "right to left \u202e",
    "\N{MATHEMATICAL FRAKTUR CAPITAL U}\N{SPOOL OF THREAD}",
    "long " * 60,
]

PROGRAM = """\
import weft
def build(name):
    axis = weft.Axis(6, name)
    x = weft.placeholder([axis], "float32", name=name)
    half = weft.placeholder([axis], "float16", name=name)
    state = weft.variable([axis], initial_value=1, name=name)
    with weft.metadata(label=name):
        value = (weft.tanh(x) + half * half) % 3 // weft.exp(state)
        value.name = name
    total = weft.sum(value)
    write = weft.assign(state, state + total)
    return [value, weft.sort(value, axis=axis), total, write], [x, half]
"""


def written_in(filename: str) -> Any:
    """Return the program's function as if a file of this name held it."""
    scope: dict[str, Any] = {}
    if "\0" in filename or any("\ud800" <= each <= "\udfff" for each in filename):
        filename = filename.encode(errors="replace").decode().replace("\0", "?")
    exec(compile(PROGRAM, filename, "exec"), scope)
    linecache.cache[filename] = (0, None, [f"{filename}\\\n"] * 20, filename)
    return scope["build"]


@pytest.fixture(autouse=True)
def _lines() -> Iterator[None]:
    """Forget the lines of files that do not exist."""
    before = set(linecache.cache)
    yield
    for name in set(linecache.cache) - before:
        linecache.cache.pop(name, None)


def arguments() -> tuple[Any, Any]:
    x = np.linspace(-3, 3, 6, dtype=np.float32)
    return x, x.astype(np.float16)


def results_of(transformer: Any, name: str, filename: str) -> list[Any]:
    results, parameters = written_in(filename)(name)
    computation = transformer.computation(results, *parameters, name=name)
    found = [computation(*arguments()) for _ in range(2)]
    assert computation.source
    return [each for several in found for each in several if each is not None]


@pytest.mark.parametrize("name", HOSTILE)
def test_graphs_with_hostile_names_and_files_parse_back(name: str) -> None:
    results, parameters = written_in(name or "empty.py")(name)
    text = weft.capture(results, parameters, name).text(full=True)
    assert weft.parse(text).text(full=True) == text


def test_hostile_names_and_files_change_no_number_on_numpy() -> None:
    with weft.make_transformer("numpy") as transformer:
        expected = results_of(transformer, "plain", "plain.py")
        for name in HOSTILE:
            found = results_of(transformer, name, name or "empty.py")
            for value, wanted in zip(found, expected, strict=True):
                np.testing.assert_array_equal(value, wanted, err_msg=repr(name))


@pytest.mark.parametrize("name", HOSTILE[:3])
def test_hostile_names_and_files_change_no_number_on_opencl(name: str, opencl: Any) -> None:
    with weft.make_transformer("numpy") as transformer:
        expected = results_of(transformer, "plain", "plain.py")
    for value, wanted in zip(results_of(opencl, name, name), expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_one_program_in_c_of_all_hostile_names_and_files(opencl: Any) -> None:
    values, given, parameters = [], arguments(), []
    for name in HOSTILE:
        results, own = written_in(name or "empty.py")(name)
        values.append(results[2])
        parameters += own
    found = opencl.computation(values, *parameters, name=HOSTILE[15])(*given * len(HOSTILE))
    assert len({float(each) for each in found}) == 1


@pytest.fixture
def opencl() -> Iterator[Any]:
    skip_without("opencl")
    with weft.make_transformer("opencl") as made:
        yield made


@given(st.text() | st.sampled_from(HOSTILE) | st.text("?/*\\\n ab"))
def test_harmless_text_stays_within_a_comment(text: str) -> None:
    found = harmless(text)
    assert found.isprintable()
    assert found.encode().decode() == found
    assert not {"??", "*/", "/*", "\\"} & {
        found[i : i + n] for i in range(len(found)) for n in (1, 2)
    }
    assert len(found) == len(text)
    assert compile(f"# {found}\nx = 1\n", "<comment>", "exec").co_firstlineno == 1


@given(st.text() | st.sampled_from(HOSTILE))
def test_identifiers_are_plain(text: str) -> None:
    for found in (f"k_{identifier(text)}", variable(text)):
        assert found.isascii()
        assert found.isidentifier()
    scope: dict[str, Any] = {}
    exec(f"{variable(text)} = 1", scope)
    assert scope[variable(text)] == 1


def test_harmless_text_is_left_alone() -> None:
    for text in ('File "model.py", line 3', "y = x ** 2 // 3 if a else 'b'", "модель.py", ""):
        assert harmless(text) == text


def source(
    processor_has_double: bool, lines: list[tuple[str, int]], calls: tuple[str, ...] = ()
) -> str:
    function = Function("f", (Parameter("x0", "f32", True),), "    x0[0] = 1;", 1, (), calls)
    made = Source(OPENCL, 1, processor_has_double)
    made.add(GPUKernel(function, (None,), 1, ()))
    made.locations[function.name] = dict(enumerate(lines))
    return made.text


def test_a_comment_asks_for_nothing() -> None:
    plain = source(False, [])
    for hostile in HOSTILE:
        text = source(False, [(hostile, 1)])
        assert text.count("\n") == plain.count("\n") + 1
        assert "typedef double" not in text
        assert "weft_tanh_f32(f32" not in text
    assert "cl_khr_fp64" in source(True, [])


def test_helpers_are_those_that_were_called_with_what_they_call() -> None:
    text = source(True, [], ("weft_half_round",))
    places = [text.index(f"FUNCTION {kind}(") for kind in (
        "u16 weft_half_bits", "f32 weft_half_value", "f32 weft_half_round",
    )]  # fmt: skip
    assert places[2] == max(places)
    assert text.count("FUNCTION f32 weft_") + text.count("FUNCTION u16 weft_") == 3


def test_helpers_name_all_that_they_call() -> None:
    for name, each in HELPERS.items():
        others = {other for other in HELPERS if f"{other}(" in each.text} - {name}
        assert set(each.calls) == others, name


def test_the_line_of_a_function_is_where_its_name_stands() -> None:
    made = Source(CUDA, 2)
    functions = [
        Function("f", (Parameter("x0", "f32", True),), f"    x0[0] = {n};", 1 + n % 2)
        for n in range(5)
    ]
    for number, function in enumerate(functions):
        made.add(GPUKernel(function, (None,), 1, ()))
        made.locations[function.name] = {n: ("model.py", n) for n in range(number)}
    lines = made.text.split("\n")
    for function in functions:
        assert f"void {function.name}(" in lines[made.line_of(function.name) - 1]


def test_messages_of_print_are_no_code() -> None:
    x = weft.placeholder((3,))
    with weft.make_transformer("numpy") as transformer:
        for message in HOSTILE:
            host = transformer.computation(weft.print_op(x, message), x)
            np.testing.assert_array_equal(host([1, 2, 3]), [1, 2, 3])
