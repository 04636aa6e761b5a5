from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import plugins
from weft.cache.entry import CacheEntry
from weft.cache.store import Cache, CacheWarning, open_cache
from weft.cache.structure import NotCanonical
from weft.errors import CheckFailed
from weft.ir.axes import Axes
from weft.ir.tensor import CompositeOp, TensorOp
from weft.passes.interface import GraphPass
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft.runtime import compile_cache
from weft.testing.cases import make_cases
from weft.testing.random_graphs import RandomProgram, programs
from weft.testing.table import TABLE
from weft.testing.table.rows import Row
from weft_numpy.transformer import NumPyTransformer


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compile_cache, "_memory", compile_cache.MemoryCache())
    return open_cache()


def forget() -> None:
    """Forget what this process knows, so that only the disk does."""
    compile_cache._memory.contents.clear()
    compile_cache._memory.held = 0


def compiled(results: Any, *parameters: Any, **options: Any) -> Any:
    made = weft.make_transformer("numpy", **options).computation(results, *parameters)
    made.transformer.initialize()
    return made


def is_found(*arguments: Any, **options: Any) -> bool:
    found: bool = compiled(*arguments, **options).program.is_restored
    return found


def model(scale: float = 2.0) -> tuple[Any, Any]:
    x = weft.placeholder((3,))
    return weft.softmax(weft.tanh(x) * scale), x


def unnamed(text: str) -> str:
    """Return text without the numbers in names of ops, which are unique in a process."""
    return re.sub(r"_\d+", "", text)


# In one process


def test_an_equal_computation_is_found_in_the_same_and_in_another_transformer() -> None:
    y, x = model()
    transformer = weft.make_transformer("numpy")
    first = transformer.computation(y, x)
    expected = first([1, 2, 3])
    assert not first.program.is_restored
    z, a = model()
    others = [transformer.computation(z, a), compiled(z, a), compiled(y, x)]
    for other in others:
        assert other([1, 2, 3]).tolist() == expected.tolist()
        assert other.program.is_restored
        assert other.source == first.source
        other.plan.verify()
        assert unnamed(other.plan.table()) == unnamed(first.plan.table())
    assert is_found(*model())
    assert not is_found(*model(3.0))


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_what_was_found_keeps_states_of_its_own(disk: bool) -> None:
    def counter(start: float) -> Any:
        n = weft.variable((), initial_value=start, name="n")
        step = weft.variable((), initial_value=n * 0 + 2)
        with weft.saved_user_deps():
            return compiled([weft.assign(n, n + step), n])

    first, found = counter(1), []
    for start in (1, 10):
        if disk:
            forget()
        found.append(counter(start))
    assert [each.program.is_restored for each in (first, *found)] == [False, True, True]
    for _ in range(2):
        first()
    assert [each()[1].item() for each in (first, *found)] == [7, 3, 12]


def test_initial_values_of_states_need_not_be_the_same() -> None:
    def computed(values: Any) -> tuple[Any, bool]:
        w = weft.variable((2000,), initial_value=values)
        v = weft.variable((2000,), initial_value=w + values)
        made = compiled([w * 2, v])
        return made(), made.program.is_restored

    ones, twos = np.ones(2000, np.float32), np.full(2000, 2, np.float32)
    assert [found for _, found in map(computed, (ones, twos))] == [False, True]
    forget()
    for values in (twos * 3, ones):
        (doubled, both), found = computed(values)
        assert found
        assert (doubled == 2 * values).all()
        assert (both == 2 * values).all()


def test_values_of_constants_that_are_computed_with_count() -> None:
    x = weft.placeholder((2000,))
    values = np.arange(2000, dtype=np.float32)
    for number, constant in enumerate((values, values + 1, values)):
        made = compiled(x + constant, x)
        assert made.program.is_restored == (number == 2)
        assert (made(np.zeros(2000)) == constant).all()


