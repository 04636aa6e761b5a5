"""Expressions and rules that are not weft's own: what their text becomes, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from needs import skip_without

import weft
import weft_array_api
import weft_c
from weft.errors import BackendError, PluginError, UnsupportedOpError
from weft.ops.pointwise.elementwise import build
from weft_c import Code, Expression, ValueEmitter

BACKENDS = {"native": "compiler", "opencl": "opencl"}
ARRAY = np.linspace(0.5, 4, 1000, dtype=np.float32)


class CubedOp(weft.ElementwiseOp):
    """factor x³."""

    factor: Any

    def reference(self, x: Any) -> Any:
        return np.asarray(self.factor, x.dtype) * x * x * x


class FirstOp(weft.ElementwiseOp):
    """The first operand, or whether it is above the second."""

    is_order: bool

    def result_dtype(self, operand: Any) -> Any:
        return weft.bool_ if self.is_order else operand

    def reference(self, x: Any, y: Any) -> Any:
        return x > y if self.is_order else x


class LastOp(weft.TensorOp):
    """The last element."""

    def infer(self) -> Any:
        return self.args[0].axes[:-1], self.args[0].dtype

    def reference(self, x: Any) -> Any:
        return x[..., -1]


class DecomposedOp(weft.ElementwiseOp, weft.CompositeOp):
    """x + 1."""

    def reference(self, x: Any) -> Any:
        return x + np.asarray(1, x.dtype)

    def decompose(self, x: Any) -> Any:
        return x + 1


@pytest.fixture(autouse=True)
def _own_rules() -> Iterator[None]:
    """Take back the rules that a test adds."""
    before = set(weft_c.rules)
    yield
    for kind in set(weft_c.rules) - before:
        del weft_c.rules._rules[kind]


@pytest.fixture(params=BACKENDS)
def device(request: pytest.FixtureRequest) -> str:
    skip_without(BACKENDS[request.param])
    name: str = request.param
    return name


def computed(device: str, build_: Callable[[Any], Any], array: Any = ARRAY) -> Any:
    x = weft.placeholder(array.shape, array.dtype)
    with weft.make_transformer(device) as transformer:
        step = transformer.computation(build_(x), x)
        return step(array), step.source


CUBE = "{factor} * cube_{type}({0})"
HELPER = "FUNCTION {type} cube_{type}({type} x) { return x * x * x; }"


def text_of(expression: Expression, op: Any, lanes: int = 1) -> tuple[str, list[str]]:
    """Return an expression of operands a and b, and the helpers in front of the kernel."""
    code = Code()
    text = expression(op, ValueEmitter(code, lanes), ["a", "b"][: len(op.args)])
    return text, list(code.helpers)


@pytest.mark.parametrize(
    ("dtype", "lanes", "text", "kind"),
    [
        ("float32", 1, "2.5f * cube_f32(a)", "f32"),
        ("float64", 1, "2.5 * cube_f64(a)", "f64"),
        ("float16", 1, "weft_half_round(2.5f * cube_f32(a))", "f32"),
        ("int8", 1, "(i8)(2 * cube_i8(a))", "i8"),
        ("uint64", 1, "2UL * cube_u64(a)", "u64"),
        ("float32", 8, "SPLAT(f32x8, (2.5f)) * cube_f32x8(a)", "f32x8"),
    ],
)
def test_fields_are_filled_in(dtype: str, lanes: int, text: str, kind: str) -> None:
    factor = 2.5 if "float" in dtype else 2
    op = CubedOp(weft.placeholder((3,), dtype), factor=factor)
    helper = f"FUNCTION {kind} cube_{kind}({kind} x) {{ return x * x * x; }}"
    expression = Expression(CUBE, helpers=HELPER, vectors=["float32"])
    assert text_of(expression, op, lanes) == (text, [helper])


def test_a_mapping_chooses_by_the_first_operand() -> None:
    expression = Expression({"float32": "f({0}, {1})", "float64": "d({0}, {1})"})
    for dtype, text in [
        ("float32", "f(a, b)"),
        ("float64", "d(a, b)"),
        ("bfloat16", "weft_bfloat_round(f(a, b))"),
    ]:
        operands = [weft.placeholder((3,), dtype) for _ in range(2)]
        assert text_of(expression, FirstOp(*operands, is_order=False))[0] == text
        # A bool is not rounded.
        assert not text_of(expression, FirstOp(*operands, is_order=True))[0].startswith("weft_")
    assert not expression.takes(FirstOp(*[weft.placeholder((), "int32")] * 2, is_order=True))


@pytest.mark.parametrize(
    ("text", "field", "choices"),
    [
        ("{0} + {1}", "{1}", "{type}, {select}, {0}, {factor}"),
        ("{amount}", "{amount}", "{type}, {select}, {0}, {factor}"),
        ("{axes}", "{axes}", "{type}, {select}, {0}, {factor}"),
    ],
)
def test_an_unknown_field_is_refused(text: str, field: str, choices: str) -> None:
    op = CubedOp(weft.placeholder((3,)), factor=2)
    with pytest.raises(PluginError) as caught:
        text_of(Expression(text), op)
    words = f"CubedOp: its C expression has {field}, which is neither an operand nor a number"
    assert words in str(caught.value)
    assert f"it may have {choices}\n" in str(caught.value)
    assert f'File "{__file__}"' in str(caught.value)


def test_a_field_that_is_no_number_is_refused() -> None:
    op = CubedOp(weft.placeholder((3,)), factor="2")
    with pytest.raises(PluginError, match=r"it may have \{type\}, \{select\}, \{0\}\n"):
        text_of(Expression("{factor}"), op)


@pytest.mark.parametrize("vectors", [(), ("float32",)])
def test_vectors_are_computed_where_the_text_takes_them(
    device: str, vectors: tuple[str, ...]
) -> None:
    weft_c.rules.add(CubedOp, Expression(CUBE, helpers=HELPER, vectors=vectors))
    values, source = computed(device, lambda x: build(CubedOp, x + 1, factor=2) * 3)
    np.testing.assert_allclose(values, 6 * (ARRAY + 1) ** 3, rtol=1e-5)
    assert bool(re.search(r"cube_f32x\d+\(v", source)) == bool(vectors)
    assert ("FUNCTION f32 cube_f32(f32 x)" in source) == (not vectors)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64", "uint8"])
def test_any_dtype_is_computed(device: str, dtype: str) -> None:
    weft_c.rules.add(CubedOp, Expression(CUBE, helpers=HELPER, vectors=["float32"]))
    array = np.arange(1, 6).astype(dtype)
    values, _ = computed(device, lambda x: build(CubedOp, x, factor=2), array)
    assert values.dtype == dtype
    assert values.tolist() == (2 * array.astype(int) ** 3).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_choices_and_fractions_are_for_scalars_and_vectors(device: str, dtype: str) -> None:
    text = "{select}({0} > 1, {0.1} * {0}, bent_{type}({0}))"
    helpers = "FUNCTION {type} bent_{type}({type} x) { return x * {2.5e-1} + {factor}; }"
    weft_c.rules.add(CubedOp, Expression(text, helpers=helpers, vectors=["float32"]))
    array = ARRAY.astype(dtype)
    values, source = computed(device, lambda x: CubedOp(x, factor=2), array)
    wanted = np.where(array > 1, array.astype(float) * 0.1, array.astype(float) / 4 + 2)
    np.testing.assert_allclose(values, wanted, rtol=4 * np.finfo(dtype).eps)
    assert bool(re.search(r" = SELECT\(\w+ > 1, ", source)) == (dtype == "float32")


def test_equal_bodies_with_other_helpers_are_other_kernels(device: str) -> None:
    class SquaredOp(CubedOp):
        """factor x²."""

    weft_c.rules.add(
        CubedOp, Expression("{factor} * f0({0})", "FUNCTION f32 f0(f32 x) { return x; }")
    )
    weft_c.rules.add(
        SquaredOp, Expression("{factor} * f0({0})", "FUNCTION f32 f0(f32 y) { return y; }")
    )
    x = weft.placeholder((3,))
    with weft.make_transformer(device) as transformer:
        step = transformer.computation([CubedOp(x, factor=2), SquaredOp(x, factor=2)], x)
        with pytest.raises(BackendError, match="f0"):  # two definitions, and none is forgotten
            step([1, 2, 3])


def test_a_rule_holds_for_subclasses(device: str) -> None:
    class OtherOp(CubedOp):
        """The same."""

    weft_c.rules.add(CubedOp, Expression("{factor} * {0} * {0} * {0}", vectors=["float32"]))
    values, _ = computed(device, lambda x: OtherOp(x, factor=2))
    np.testing.assert_allclose(values, 2 * ARRAY**3, rtol=1e-6)


def test_another_expression_does_not_find_the_code_of_the_first(device: str) -> None:
    found = []
    for text in ("{0} * {factor}", "{0} + {factor}"):
        weft_c.rules.add(CubedOp, Expression(text))
        found.append(computed(device, lambda x: CubedOp(x, factor=3), np.float32([4]))[0].item())
        del weft_c.rules._rules[CubedOp]
    assert found == [12, 7]


def test_a_composite_is_decomposed_where_its_expression_does_not_reach(device: str) -> None:
    weft_c.rules.add(
        DecomposedOp,
        Expression({"float32": "own({0})"}, "FUNCTION f32 own(f32 x) { return x + 1; }"),
    )
    for dtype, is_own in [("float32", True), ("int32", False)]:
        values, source = computed(device, DecomposedOp, np.array([1, 2], dtype))
        assert (values.tolist(), "own(" in source) == ([2, 3], is_own)


def test_a_rule_may_call_the_reference(device: str) -> None:
    weft_c.rules.add(LastOp, weft_c.reference_rule)
    values, _ = computed(device, lambda x: LastOp(x * 2) + 1, np.float32([[1, 2], [3, 4]]))
    assert values.tolist() == [5, 9]


def test_a_loop_over_the_point_of_a_scalar_has_no_indices(device: str) -> None:
    @weft_c.rules.on_type(LastOp)
    def last_rule(op: LastOp, lowering: weft_c.Lowering) -> None:
        builder = lowering.kernel("last")
        x = builder.array("x", lowering.args[0])
        out = builder.array("out", lowering.out, written=True)

        def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
            assert len(at) == len(op.axes)
            builder.code.line(out.set(x.get(*at, lowering.args[0].shape[-1] - 1), *at))

        weft_c.parallel_for(builder, lowering.out.shape, body)

    for array in (np.float32([1, 2, 3]), np.arange(24, dtype=np.float32).reshape(2, 3, 4)):
        values, _ = computed(device, lambda x: LastOp(-x), array)
        np.testing.assert_array_equal(values, -array[..., -1])


# Errors


@pytest.mark.parametrize(
    ("text", "helpers", "words"),
    [
        ("nowhere({0})", "", "nowhere"),
        ("{0} +", "", "expected expression"),
        ("cube({0})", "FUNCTION f32 cube(f32 x) { return mistaken; }", "mistaken"),
    ],
)
def test_what_a_compiler_refuses_names_the_op_and_the_place_of_its_rule(
    device: str, text: str, helpers: str, words: str
) -> None:
    weft_c.rules.add(CubedOp, Expression(text, helpers))  # the place
    weft_c.rules.add(FirstOp, Expression("{0}"))
    x, y = weft.placeholder((3,)), weft.placeholder((4,))
    right = FirstOp(x, x, is_order=False)
    wrong = CubedOp(y, factor=2)  # the op
    with weft.make_transformer(device) as transformer:
        step = transformer.computation([right, wrong], x, y)
        with pytest.raises(BackendError) as caught:
            step([1, 2, 3], [1, 2, 3, 4])
    message = str(caught.value)
    assert "it has code of rules that are not weft's own:" in message
    assert "not of the graph" not in message
    place = (
        f"  CubedOp, {line_of('# the op')}\n    by a rule registered at {line_of('# the place')}"
    )
    assert place in message
    assert words in message.partition(place)[2]
    # A helper is for any of the program's ops.
    assert ("FirstOp, " in message) == bool(helpers)


def line_of(mark: str) -> str:
    """Return the line of this file that ends with a comment, as messages show it."""
    with open(__file__, encoding="utf-8") as file:
        number = next(n for n, line in enumerate(file, 1) if line.endswith(f"{mark}\n"))
    return f'File "{__file__}", line {number}'


Mistake = Callable[[weft_c.Lowering, weft_c.KernelBuilder, weft_c.Array, tuple[str, ...]], object]

MISTAKES: dict[str, tuple[Mistake | None, str]] = {
    "indices": (
        lambda lowering, builder, x, at: x.get(*at),
        r"x0 has the shape \(5, 3\), so it takes 2 indices, not 1",
    ),
    "names": (
        lambda lowering, builder, x, at: builder.arrays,  # type: ignore[attr-defined]
        "no attribute 'arrays'",
    ),
    "scratch": (
        lambda lowering, builder, x, at: lowering.scratch((3,), x.dtype),
        "scratch memory without a function under",
    ),
    "constants": (
        lambda lowering, builder, x, at: builder.code.line(x.set("1", *at, 2)),
        "read-only|const",
    ),
    "launches": (None, "its rule launches nothing that writes the result"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_rule_names_the_op_and_the_rule(device: str, mistake: str) -> None:
    make, words = MISTAKES[mistake]

    def last_rule(op: LastOp, lowering: weft_c.Lowering) -> None:
        builder = lowering.kernel("last")
        x = builder.array("x", lowering.args[0])
        out = builder.array("out", lowering.out, written=True)

        def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
            assert make is not None
            make(lowering, builder, x, at)
            builder.code.line(out.set(x.get(*at, 2), *at))

        if make is not None:
            weft_c.parallel_for(builder, lowering.out.shape, body)

    weft_c.rules.add(LastOp, last_rule)  # its rule
    x = weft.placeholder((5, 3))
    y = LastOp(x)  # its op
    with (
        weft.make_transformer(device) as transformer,
        pytest.raises(Exception, match=words) as caught,
    ):
        transformer.computation(y, x)(np.ones((5, 3), np.float32))
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert line_of("# its rule") in said
    assert line_of("# its op") in said


def test_scratch_memory_ends_where_it_was_said(device: str) -> None:
    class HalfOp(LastOp):
        """The last element."""

    weft_c.needs_scratch(HalfOp)(lambda op, processor: 256)

    @weft_c.rules.on_type(HalfOp)
    def half_rule(op: HalfOp, lowering: weft_c.Lowering) -> None:
        lowering.scratch((64,), op.dtype)
        lowering.scratch((65,), op.dtype)

    with pytest.raises(PluginError, match="more scratch memory than the 256 bytes it asked for"):
        computed(device, HalfOp, np.ones((5, 3), np.float32))


def test_an_error_of_weft_is_not_put_upon_a_rule(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(weft_c.rules._rules, weft.ops.ExpOp, Expression("nowhere({0})"))
    with pytest.raises(BackendError, match="this is an error of weft or of"):
        computed(device, weft.exp)


@pytest.mark.parametrize(
    ("make", "table"),
    [
        (lambda: weft.make_transformer("native"), "weft_c.rules"),
        (lambda: weft.make_transformer("opencl"), "weft_c.rules"),
        (lambda: weft.make_transformer("numpy"), "weft_numpy.rules.rules"),
        (lambda: weft_array_api.ArrayTransformer(np), "weft_array_api.rules.rules"),
    ],
    ids=["native", "opencl", "numpy", "array"],
)
def test_an_op_without_a_rule_is_refused_with_the_ways_out(
    make: Callable[[], weft.Transformer], table: str, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.id in BACKENDS:
        skip_without(BACKENDS[request.node.callspec.id])
    x = weft.placeholder((3,))
    results = [CubedOp(x, factor=2), LastOp(x)]  # without rules
    with make() as transformer:
        step = transformer.computation(results, x)
        with pytest.raises(UnsupportedOpError) as caught:
            step([1, 2, 3])
        name = transformer.target.name
    assert caught.value.kinds == ("CubedOp", "LastOp")
    cubed, last = (
        f"ways to compute {kind}, which docs/extending.md shows:\n"
        f"  a decomposition: derive {kind} from weft.CompositeOp too, and write decompose\n"
        f"  a rule for the backend {name}: {table}.add({kind}, rule)\n"
        for kind in ("CubedOp", "LastOp")
    )
    expression = "weft_c.rules.add(CubedOp, weft_c.Expression(...))"
    cubed += f"  an expression in C, for native, opencl and cupy: {expression}\n"
    message = f"{caught.value}\n"
    assert cubed + last.rstrip("\n") in message
    assert f"  CubedOp on float32 Axes(3), {line_of('# without rules')}" in message
    assert "use another backend" not in message


def test_a_dtype_that_the_expression_lacks_is_named(device: str) -> None:
    weft_c.rules.add(CubedOp, Expression({"float32": "{0}", "float64": "{0}"}))
    words = r"CubedOp on int32 Axes\(3\) \(its expression in C takes float32, float64, not int32\)"
    with pytest.raises(UnsupportedOpError, match=words):
        computed(device, lambda x: CubedOp(x, factor=2), np.arange(3, dtype=np.int32))


def test_registrations_that_make_no_sense_are_refused() -> None:
    with pytest.raises(PluginError, match="LastOp'> is not an ElementwiseOp"):
        weft_c.rules.add(LastOp, Expression("{0}"))
    with pytest.raises(PluginError, match="takes a function as the rule for a class of ops"):
        weft_c.rules.add(CubedOp, "{0}")  # type: ignore[arg-type]
    weft_c.rules.add(CubedOp, Expression("{0}"))  # the first
    with pytest.raises(PluginError) as caught:
        weft_c.rules.add(CubedOp, Expression("{0}"))
    assert f"registered at {line_of('# the first')}: two rules for one op" in str(caught.value)
