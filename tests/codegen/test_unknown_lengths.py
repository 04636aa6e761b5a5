"""Programs for other lengths share their code, and compute what the numpy backend computes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from weft.cache import store
from weft.errors import UnsupportedOpError
from weft.ir.lengths import evaluate
from weft.runtime import compile_cache
from weft.runtime.template_cache import MANY
from weft.testing.cases import make_case
from weft.testing.random_graphs import RandomProgram, programs
from weft.testing.samples import sample
from weft.testing.table import TABLE, Row
from weft_native import compiler, shared_library

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


def stencil(x: Any) -> Any:
    padded = weft.pad(x, ((1, 1), (2, 0)), value=1)
    return x + padded[2:, 2:] + padded[:-2, 2:] - padded[1:-1, :-2] * weft.roll(x, 1, axis=0)


def repeated(x: Any) -> Any:
    given = weft.placeholder(x.axes)
    body = weft.capture([weft.tanh(given) * 1.5 + 0.25], [given])
    return weft.loop(body, 20, x)[0]


MODELS: dict[str, Model] = {
    "mlp": mlp,
    "attention": attention,
    "loss_gradient": loss_gradient,
    "convolution": convolution,
    "moved": moved,
    "stencil": stencil,
    "repeated": repeated,
    "columns": lambda x: weft.var(x, axis=0),
    "rows": lambda x: weft.logsumexp(x * 2, axis=-1),
    "scan": lambda x: weft.cumsum(x, axis=0),
    "sorted": lambda x: weft.sort(x, axis=0),
    "largest": lambda x: weft.cast(weft.argmax(x, axis=0), "float32"),
    "gathered": lambda x: weft.take(x, weft.cast(weft.argsort(x[:, 0]), "int32"), axis=0),
    "float64": lambda x: weft.cast(
        weft.cast(x, "float64") @ weft.cast(weft.transpose(x), "float64"), "float32"
    ),
    "empty": lambda x: weft.sum(weft.pad(weft.transpose(x[:, :0]), ((0, 0), (0, 1))) + 1, axis=0),
    "chain": lambda x: weft.tanh(x * 3 + 1) / (1 + x * x),
}


BACKENDS = [
    pytest.param("native", marks=pytest.mark.needs("compiler")),
    pytest.param("opencl", marks=pytest.mark.needs("opencl")),
    pytest.param("cupy", marks=pytest.mark.needs("gpu")),
]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Count what is compiled, from an empty cache."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    monkeypatch.setattr(store, "_caches", {})
    monkeypatch.setattr(shared_library, "_loaded", {})
    monkeypatch.setattr(compile_cache, "_memory", compile_cache.MemoryCache())
    found: list[str] = []
    build = compiler.build

    def counted(program: str, *args: Any) -> bytes:
        if "weft_program" in program:  # not the runtime
            found.append(program)
        return build(program, *args)

    monkeypatch.setattr(compiler, "build", counted)
    return found


def computation(backend: str, model: Model, most: int | None = None, **options: Any) -> Any:
    global rng
    rng = np.random.default_rng(5)
    x = weft.placeholder((weft.symbol("n", max=most), 16), name="x")
    return weft.make_transformer(backend, **options).computation(model(x), x)


def rows(n: int) -> Any:
    return np.random.default_rng(n).normal(size=(n, 16)).astype(np.float32)


def templates(f: Any) -> int:
    """Return how many templates the programs of a computation have."""
    return len({id(program.template) for program in f.programs.values() if program.template})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_each_length_gives_what_numpy_gives(name: str, backend: str) -> None:
    check_model(name, backend)


def check_model(name: str, backend: str) -> None:
    shared, reference = (
        computation(each, MODELS[name], cache=False) for each in (backend, "numpy")
    )
    lengths = (30, 31, 7, 46, 1, 78, 94)
    for n in lengths:
        x = rows(n)
        np.testing.assert_allclose(shared(x), reference(x), rtol=2e-5, atol=2e-6, err_msg=f"n={n}")
    assert 0 < templates(shared) < len(lengths), "some lengths share their code"


@pytest.mark.needs("compiler")
def test_a_new_length_needs_no_compiler(builds: list[str]) -> None:
    f = computation("native", mlp)
    f(rows(30))
    assert len(builds) == 1
    for n in range(26, 40):
        f(rows(n))
    assert len(builds) == 1
    assert templates(f) == 1
    assert "given0" in builds[0]
    sources = {program.source for program in f.programs.values()}
    assert len(sources) == len(f.programs), "sources have the lengths"
    assert not any("given0" in source for source in sources)


@pytest.mark.needs("compiler")
def test_another_process_needs_no_compiler_for_any_length(
    builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    computation("native", mlp)(rows(30))
    monkeypatch.setattr(shared_library, "_loaded", {})
    monkeypatch.setattr(compile_cache, "_memory", compile_cache.MemoryCache())
    f, reference = (computation(each, mlp) for each in ("native", "numpy"))
    for n in (35, 30, 39):
        np.testing.assert_allclose(f(rows(n)), reference(rows(n)), rtol=2e-5, atol=2e-6)
    assert len(builds) == 1
    assert all(program.is_restored for program in f.programs.values())


@pytest.mark.needs("compiler")
def test_threads_share_the_code_of_two_lengths(builds: list[str]) -> None:
    functions = [computation("native", attention) for _ in range(2)]
    lengths = 30, 31
    for f in functions:
        f(rows(30))
    wanted = [f(rows(n)) for f, n in zip(functions, lengths, strict=True)]
    assert len(builds) == 1

    def repeated(number: int) -> bool:
        f, x = functions[number], rows(lengths[number])
        return all(np.array_equal(f(x), wanted[number]) for _ in range(200))

    with ThreadPoolExecutor() as pool:
        assert all(pool.map(repeated, (0, 1)))


@pytest.mark.needs("compiler")
def test_a_saved_computation_needs_no_compiler(
    builds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = computation("native", mlp)
    wanted = f(rows(33))
    f.save(tmp_path / "mlp.weft")
    monkeypatch.setattr(store, "_caches", {})
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "other"))
    loaded = weft.load(tmp_path / "mlp.weft", backend="native", trust=True)
    np.testing.assert_array_equal(loaded(rows(33)), wanted)
    loaded(rows(34))
    assert templates(loaded) == 1
    assert len(builds) == 1


@pytest.mark.needs("compiler")
def test_lines_of_errors_stay_in_their_places() -> None:
    f = computation("native", mlp)
    f(rows(30))
    (program,) = f.programs.values()
    lines = program.source.split("\n")
    heads = [number for number, line in enumerate(lines) if re.match(r"static NOINLINE", line)]
    assert heads
    for number in heads:
        assert program.source_locations[number]


@pytest.mark.needs("compiler")
def test_known_lengths_do_not_take_the_code_of_unknown_ones(builds: list[str]) -> None:
    computation("native", mlp)(rows(30))
    x = weft.placeholder((30, 16), name="x")
    global rng
    rng = np.random.default_rng(5)
    f = weft.make_transformer("native").computation(mlp(x), x)
    f(rows(30))
    assert len(builds) == 2
    assert "numbers0" not in builds[1]


@pytest.mark.needs("compiler")
def test_lengths_that_are_given_have_programs_of_their_own() -> None:
    x = weft.placeholder((n := weft.symbol("n"), 16), name="x")
    with weft.make_transformer("native", cache=False) as transformer:
        f = transformer.computation(mlp(x), x, axes={n: 30})
        f(rows(30))
        assert f.program.template is None


def median(x: Any) -> Any:
    """Return what depends on the values of lengths: the places of the elements in the middle."""
    return weft.quantile(x, 0.5, axis=0)


@pytest.mark.needs("compiler")
def test_programs_that_depend_on_values_of_lengths_do_not_pile_up() -> None:
    f, reference = (computation(each, median, cache=False) for each in ("native", "numpy"))
    lengths = range(30, 30 + MANY + 3)
    for n in lengths:
        np.testing.assert_allclose(f(rows(n)), reference(rows(n)), rtol=2e-5, atol=2e-6)
    assert templates(f) == MANY
    assert len(f.programs) == len(lengths)


@pytest.mark.needs("compiler")
def test_an_op_that_takes_plain_integers_only_has_programs_of_its_own() -> None:
    class Rows(weft.TensorOp):
        """As many zeros as there are elements, by a table that has no place for other numbers."""

        def infer(self) -> Any:
            return self.args[0].axes, self.args[0].dtype

        def decompose(self, x: Any) -> Any:
            return x * {30 * 16: 2, 31 * 16: 3}[x.axes.size]

    class Decomposed(weft.GraphPass):
        """Replaces the op."""

        def do_pass(self, graph: Any, target: Any) -> Any:
            return graph.rewrite(lambda op: op.decompose(*op.args) if type(op) is Rows else op)

    f = computation("native", Rows, cache=False, passes=[Decomposed(), "fusion"])
    for n, factor in ((30, 2), (31, 3)):
        np.testing.assert_array_equal(f(rows(n)), factor * rows(n))
    assert templates(f) == 0
    assert f._family.attempts == 2


@pytest.mark.needs("compiler")
def test_a_limit_on_memory_holds_for_each_length() -> None:
    f = computation("native", mlp, cache=False, memory_limit=10**6)
    f(rows(30))
    assert templates(f) == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["mlp", "attention", "loss_gradient", "convolution", "moved"])
def test_memory_is_planned_once_for_the_largest_lengths(name: str, backend: str) -> None:
    check_bounded(name, backend)


def check_bounded(name: str, backend: str) -> None:
    shared, reference = (
        computation(each, MODELS[name], most=64, cache=False) for each in (backend, "numpy")
    )
    for n in (32, 64, 40, 31, 48, 1):
        np.testing.assert_allclose(shared(rows(n)), reference(rows(n)), rtol=2e-5, atol=2e-6)
    sizes: dict[int, set[int]] = {}
    for program in shared.programs.values():
        sizes.setdefault(id(program.template), set()).add(program.arena_size)
    assert len(sizes) < len(shared.programs)
    assert all(len(each) == 1 for each in sizes.values())


@pytest.mark.needs("compiler")
def test_too_large_a_maximum_is_named() -> None:
    f = computation("native", mlp, most=10**13, cache=False)
    with pytest.raises(MemoryError, match=r"planned for n <= 10000000000000: a smaller max="):
        f(rows(30))


@pytest.mark.needs("compiler")
def test_changed_passes_make_other_templates() -> None:
    f = computation("native", mlp, cache=False)
    f(rows(30))
    f.transformer.graph_passes = ["decompose"]
    f(rows(31))
    f(rows(32))
    first, second, third = f.programs.values()
    assert second.template is third.template is not first.template


@pytest.mark.needs("compiler")
@pytest.mark.parametrize(
    ("part", "content"), [("ranges", [["no polynomial"]]), ("program", {"code": []})]
)
def test_a_damaged_template_is_made_again(
    builds: list[str], monkeypatch: pytest.MonkeyPatch, part: str, content: Any
) -> None:
    wanted = computation("native", mlp)(rows(30))
    from_content = compile_cache.CacheEntry.from_content

    def damaged(content: bytes) -> Any:
        entry = from_content(content)
        entry.document[part] = content
        return entry

    monkeypatch.setattr(compile_cache.CacheEntry, "from_content", damaged)
    with pytest.warns(store.CacheWarning, match="a compiled program is not usable"):
        np.testing.assert_array_equal(computation("native", mlp)(rows(30)), wanted)


# The table of ops, with all lengths above 1 unknown


def unknown(row: Row) -> tuple[Any, list[Any], dict[int, Any], list[Any]] | None:
    """Return the value of a row for unknown lengths, its parameters, their lengths and arrays."""
    dtype = "float32" if "float32" in row.dtypes else row.dtypes[0]
    symbols: dict[int, Any] = {}
    try:
        arrays = make_case(row, row.shapes[0], dtype, with_gradients=False).arrays
        parameters = [
            weft.placeholder(
                [symbols.setdefault(n, weft.symbol(f"s{n}")) if n > 1 else n for n in array.shape],
                str(array.dtype),
            )
            for array in arrays
        ]
        value = row.build(*parameters)
        weft.make_transformer("numpy", cache=False).computation(value, *parameters)(*arrays)
    except (weft.WeftError, TypeError):
        return None  # lengths that must be known, by weft or by NumPy in the function of the row
    return (value, parameters, symbols, arrays) if symbols else None


@pytest.mark.long
@pytest.mark.share(16)
@pytest.mark.parametrize(
    ("row", "backend"),
    [
        pytest.param(row, backend, marks=needed, id=f"{row.name}-{row.case}-{backend}")
        for backend, needed, every in [
            ("native", pytest.mark.needs("compiler"), 1),
            ("opencl", pytest.mark.needs("opencl"), 16),
            ("cupy", pytest.mark.needs("gpu"), 1),
        ]
        for row in TABLE[::every]
    ],
)
def test_ops_of_unknown_lengths(row: Row, backend: str) -> None:
    check_op(row, backend)


def check_op(row: Row, backend: str) -> None:
    """Results are right, and a template yields the text that is generated for its other lengths."""
    given = unknown(row)
    if given is None:
        pytest.skip("its lengths are known")
    value, parameters, symbols, arrays = given
    transformers = [weft.make_transformer(each, cache=False) for each in (backend, "numpy")]
    shared, reference = (each.computation(value, *parameters) for each in transformers)
    for added in (0, 7):
        lengths = {n: n + added for n in symbols}
        others = [np.resize(a, [lengths.get(n, n) for n in a.shape]) for a in arrays]
        try:
            wanted = reference(*others)
        except weft.WeftError:
            continue
        try:
            compare(shared(*others), wanted)
        except UnsupportedOpError:
            pytest.skip("the backend lacks an op or a dtype")
        with weft.make_transformer(backend, cache=False) as transformer:
            alone = transformer.computation(value, *parameters)
            alone(*others)
            texts = [f.program_for(*others).source for f in (shared, alone)]
        assert texts[0] == texts[1]
    assert templates(shared)


def compare(found: Any, wanted: Any) -> None:
    for mine, theirs in itertools.zip_longest(np.atleast_1d(found), np.atleast_1d(wanted)):
        np.testing.assert_allclose(
            np.asarray(mine, np.float64), np.asarray(theirs, np.float64), rtol=2e-4, atol=1e-5
        )


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(program=programs("float32", unknown=True), added=st.tuples(*[st.integers(1, 40)] * 3))
def test_random_programs_of_unknown_lengths(
    backend: str, program: RandomProgram, added: tuple[int, ...]
) -> None:
    """Three sizes give what the numpy backend gives."""
    transformers = [weft.make_transformer(each, cache=False) for each in (backend, "numpy")]
    shared, reference = (
        each.computation(program.results, *program.placeholders) for each in transformers
    )
    random = np.random.default_rng(0)
    for extra in ((0, 0, 0), added, tuple(n + 1 for n in added)):
        lengths = [sum(each) for each in zip((2, 3, 4), extra, strict=True)]
        sizes = dict(zip(program.lengths, lengths, strict=True))
        arrays = [
            sample("any", [evaluate(n, sizes) for n in x.axes.lengths], x.dtype, random)
            for x in program.placeholders
        ]
        for mine, theirs in zip(shared(*arrays), reference(*arrays), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)