def rewritten(cache: Cache, change: Callable[[Any], Any]) -> int:
    """Change each compiled program on disk, as another version might; return how many."""
    count = 0
    for path in list(cache.folder.iterdir()):
        key = path.name.removesuffix(".weft")
        content = cache.read(key)
        assert content is not None
        try:
            entry = CacheEntry.from_content(content)
        except ValueError:
            continue  # a verdict on a device
        if isinstance(entry.document, dict):
            cache.write(key, CacheEntry(change(entry.document), entry.arrays).content())
            count += 1
    return count


def without(*path: str) -> Callable[[Any], Any]:
    def change(document: Any) -> Any:
        if len(path) == 1:
            return {key: each for key, each in document.items() if key != path[0]}
        return document | {path[0]: without(*path[1:])(document[path[0]])}

    return change


SKEWED: dict[str, Callable[[Any], Any]] = {
    **{key: without(key) for key in ("code", "order", "arena", "buffers", "tensors")},
    **{f"code {key}": without("code", key) for key in ("signature", "blocks", "lines")},
    "a list": lambda document: list(document.values()),
    "nothing": lambda _: None,
    "lines without records": lambda d: d | {"code": d["code"] | {"lines": ["run()"]}},
    "blocks of lines alone": lambda d: d | {
        "code": d["code"] | {"blocks": [lines for lines, _ in d["code"]["blocks"]]}
    },
    "a field more": lambda d: d | {"tensors": [[*each, None] for each in d["tensors"]]},
    "a field less": lambda d: d | {"tensors": [each[:-1] for each in d["tensors"]]},
}  # fmt: skip


@pytest.mark.parametrize("name", SKEWED)
def test_a_file_of_another_layout_is_compiled_anew(name: str, cache: Cache) -> None:
    expected = compiled(*model())([1, 2, 3])
    assert rewritten(cache, SKEWED[name])
    forget()
    with pytest.warns(CacheWarning, match="is not usable"):
        again = compiled(*model())
    np.testing.assert_array_equal(again([1, 2, 3]), expected)
    assert not again.program.is_restored
    forget()
    assert is_found(*model()), "the file was written again"


DIFFERENT_OPTIONS = [
    {},
    {"fast_math": True},
    {"threads": 1},
    {"threads": 3},
    {"memory_limit": 10**6},
    {"passes": ("decompose", "dead-code")},
    {"passes": (*DEFAULT_PIPELINE, "dead-code")},
]


def test_other_options_find_nothing() -> None:
    for options in DIFFERENT_OPTIONS:
        assert not is_found(*model(), **options), options
    for options in DIFFERENT_OPTIONS:
        assert is_found(*model(), **options), options


@pytest.mark.parametrize("way", ["option", "variable"])
def test_switched_off_nothing_is_found_or_kept(
    way: str, monkeypatch: pytest.MonkeyPatch, cache: Cache
) -> None:
    options: dict[str, Any] = {"cache": False} if way == "option" else {}
    with monkeypatch.context() as patch:
        if way == "variable":
            patch.setenv("WEFT_CACHE", "0")
        assert not is_found(*model(), **options)
        assert cache.usage() == (0, 0)
        assert not compile_cache._memory.contents
    compiled(*model())
    with monkeypatch.context() as patch:
        if way == "variable":
            patch.setenv("WEFT_CACHE", "0")
        assert not is_found(*model(), **options)


def test_a_folder_can_be_given(tmp_path: Path, cache: Cache) -> None:
    compiled(*model(), cache=tmp_path / "mine")
    assert open_cache(tmp_path / "mine").usage()[0] == 1
    assert cache.usage() == (0, 0)
    forget()
    assert is_found(*model(), cache=str(tmp_path / "mine"))


def test_passes_run_if_they_are_to_be_dumped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(*model())
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path / "dump"))
    assert not is_found(*model())
    assert list((tmp_path / "dump").iterdir())


def test_the_memory_is_bounded_and_keeps_what_was_used_last() -> None:
    memory = compile_cache.MemoryCache()
    part = memory.LIMIT // 4
    for number in range(4):
        memory.write(str(number), bytes(part))
    assert memory.read("0") is not None
    memory.write("4", bytes(part))
    assert list(memory.contents) == ["2", "3", "0", "4"]
    assert memory.held == memory.LIMIT
    memory.write("4", b"")
    memory.write("large", bytes(part + 1))
    assert memory.read("large") is None
    assert memory.held == 3 * part


