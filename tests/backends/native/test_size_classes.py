"""Programs for other lengths share their code, and compute what the numpy backend computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.cache import store
from weft_native import compiler, shared_library
from weft_native.size_classes import TABLE, Hole, SizeClass, size_class

pytestmark = pytest.mark.needs("compiler")

TEXT = """\
static NOINLINE void add_0(GLOBAL f32 *x0, const i64 *numbers, const i64 item, const i64 items) {{
    {line}
}}

static void launch_0(char *const *b) {{
    add_0((f32 *)(b[0] + {offset}), (const i64 *)b[2], item, items);
}}
"""


def text(line: str, offset: int = 640) -> str:
    return TEXT.format(line=line, offset=offset)


@pytest.mark.parametrize(
    ("line", "other", "kinds", "numbers"),
    [
        ("x0[i] = 7;", "x0[i] = 9;", ["i32"], [7]),
        ("x0[i * 7 + 7] = 7;", "x0[i * 9 + 9] = 9;", ["i32"], [7]),
        ("x0[i * 7 + 7];", "x0[i * 9 + 8];", ["i32", "i32"], [7, 7]),
        ("x0[i] = -7L;", "x0[i] = -9L;", ["i64"], [7]),
        ("f32 row[7];", "f32 row[9];", ["i32"], [7]),
        ("x0[i] = 0.5f;", "x0[i] = 0.25f;", ["f32"], [np.float32(0.5).view(np.int32)]),
        ("x0[i] = 1e-05f;", "x0[i] = 2.5f;", ["f32"], [np.float32(1e-5).view(np.int32)]),
        ("x0[i] = 0.5;", "x0[i] = 2e+30;", ["f64"], [np.float64(0.5).view(np.int64)]),
        ("const i64 shape[] = {7, 4};", "const i64 shape[] = {9, 4};", ["i32"], [7]),
    ],
)
def test_numbers_that_differ_are_read_from_the_table(
    line: str, other: str, kinds: list[str], numbers: list[Any]
) -> None:
    found = size_class(text(line), text(other))
    assert found is not None
    assert found.kinds == kinds
    table = found.numbers(text(line))
    assert table is not None
    assert table.tolist() == numbers
    assert found.numbers(text(other)) is not None
    shared = found.text(2)
    assert len(shared.split("\n")) == len(text(line).split("\n"))
    _, _, body = shared.partition("{")
    assert all(f"{TABLE}[{n}]" in body or f"{TABLE} + {n}" in body for n in range(len(kinds)))


def test_functions_without_the_parameter_find_the_table_in_theirs() -> None:
    found = size_class(text("", 640), text("", 1280))
    assert found is not None
    assert f"const i64 *const {TABLE} = (const i64 *)b[2]; const i32 given0" in found.text(2)
    assert "b[0] + given0" in found.text(2)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("x0[i] = 7;", "x0[i] = 7 + 1;"),
        ("x0[i] = 7;", "x0[i] = y;"),
        ("x0[i] = 7;", "x0[i] = 7L;"),
        ("x0[i] = 7;", "x0[i] = 2147483648;"),
        ("x0[i] = 7u;", "x0[i] = 9u;"),
        ("x0[i] = 7;\n", "x0[i] = 7;"),
        ("f32x8 c[7];", "f32x8 c[9];"),
        ("f32 c[7][2];", "f32 c[9][2];"),
        ("f32 c[7] = {0};", "f32 c[9] = {0};"),
        ("UNROLL\n    for (; r < 7; r++) {}", "UNROLL\n    for (; r < 9; r++) {}"),
        ("f32 row __attribute__((aligned(4)));", "f32 row __attribute__((aligned(8)));"),
        ("typedef f32 row[7];", "typedef f32 row[9];"),
        ("#define SIZE 7", "#define SIZE 9"),
        ("case 7: break;", "case 9: break;"),
        ("static const f32 c[] = {7};", "static const f32 c[] = {9};"),
    ],
)  # fmt: skip
def test_texts_that_differ_in_more_are_of_two_classes(line: str, other: str) -> None:
    assert size_class(text(line), text(other)) is None


@pytest.mark.parametrize(
    "line", ["x0[i * 7 + 8] = 5;", "x0[i * 7L + 7] = 5;", "x0[i * 7 + 7] = 6;", "y = 5;", "\n"]
)
def test_a_text_of_another_class_has_no_table(line: str) -> None:
    found = size_class(text("x0[i * 7 + 7] = 5;"), text("x0[i * 9 + 9] = 5;"))
    assert found is not None
    assert found.numbers(text("x0[i * 8 + 8] = 5;")) is not None
    assert found.numbers(text(line)) is None


def test_joined_classes_hold_the_texts_of_both() -> None:
    one = size_class(text("x0[i * 7 + 5] = 4;"), text("x0[i * 9 + 5] = 4;"))
    two = size_class(text("x0[i * 7 + 5] = 4;"), text("x0[i * 7 + 6] = 4;"))
    other = size_class(text("x0[i * 7 + 5] = y;"))
    assert one is not None
    assert two is not None
    assert other is not None
    both = one.joined(two)
    assert both is not None
    assert both.numbers(text("x0[i * 1 + 2] = 4;")) is not None
    assert both.numbers(text("x0[i * 1 + 2] = 3;")) is None
    assert both.holds(one)
    assert both.holds(two)
    assert not one.holds(two)
    assert one.joined(other) is None


def test_a_restored_class_is_that_of_its_text() -> None:
    found = size_class(text("x0[i] = 7;"), text("x0[i] = 9;"))
    assert found is not None
    again = SizeClass(text("x0[i] = 8;").split("\n"), [Hole(*found.holes[0])], found.kinds)
    assert again.text(2) == found.text(2)


# Programs

Model = Callable[[weft.TensorOp], weft.TensorOp]
rng = np.random.default_rng(5)


def weights(*shape: int) -> Any:
    return weft.constant(rng.normal(size=shape).astype(np.float32) / 4)


def mlp(x: Any) -> Any:
    hidden = weft.relu(x @ weights(16, 40) + weights(40))
    return weft.softmax(hidden @ weights(40, 10), axis=-1)


def attention(x: Any) -> Any:
    q, k, v = (x @ weights(16, 16) for _ in range(3))
    scores = weft.softmax(q @ weft.transpose(k) * 0.25, axis=-1)
    return weft.layer_norm(scores @ v + x, weights(16), weights(16))


def loss_gradient(x: Any) -> Any:
    w = weights(16, 3)
    loss = weft.mean((x @ w - 1) ** 2, axis=None)
    return weft.deriv(loss, x)


def convolution(x: Any) -> Any:
    images = weft.reshape(x, (-1, 1, 4, 4))
    return weft.max_pool(weft.relu(weft.conv2d(images, weights(6, 1, 3, 3), padding=1)), 2)


def moved(x: Any) -> Any:
    both = weft.concat([x, weft.flip(x, axis=0)], axis=0)
    return weft.roll(weft.pad(both, ((1, 2), (0, 0))), 3, axis=0)


MODELS: dict[str, Model] = {
    "mlp": mlp,
    "attention": attention,
    "loss_gradient": loss_gradient,
    "convolution": convolution,
    "moved": moved,
    "columns": lambda x: weft.var(x, axis=0),
    "rows": lambda x: weft.logsumexp(x * 2, axis=-1),
    "scan": lambda x: weft.cumsum(x, axis=0),
    "sorted": lambda x: weft.sort(x, axis=0),
    "largest": lambda x: weft.cast(weft.argmax(x, axis=0), "float32"),
    "gathered": lambda x: weft.take(x, weft.cast(weft.argsort(x[:, 0]), "int32"), axis=0),
    "chain": lambda x: weft.tanh(x * 3 + 1) / (1 + x * x),
}


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Count what is compiled, from an empty cache."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    monkeypatch.setattr(store, "_caches", {})
    monkeypatch.setattr(shared_library, "_loaded", {})
    found: list[str] = []
    build = compiler.build

    def counted(program: str, *args: Any) -> bytes:
        if "weft_program" in program:  # not the runtime
            found.append(program)
        return build(program, *args)

    monkeypatch.setattr(compiler, "build", counted)
    return found


def computation(backend: str, model: Model) -> Any:
    global rng
    rng = np.random.default_rng(5)
    x = weft.placeholder((weft.symbol("n"), 16), name="x")
    return weft.make_transformer(backend).computation(model(x), x)


def rows(n: int) -> Any:
    return np.random.default_rng(n).normal(size=(n, 16)).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_each_length_gives_what_numpy_gives(name: str, builds: list[str]) -> None:
    shared, reference = (computation(each, MODELS[name]) for each in ("native", "numpy"))
    for n in (30, 31, 7, 46, 1, 78, 94):
        x = rows(n)
        np.testing.assert_allclose(shared(x), reference(x), rtol=2e-5, atol=2e-6, err_msg=f"n={n}")
    assert 0 < len(builds) < 7, "some lengths share their code"


def test_a_new_length_needs_no_compiler(builds: list[str]) -> None:
    f = computation("native", mlp)
    f(rows(30))
    assert len(builds) == 1
    for n in range(26, 40):
        f(rows(n))
    assert len(builds) == 1
    assert "given0" in builds[0]
    sources = {program.source for program in f.programs.values()}
    assert len(sources) == len(f.programs), "sources have the lengths"
    assert not any("given0" in source for source in sources)


def test_another_process_needs_no_compiler_for_any_length(
    builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    computation("native", mlp)(rows(30))
    monkeypatch.setattr(shared_library, "_loaded", {})
    f, reference = (computation(each, mlp) for each in ("native", "numpy"))
    for n in (30, 35, 30, 39):
        np.testing.assert_allclose(f(rows(n)), reference(rows(n)), rtol=2e-5, atol=2e-6)
    assert len(builds) == 1


def test_threads_share_the_code_of_two_lengths(builds: list[str]) -> None:
    functions = [computation("native", attention) for _ in range(2)]
    lengths = 30, 46
    for f in functions:
        f(rows(30))
    wanted = [f(rows(n)) for f, n in zip(functions, lengths, strict=True)]
    assert len(builds) == 1

    def repeated(number: int) -> bool:
        f, x = functions[number], rows(lengths[number])
        return all(np.array_equal(f(x), wanted[number]) for _ in range(200))

    with ThreadPoolExecutor() as pool:
        assert all(pool.map(repeated, (0, 1)))


def test_a_saved_computation_needs_no_compiler(builds: list[str], tmp_path: Path) -> None:
    f = computation("native", mlp)
    wanted = f(rows(33))
    f.save(tmp_path / "mlp.weft")
    loaded = weft.load(tmp_path / "mlp.weft", backend="native")
    np.testing.assert_array_equal(loaded(rows(33)), wanted)
    loaded(rows(34))
    assert len(builds) == 1


def test_lines_of_errors_stay_in_their_places() -> None:
    f = computation("native", mlp)
    f(rows(30))
    (program,) = f.programs.values()
    lines = program.source.split("\n")
    heads = [number for number, line in enumerate(lines) if re.match(r"static NOINLINE", line)]
    assert heads
    for number in heads:
        assert program.source_locations[number]


def test_known_lengths_do_not_take_the_code_of_unknown_ones(builds: list[str]) -> None:
    computation("native", mlp)(rows(30))
    x = weft.placeholder((30, 16), name="x")
    global rng
    rng = np.random.default_rng(5)
    f = weft.make_transformer("native").computation(mlp(x), x)
    f(rows(30))
    assert len(builds) == 2
    assert f"i64 *{TABLE}" not in builds[1]


def test_lengths_that_are_given_have_programs_of_their_own() -> None:
    x = weft.placeholder((n := weft.symbol("n"), 16), name="x")
    with weft.make_transformer("native", cache=False) as transformer:
        f = transformer.computation(mlp(x), x, axes={n: 30})
        f(rows(30))
        assert f"i64 *{TABLE}" not in f.program.source