# What is found is the same


Kind = tuple[Row, str]
"""A row of the op table, and one of its dtypes."""


def batches(size: int) -> list[list[Kind]]:
    """Return all rows of the op table, several together."""
    dtypes = ("float32", "bfloat16", "complex64", "int32", "bool")
    kinds = [
        (row, next(each for each in dtypes if each in row.dtypes))
        for row in TABLE
        if "print" not in row.name and not set(dtypes).isdisjoint(row.dtypes)
    ]
    return [kinds[first : first + size] for first in range(0, len(kinds), size)]


BATCHES = batches(12)


@pytest.mark.share(6)
@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_every_op_can_be_kept(number: int) -> None:
    cases = [make_cases(row, dtype, brief=True)[0] for row, dtype in BATCHES[number]]
    results = [op for case in cases for op in case.results]
    placeholders = [x for case in cases for x in case.placeholders]
    arrays = [array for case in cases for array in case.arrays]
    expected = compiled(results, *placeholders)(*arrays)
    forget()
    again = compiled(results, *placeholders)
    assert again.program.is_restored
    for one, other in zip(again(*arrays), expected, strict=True):
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(program=programs(), disk=st.booleans())
def test_random_programs_that_are_found_do_the_same(program: RandomProgram, disk: bool) -> None:
    first = compiled(program.results, *program.placeholders)
    if disk:
        forget()
    again = compiled(program.results, *program.placeholders)
    assert again.program.is_restored
    for _ in range(2):
        for one, other in zip(again(*program.arrays), first(*program.arrays), strict=True):
            assert one is other is None or one.tobytes() == other.tobytes()
    again.plan.verify()
    assert again.plan.arena_size == first.plan.arena_size
    assert len(again.plan.steps) == len(first.plan.steps)


def test_ops_that_were_built_in_another_order_are_planned_as_the_first() -> None:
    def built(backwards: bool) -> Any:
        x = weft.placeholder((4, 4))
        order = [weft.sin, weft.cos, weft.tanh]
        made = {f: f(x) for f in (order[::-1] if backwards else order)}
        return compiled([weft.sort(made[f] @ x, 0) for f in order], x)

    first, second = built(False), built(True)
    assert second.program.is_restored
    kinds = [[type(step.op) for step in each.plan.steps] for each in (first, second)]
    assert kinds[0] == kinds[1]
    assert second.plan.arena_size == first.plan.arena_size
    assert [op.lineno for op in second.plan.graph.inputs] == [second.parameters[0].lineno]


def test_unknown_lengths_are_found_once_they_are_known() -> None:
    def made() -> Any:
        n = weft.symbol("n")
        x = weft.placeholder((n, 3))
        return weft.make_transformer("numpy").computation(weft.sum(weft.exp(x), 0), x)

    first, second = made(), made()
    for rows in (2, 5):
        assert first(np.ones((rows, 3))).tolist() == second(np.ones((rows, 3))).tolist()
    assert [each.is_restored for each in second.programs.values()] == [True, True]


def test_tensors_of_what_was_found_can_be_looked_at() -> None:
    def made() -> Any:
        w = weft.variable((3,), initial_value=[1, 2, 3])
        x = weft.placeholder((3,))
        return compiled(weft.sum(weft.sort(weft.exp(x)) + w) * weft.constant([1.0, 2, 3]), x)

    first, second = made(), made()
    assert second.program.is_restored
    for each in (first, second):
        each([0, 1, 2])
    values = [
        [tensor.get().tolist() for tensor in each.program.tensors.values()]
        for each in (first, second)
    ]
    assert values[0] == values[1] != []


def test_found_programs_run_in_several_threads() -> None:
    x = weft.placeholder((1000,))
    y = weft.sort(weft.cumsum(x, 0) % 7)
    compiled(y, x)
    found = compiled(y, x)
    assert found.program.is_restored
    wrong: list[int] = []

    def work(seed: int) -> None:
        values = np.random.default_rng(seed).random(1000, np.float32)
        expected = np.sort(np.cumsum(values) % np.float32(7))
        wrong.extend(seed for _ in range(50) if not np.array_equal(found(values), expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Lines are those of the graph at hand


def checked_here(x: Any, index: Any) -> Any:
    return weft.take(weft.assert_op(x, x > 0, "must be positive"), index, 0)


def checked_there(x: Any, index: Any) -> Any:
    shown = weft.assert_op(x, x > 0, "must be positive")

    return weft.take(shown, index, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "line_there"),
    [(([1, -1], [0]), CheckFailed, 1), (([1, 1], [7]), IndexError, 3)],
)
def test_errors_name_the_line_of_the_graph_at_hand(
    arguments: Any, error: Any, line_there: int
) -> None:
    for function, line in ((checked_here, 1), (checked_there, line_there)):
        x, index = weft.placeholder((2,)), weft.placeholder((1,), dtype="int32")
        made = compiled(function(x, index), x, index)
        assert made.program.is_restored == (function is checked_there)
        number = function.__code__.co_firstlineno + line
        with pytest.raises(error) as caught:
            made(*arguments)
        assert f"test_program_reuse.py:{number} " in "\n".join(caught.value.__notes__)
        assert f"test_program_reuse.py:{number} " in made.source
        if error is CheckFailed:
            assert f'test_program_reuse.py", line {number}\n' in f"{caught.value}\n"


class PickOp(CompositeOp):
    """Rows of the first operand, by the second."""

    def infer(self) -> tuple[Axes, Any]:
        return weft.make_axes((1, self.args[0].axes.lengths[1])), self.args[0].dtype

    def decompose(self, x: Any, index: Any) -> Any:
        return weft.take(x, index, 0)


def test_an_op_that_a_pass_made_names_the_line_of_the_graph_at_hand() -> None:
    def made(y: Any) -> Any:
        return compiled(y, table, index)

    table, index = weft.placeholder((4, 2)), weft.placeholder((1,), dtype="int32")
    there = PickOp(table, index)
    here = PickOp(table, index)
    assert [made(y).program.is_restored for y in (there, here)] == [False, True]
    with pytest.raises(IndexError) as caught:
        made(here)(np.zeros((4, 2)), [9])
    text = "\n".join([str(caught.value), *caught.value.__notes__])
    assert f'test_program_reuse.py", line {here.lineno}' in text
    assert f"test_program_reuse.py:{here.lineno} " in text
    assert not re.search(rf"(line |\.py:){there.lineno}\b", text)


# What cannot be kept


class TwiceOp(TensorOp):
    """Its operand, twice."""

    how: Any

    def infer(self) -> tuple[Axes, Any]:
        return self.args[0].axes, self.args[0].dtype

    def reference(self, x: Any) -> Any:
        return x * 2


def twice(op: Any, emit: Any) -> None:
    emit.line(f"{emit.bind(np.multiply, 'multiply')}({emit.args[0]}, 2, {emit.out})")


class Nothing(GraphPass):
    """Changes nothing."""

    runs: ClassVar[int] = 0

    def __init__(self, part: Any = 1) -> None:
        self.part = part

    def do_pass(self, graph: Any, target: Any) -> Any:
        type(self).runs += 1
        return graph


class ZerosAreCheap(GraphPass):
    """Looks at the values of constants that are results."""

    def do_pass(self, graph: Any, target: Any) -> Any:
        def cheaper(op: Any) -> Any:
            if op.is_constant and op.axes and not op.const.any():
                return weft.broadcast(weft.constant(0.0), op.axes)
            return op

        return graph.rewrite(cheaper)


class Extended(NumPyTransformer):
    """Extends a step that is left out for what was found."""

    def transform_ordered_ops(self, program: Any, ordered_ops: Any, name: str) -> Any:
        return super().transform_ordered_ops(program, ordered_ops, name)


class Inherited(NumPyTransformer):
    """Extends nothing of that."""


def test_a_subclass_finds_its_own_unless_it_extends_what_would_be_left_out() -> None:
    y, x = model()
    compiled(y, x)
    for kind, expected in ((Inherited, [False, True]), (Extended, [False, False])):
        found = []
        for _ in expected:
            made = kind().computation(y, x)
            made([1, 2, 3])
            found.append(made.program.is_restored)
        assert found == expected


def test_a_step_that_is_replaced_on_the_transformer_runs() -> None:
    y, x = model()
    compiled(y, x)
    transformer: Any = weft.make_transformer("numpy")
    calls = []
    real = transformer.transform_ordered_ops
    transformer.transform_ordered_ops = lambda *a: (calls.append(a), real(*a))[1]
    transformer.computation(y, x)([1, 2, 3])
    assert len(calls) == 1


def test_passes_count_with_what_they_are_made_with() -> None:
    def found(part: Any) -> bool:
        return is_found(*model(), passes=(Nothing(part), "decompose"))

    assert [found(part) for part in (1, 1, 1.0, 2, 1, lambda: 1)] == [
        False, True, False, False, True, False
    ]  # fmt: skip
    assert Nothing.runs == 4

    class Local(Nothing):
        pass

    assert [is_found(*model(), passes=(Local(), "decompose")) for _ in range(2)] == [False] * 2


def test_a_pass_may_look_at_values_that_need_not_be_looked_at() -> None:
    zeros = np.zeros(2000, np.float32)
    for values in (zeros, zeros + 1, zeros, zeros + 2):
        made = compiled(weft.constant(values), passes=(ZerosAreCheap(), "decompose"))
        assert (made() == values).all()


def test_nothing_is_found_or_kept_while_a_plugin_is_registered_by_hand(cache: Cache) -> None:
    compiled(*model())
    files = cache.usage()[0]

    class Plugin:
        @staticmethod
        @weft.plugins.hookspecs.hookimpl
        def weft_register_rules(backend: str, rules: Any) -> None:
            if backend == "numpy":
                rules.add(TwiceOp, twice)

    plugin = Plugin()
    plugins.register(plugin)
    try:
        x = weft.placeholder((2,))
        for _ in range(2):
            assert not is_found(*model())
            made = compiled(TwiceOp(x, how=1), x)
            assert made([1, 2]).tolist() == [2, 4]
            assert not made.program.is_restored
    finally:
        plugins.unregister(plugin)
    assert is_found(*model())
    assert cache.usage()[0] == files


@pytest.fixture
def _rule_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft_numpy.rules import rules

    monkeypatch.setitem(rules._rules, TwiceOp, twice)


@pytest.mark.usefixtures("_rule_for_twice")
def test_attributes_that_cannot_be_described_are_no_error() -> None:
    x = weft.placeholder((2,))

    def found(how: Any) -> bool:
        made = compiled(TwiceOp(x, how=how), x)
        assert made([1, 2]).tolist() == [2, 4]
        return bool(made.program.is_restored)

    assert [found(how) for how in ("a", "b", "a", (1, None), (1, None))] == [
        False, False, True, False, True
    ]  # fmt: skip
    for how in (lambda: 1, object(), threading.Lock()):
        assert [found(how), found(how)] == [False, False]


@pytest.mark.usefixtures("_rule_for_twice")
def test_a_rule_that_binds_a_closure_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft_numpy.rules import rules

    def rule(op: Any, emit: Any) -> None:
        def double(x: Any, out: Any) -> None:
            np.multiply(x, op.how, out)

        emit.line(f"{emit.bind(double, 'double')}({emit.args[0]}, {emit.out})")

    monkeypatch.setattr(sys.modules[__name__], "closure_rule", rule, raising=False)
    rule.__qualname__ = "closure_rule"
    monkeypatch.setitem(rules._rules, TwiceOp, rule)
    x = weft.placeholder((2,))
    for _ in range(2):
        made = compiled(TwiceOp(x, how=3), x)
        assert made([1, 2]).tolist() == [3, 6]
        assert not made.program.is_restored


# Files


def only_file(cache: Cache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


BROKEN = {
    "no length": b"",
    "wrong length": b"\xff" * 64,
    "no JSON": b"\x05" + b"\0" * 7 + b"hello" + b"\0" * 51,
    "other JSON": b"\x07" + b"\0" * 7 + b"[[],[]]" + b"\0" * 49,
    "another document": b"\x0b" + b"\0" * 7 + b'[{"a":1},[]]'[:12] + b"\0" * 44,
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_makes_no_program_is_not_used_and_written_again(
    what: str, cache: Cache
) -> None:
    compiled(*model())
    path = only_file(cache)
    good = path.read_bytes()
    cache.write(path.stem, BROKEN[what])
    forget()
    y, x = model()
    with pytest.warns(CacheWarning, match="is not usable") as caught:
        made = compiled(y, x)
    assert len(caught) == 1
    assert not made.program.is_restored
    assert made([0, 0, 0]).tolist() == pytest.approx([1 / 3] * 3)
    assert path.read_bytes() == good
    forget()
    assert is_found(*model())


@pytest.mark.parametrize("name", [("os", "system"), ("shutil", "rmtree"), ("numpy", "nothing")])
def test_only_functions_of_known_packages_can_be_named(name: Any, cache: Cache) -> None:
    from weft.cache.entry import CacheEntry
    from weft.cache.serialization import Deserializer
    from weft.cache.structure import structure_of

    y, x = model()
    document = {"code": None, "order": [], "arena": 0, "buffers": [], "tensors": []}
    structure = structure_of(weft.capture([y], [x]))
    deserializer = Deserializer(structure, CacheEntry(document, []))
    with pytest.raises((ValueError, AttributeError)):
        deserializer.value({"name": list(name)})
    assert deserializer.value({"name": ["numpy", "tanh"]}) is np.tanh
    with pytest.raises(KeyError):
        deserializer.value({"pickle": "gASVBQAAAAAAAABLAS4="})


def test_what_packing_packs_unpacking_unpacks() -> None:
    from weft.cache.entry import CacheEntry
    from weft.cache.serialization import Deserializer
    from weft.cache.structure import structure_of

    y, x = model()
    graph = weft.capture([y], [x])
    structure = structure_of(graph)
    program = weft.runtime.program.Program("p", graph, {})
    serializer = program.serializer(structure)
    op = structure.ops[-1]
    values: list[Any] = [
        None, True, 1, 10**30, -0.0, 1e-320, float("nan"), float("inf"), 1 + 2j, "é\n", ...,
        (1, (2.5, None)), [1, [2, (3,)]], {"a": 1, 2: (3,)}, slice(1, None, -1),
        np.dtype("int16"), weft.dtypes.as_dtype("bfloat16"), np.float32(0.1), np.int64(7),
        np.arange(6).reshape(2, 3), np.zeros((0, 3), np.uint8), np.ones(3, weft.dtypes.bfloat16),
        np.ones((2, 2), np.complex64), np.tanh, np.take, len, np.add.reduce, Cache,
        partial(np.clip, a_min=0.5), partial(partial(np.full, (2,)), 3.0), op, op.reference,
    ]  # fmt: skip
    serialized = serializer.values(values)
    entry = CacheEntry.from_content(serializer.entry(serialized).content())
    deserialized = Deserializer(structure, entry).values(entry.document["code"])
    for one, other in zip(deserialized, values, strict=True):
        assert type(one) is type(other)
        if isinstance(one, partial):
            assert (one.func, one.args, one.keywords) == (other.func, other.args, other.keywords)
        elif isinstance(one, np.ndarray):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert one.tobytes() == other.tobytes()
        else:
            assert repr(one) == repr(other)
            assert one is other or one == other or one != one
    for value in (object(), lambda: 1, {1, 2}, threading.Lock(), iter(())):
        with pytest.raises(NotCanonical):
            serializer.value((1, value))


# Several processes

WORKER = """
import sys
import numpy as np
import weft
from pathlib import Path

number, folder = int(sys.argv[1]), Path(sys.argv[2])
(folder / str(number)).touch()
while len(list(folder.iterdir())) < int(sys.argv[3]):
    pass
found = []
for scale in (1, 2, number + 3, 1):
    for depth in (3, 12):
        x = y = weft.placeholder((4, 4))
        for _ in range(depth):
            w = weft.variable((4, 4), initial_value=np.eye(4))
            y = weft.sort(weft.cumsum(weft.tanh(y @ w) * scale, 0), 1)
        made = weft.make_transformer("numpy").computation(y, x)
        found.append(made(np.ones((4, 4))).tobytes().hex())
        made.plan.verify()
print(*found)
"""


@pytest.mark.long
def test_eight_processes_compile_the_same_and_other_graphs_at_once(
    tmp_path: Path, cache: Cache
) -> None:
    (tmp_path / "ready").mkdir()
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WORKER, str(number), tmp_path / "ready", "8"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    outputs = [worker.communicate(timeout=300) for worker in workers]
    assert [
        (worker.returncode, error) for worker, (_, error) in zip(workers, outputs, strict=True)
    ] == [(0, "")] * 8
    values = [out.split() for out, _ in outputs]
    for each in values:
        assert each[:4] == values[0][:4]
        assert each[6:] == each[:2]
    assert len({each[4] for each in values}) == 8
    assert not [path for path in cache.folder.iterdir() if path.suffix == ".tmp"]
    kept = [path.stem for path in cache.folder.iterdir()]
    assert len(kept) >= 2 * (2 + 8)
    assert all(cache.read(key) for key in kept)


MINE = """
import numpy as np
import weft
from weft.ir.tensor import CompositeOp

class ThriceOp(CompositeOp):
    def infer(self):
        return self.args[0].axes, self.args[0].dtype
    def reference(self, x):
        return x * 3
    def decompose(self, x):
        return weft.tanh(x) * 3
"""

USE = """
import sys
import weft
{definition}
x = weft.placeholder((2,))
made = weft.make_transformer("numpy").computation(ThriceOp(x), x)
print(made([0, 1]).tolist(), made.program.is_restored)
"""


def run_script(folder: Path, definition: str) -> str:
    script = folder / "script.py"
    script.write_text(USE.format(definition=definition))
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split("]")[1].strip()


@pytest.mark.long
def test_a_later_process_finds_what_modules_define_until_they_change(
    tmp_path: Path, cache: Cache
) -> None:
    module = tmp_path / "mine.py"
    module.write_text(MINE)
    imported = "from mine import ThriceOp"
    assert [run_script(tmp_path, imported) for _ in range(3)] == ["False", "True", "True"]
    module.write_text(MINE.replace("* 3", "* 4"))
    then = time.time() - 100
    os.utime(module, (then, then))
    assert [run_script(tmp_path, imported) for _ in range(2)] == ["False", "True"]
    files = cache.usage()[0]
    assert files == 2
    assert [run_script(tmp_path, MINE) for _ in range(2)] == ["False", "False"]
    assert cache.usage()[0] == files


def test_code_that_is_edited_while_a_process_runs_is_not_kept(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    edit = "import os, mine, time; os.utime(mine.__file__, (time.time() + 5,) * 2)\n"
    definition = edit + "from mine import ThriceOp"
    assert [run_script(tmp_path, definition) for _ in range(2)] == ["False", "False"]
    assert cache.usage() == (0, 0)


def test_names_of_states_are_those_at_hand_and_never_code() -> None:
    def source_with(name: str) -> str:
        x = weft.placeholder((3,))
        w = weft.variable((3,), initial_value=1, name=name)
        made = compiled(weft.sort(x * w), x)
        assert made([2, 1, 3]).tolist() == [1, 2, 3]
        text: str = made.source
        return text

    assert "# s0 is weight\n" in source_with("weight")
    forget()
    found = source_with("slope")
    assert "# s0 is slope\n" in found
    assert "weight" not in found
    assert "\n    import os" not in source_with("x\n    import os")
    assert "# s0 is x   import os\n" in source_with("x\r\x0c\nimport os")
