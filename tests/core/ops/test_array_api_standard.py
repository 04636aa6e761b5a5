"""The functions of the array API standard, by signature and by result, against the strict library.

Every function of `array_api_strict` and of its `linalg` and `fft` is called here, with dtypes of
each kind that it takes. The table of docs/array-api.md says what weft lacks or does otherwise; it
is exact in both directions.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import array_api_strict
import numpy as np
import pytest

import weft
from weft.errors import WeftError

PAGE = Path(__file__).parents[3] / "docs" / "array-api.md"

NOT_OF_THE_STANDARD = {
    "ArrayAPIStrictFlags", "Device", "get_array_api_strict_flags", "reset_array_api_strict_flags",
    "set_array_api_strict_flags", "__version__",
}  # fmt: skip
"""What the strict library exports beside the standard."""

NAMESPACES = {
    "": (weft, array_api_strict),
    "linalg.": (weft.linalg, array_api_strict.linalg),
    "fft.": (weft.fft, array_api_strict.fft),
}

FLOATS = ("float32", "float64")
WHOLES = ("int32", "int64", "uint8")
REAL = (*FLOATS, *WHOLES)
INEXACT = (*FLOATS, "complex64")
NUMERIC = (*REAL, "complex64")
SIGNED = (*INEXACT, "int32", "int64")
BITS = (*WHOLES, "bool")
ALL = (*NUMERIC, "bool")

MISSING = object()

Shapes = tuple[tuple[int, ...], ...]
ONE: Shapes = ((3, 4),)
TWO: Shapes = ((3, 4), (2, 1, 4))
SQUARE: Shapes = ((2, 3, 3),)


class Use(NamedTuple):
    """A call of a function in either namespace, with arrays of each of some dtypes."""

    dtypes: tuple[str, ...]
    shapes: Shapes = ONE
    call: Callable[..., Any] = lambda f, *xs: f(*xs)


def uses(dtypes: tuple[str, ...], *options: dict[str, Any], shapes: Shapes = ONE) -> list[Use]:
    """Return a use for each set of keyword arguments; a dtype among them is given by its name."""
    return [
        Use(dtypes, shapes, lambda f, *xs, o=each: f(*xs, **_with_dtype(f, o)))
        for each in options or ({},)
    ]


def _with_dtype(function: Any, options: dict[str, Any]) -> dict[str, Any]:
    if "dtype" not in options:
        return options
    namespace = array_api_strict if "strict" in function.__module__ else weft
    return {**options, "dtype": getattr(namespace, options["dtype"])}


def calls(dtypes: tuple[str, ...], *made: Callable[..., Any], shapes: Shapes = ONE) -> list[Use]:
    """Return a use for each function of the tested function and the arrays."""
    return [Use(dtypes, shapes, each) for each in made]


def no_arrays(*options: dict[str, Any]) -> list[Use]:
    """Return uses without arrays; what ``at`` holds is given by position."""
    return [
        Use(("float32",), (), lambda f, o=each: f(
            *o.get("at", ()), **_with_dtype(f, {k: v for k, v in o.items() if k != "at"})
        ))
        for each in options
    ]  # fmt: skip


REDUCED = ({}, {"axis": 0}, {"axis": (0, 1)}, {"axis": -1, "keepdims": True})
INDEXED = ({}, {"axis": 0}, {"axis": -1, "keepdims": True})
TRANSFORMED = ({}, {"n": 3, "axis": 0}, {"n": 6, "norm": "ortho"}, {"norm": "forward"})
TRANSFORMED_ALL = ({}, {"s": (3, 6), "axes": (0, 1)}, {"axes": (0,), "norm": "ortho"})
FILLED = ({"dtype": "int8"}, {"dtype": "int32", "device": None})

USES: dict[str, list[Use]] = {
    # elementwise
    **dict.fromkeys(("abs", "positive", "square", "sign", "round"), uses(NUMERIC)),
    **dict.fromkeys(("isfinite", "isinf", "isnan"), uses(NUMERIC)),
    "negative": uses(SIGNED),
    **dict.fromkeys(
        ("acos", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10",
         "log1p", "log2", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"), uses(INEXACT)
    ),
    "acosh": calls(INEXACT, lambda f, x: f(x + 1)),
    **dict.fromkeys(("ceil", "floor", "trunc"), uses(REAL)),
    "signbit": uses(FLOATS),
    "conj": uses(NUMERIC),
    "real": uses(NUMERIC),
    "imag": uses(("complex64",)),
    "logical_not": uses(("bool",)),
    "bitwise_invert": uses(BITS),
    **dict.fromkeys(("add", "multiply", "subtract"), uses(NUMERIC, shapes=TWO)),
    "divide": uses(INEXACT, shapes=TWO),
    "pow": uses((*INEXACT, "int32"), shapes=TWO),
    **dict.fromkeys(
        ("atan2", "copysign", "hypot", "logaddexp", "nextafter"), uses(FLOATS, shapes=TWO)
    ),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), uses(BITS, shapes=TWO)),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), uses(WHOLES, shapes=TWO)),
    **dict.fromkeys(("equal", "not_equal"), uses(ALL, shapes=TWO)),
    **dict.fromkeys(
        ("greater", "greater_equal", "less", "less_equal", "maximum", "minimum"),
        uses(REAL, shapes=TWO),
    ),
    **dict.fromkeys(
        ("floor_divide", "remainder"), calls(REAL, lambda f, x, y: f(x, y + 1), shapes=TWO)
    ),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), uses(("bool",), shapes=TWO)),
    "clip": uses(REAL, {"min": 1}, {"min": 1, "max": 2}, {"max": 2}),
    "where": calls(NUMERIC, lambda f, x, y: f(x != y, x, y), lambda f, x, y: f(x == y, x, 1),
                   shapes=TWO),
    # reductions
    **dict.fromkeys(("sum", "prod"), uses(NUMERIC, *REDUCED, {"dtype": "complex128"})),
    **dict.fromkeys(("max", "min"), uses(REAL, *REDUCED)),
    "mean": uses(INEXACT, *REDUCED),
    **dict.fromkeys(("std", "var"), uses(FLOATS, *REDUCED, {"axis": 0, "correction": 1})),
    **dict.fromkeys(("all", "any", "count_nonzero"), uses(ALL, *REDUCED)),
    **dict.fromkeys(("argmax", "argmin"), uses(REAL, *INDEXED)),
    **dict.fromkeys(
        ("cumulative_sum", "cumulative_prod"),
        uses(NUMERIC, {"axis": 0}, {"axis": -1, "include_initial": True},
             {"axis": 1, "dtype": "complex128"}),
    ),
    "diff": uses(NUMERIC, {}, {"axis": 0, "n": 2})
    + calls(NUMERIC, lambda f, x: f(x, prepend=x, append=x)),
    # sorting, searching, sets
    **dict.fromkeys(
        ("sort", "argsort"),
        uses(REAL, {}, {"axis": 0, "descending": True}, {"stable": False}, shapes=((8,),))
        + uses(REAL, {"axis": 0}),
    ),
    "searchsorted": calls(
        REAL, lambda f, x, y: f(x * 0, y), lambda f, x, y: f(x * 0, y, side="right"),
        shapes=((5,), (2, 3)))
    + calls(FLOATS, lambda f, x: f(x, x, sorter=x.__array_namespace__().argsort(x)),
            shapes=((5,),)),
    "nonzero": uses(ALL),
    "isin": uses(WHOLES, shapes=TWO),
    **dict.fromkeys(
        ("unique_all", "unique_counts", "unique_inverse", "unique_values"), uses(REAL)
    ),
    "take": calls(ALL, lambda f, x, i: f(x, i % 3, axis=0), shapes=((3, 4), (2,)))[:0]
    + calls(("int32", "int64"), lambda f, x, i: f(x, i % 3, axis=0),
            lambda f, x, i: f(x[0, :], i % 4), shapes=((3, 4), (2,))),
    "take_along_axis": calls(("int32", "int64"), lambda f, x, i: f(x, i % 4),
                             lambda f, x, i: f(x, i % 3, axis=0), shapes=((3, 4), (3, 4))),
    # shapes
    "broadcast_arrays": uses(ALL, shapes=TWO),
    "broadcast_to": calls(ALL, lambda f, x: f(x, (2, 3, 4)), lambda f, x: f(x, shape=(3, 4))),
    "concat": calls(ALL, lambda f, x, y: f((x, y)), lambda f, x, y: f([x, y], axis=-1),
                    lambda f, x, y: f((x, y), axis=None), shapes=((3, 4), (3, 4))),
    "stack": calls(ALL, lambda f, x, y: f((x, y)), lambda f, x, y: f([x, y], axis=-1),
                   shapes=((3, 4), (3, 4))),
    "unstack": uses(ALL, {}, {"axis": -1}),
    "expand_dims": calls(ALL, lambda f, x: f(x, 0), lambda f, x: f(x, axis=-1)),
    "squeeze": calls(ALL, lambda f, x: f(x, 1), lambda f, x: f(x, axis=(1, -1)),
                     shapes=((2, 1, 1),)),
    "flip": uses(ALL, {}, {"axis": 0}, {"axis": (0, 1)}),
    "moveaxis": calls(ALL, lambda f, x: f(x, 0, -1), lambda f, x: f(x, (0, 1), (1, 0))),
    "permute_dims": calls(ALL, lambda f, x: f(x, (1, 0)), lambda f, x: f(x, axes=(0, 1))),
    "repeat": calls(ALL, lambda f, x: f(x, 2), lambda f, x: f(x, 3, axis=0)),
    "reshape": calls(ALL, lambda f, x: f(x, (2, -1)), lambda f, x: f(x, shape=(12,), copy=True),
                     lambda f, x: f(x, (4, 3), copy=False)),
    "roll": calls(ALL, lambda f, x: f(x, 2), lambda f, x: f(x, (1, -1), axis=(0, 1))),
    "tile": calls(ALL, lambda f, x: f(x, (2, 1)), lambda f, x: f(x, (2, 1, 3))),
    **dict.fromkeys(("tril", "triu"), uses(NUMERIC, {}, {"k": 1}, {"k": -1})),
    "meshgrid": uses(REAL, {}, {"indexing": "ij"}, shapes=((3,), (4,))),
    # creation
    **dict.fromkeys(
        ("zeros", "ones"), no_arrays({"shape": (2, 3)}, {"at": [3]}, *(
            {"at": [(2, 3)], **each} for each in FILLED))
    ),
    **dict.fromkeys(("zeros_like", "ones_like"), uses(ALL, {}, *FILLED)),
    "empty": calls(("float32",), lambda f: f((2, 3)) * 0, lambda f: f(shape=4, device=None) * 0,
                   shapes=()),
    "empty_like": calls(NUMERIC, lambda f, x: f(x) * 0),
    "full": no_arrays(*({"at": [(2, 3), value]} for value in (1.5, True, 2j, 3)),
                      {"shape": 3, "fill_value": 2, "dtype": "int8", "device": None}),
    "full_like": uses(NUMERIC, {"fill_value": 2}, {"fill_value": 2, "dtype": "complex64"}),
    "arange": no_arrays({"at": [5]}, {"at": [1, 9, 2]}, {"at": [0.0, 1.0], "step": 0.25},
                        {"at": [3], "dtype": "int16", "device": None}),
    "linspace": no_arrays({"at": [0, 1], "num": 5}, {"at": [0.0, 2.0, 4], "endpoint": False},
                          {"at": [0, 1, 3], "dtype": "float32", "device": None}),
    "eye": no_arrays({"at": [3]}, {"at": [3, 4], "k": 1}, {"at": [2], **FILLED[1]}),
    "asarray": no_arrays(*({"at": [value]} for value in ([1, 2], 1.5, [[True]], 2j, [1, 2.5])),
                         {"at": [[1, 2]], "dtype": "int8", "copy": True, "device": None})
    + uses(ALL),
    "from_dlpack": calls(NUMERIC, lambda f, x: f(x), lambda f, x: f(x, device=None, copy=None)),
    "astype": calls(NUMERIC, lambda f, x: f(x, x.__array_namespace__().complex64),
                    lambda f, x: f(x, x.__array_namespace__().complex64, copy=False)),
    # products
    **dict.fromkeys(("matmul", "linalg.matmul"), uses(NUMERIC, shapes=((2, 3, 4), (4, 2)))),
    **dict.fromkeys(
        ("matrix_transpose", "linalg.matrix_transpose"), uses(ALL, shapes=SQUARE)
    ),
    **dict.fromkeys(
        ("tensordot", "linalg.tensordot"),
        uses(NUMERIC, {}, {"axes": 1}, {"axes": ((0,), (1,))}, shapes=((3, 3), (3, 3))),
    ),
    **dict.fromkeys(
        ("vecdot", "linalg.vecdot"), uses(NUMERIC, {}, {"axis": -2}, shapes=((3, 4), (3, 4)))
    ),
    # linear algebra
    **dict.fromkeys(("fft.fft", "fft.ifft"), uses(("complex64", "complex128"), *TRANSFORMED)),
    "fft.irfft": uses(("complex64", "complex128"), *TRANSFORMED),
    "fft.hfft": uses(("complex64", "complex128"), *TRANSFORMED),
    **dict.fromkeys(("fft.rfft", "fft.ihfft"), uses(FLOATS, *TRANSFORMED)),
    **dict.fromkeys(
        ("fft.fftn", "fft.ifftn", "fft.irfftn"), uses(("complex64", "complex128"), *TRANSFORMED_ALL)
    ),
    "fft.rfftn": uses(FLOATS, *TRANSFORMED_ALL),
    **dict.fromkeys(("fft.fftshift", "fft.ifftshift"), uses(INEXACT, {}, {"axes": (0,)})),
    **dict.fromkeys(
        ("fft.fftfreq", "fft.rfftfreq"),
        no_arrays({"at": (5,)}, {"at": (4,), "d": 0.5}, {"at": (4,), "dtype": "float32"}),
    ),
    "linalg.cholesky": uses(INEXACT, {}, {"upper": True}, shapes=SQUARE),
    "linalg.cross": uses(NUMERIC, {}, {"axis": -2}, shapes=((3, 3), (3, 3))),
    **dict.fromkeys(("linalg.det", "linalg.inv", "linalg.slogdet"), uses(INEXACT, shapes=SQUARE)),
    "linalg.diagonal": uses(ALL, {}, {"offset": 1}),
    "linalg.trace": uses(NUMERIC, {}, {"offset": -1}, {"dtype": "complex128"}),
    "linalg.outer": uses(NUMERIC, shapes=((3,), (4,))),
    "linalg.solve": uses(INEXACT, shapes=((2, 3, 3), (2, 3, 3))),
    "linalg.matrix_power": calls(INEXACT, lambda f, x: f(x, 3), lambda f, x: f(x, -2),
                                 shapes=SQUARE),
    "linalg.matrix_norm": uses(INEXACT, {}, {"ord": 1}, {"ord": np.inf, "keepdims": True},
                               {"ord": -1}, {"ord": -np.inf}, {"ord": "nuc"}),
    "linalg.vector_norm": uses(INEXACT, *REDUCED, {"ord": 1}, {"axis": 0, "ord": np.inf}),
    **dict.fromkeys(
        ("linalg.eigh", "linalg.eigvalsh", "linalg.matrix_rank", "linalg.pinv", "linalg.qr",
         "linalg.svdvals"), uses(INEXACT, shapes=SQUARE)
    ),
    "linalg.svd": uses(INEXACT, {}, {"full_matrices": False}, shapes=SQUARE),
}  # fmt: skip
"""The uses of every function that gives arrays."""


class Deviation(NamedTuple):
    """A row of the table of the page."""

    kind: str
    reason: str


def deviations() -> dict[str, Deviation]:
    """Return the rows of the page by name."""
    rows = re.findall(r"^\| (`.*`) \| (\w+) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {
        name: Deviation(kind, reason)
        for names, kind, reason in rows
        for name in re.findall(r"`([\w.]+)`", names)
    }


DEVIATIONS = deviations()


def of_the_standard() -> list[str]:
    """Return the names of the standard, with those of `linalg` and `fft` dotted."""
    return [
        f"{prefix}{name}"
        for prefix, (_, strict) in NAMESPACES.items()
        for name in strict.__all__
        if name not in NOT_OF_THE_STANDARD
    ]


def both(name: str) -> tuple[Any, Any]:
    """Return what a name is in weft, or `MISSING`, and in the strict library."""
    prefix, _, last = name.rpartition(".")
    ours, strict = NAMESPACES[f"{prefix}." if prefix else ""]
    return getattr(ours, last, MISSING), getattr(strict, last)


def sample(shape: tuple[int, ...], dtype: str, random: Any) -> Any:
    """Return numbers of a dtype: distinct integers, fractions, positive definite matrices."""
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    size = int(np.prod(shape))
    if np.dtype(dtype).kind in "iu":
        return random.permutation(size).reshape(shape).astype(dtype) % 7
    found = random.uniform(0.1, 0.9, shape)
    if np.dtype(dtype).kind == "c":
        found = found + 1j * random.uniform(0.1, 0.9, shape)
    if shape == SQUARE[0]:
        found = found @ np.conj(np.swapaxes(found, -1, -2)) + np.eye(3)
    return found.astype(dtype)


def leaves(result: Any) -> list[Any]:
    """Return a result, or each of several, as NumPy arrays."""
    several = result if isinstance(result, tuple | list) else [result]
    return [np.asarray(each) for each in several]


def different(name: str) -> set[str]:
    """Return in what the results differ: ``values``, ``dtype``, or ``refused``."""
    ours, strict = both(name)
    found = set()
    for number, use in enumerate(USES[name]):
        for dtype in use.dtypes:
            random = np.random.default_rng([number, *name.encode()])
            arrays = [sample(shape, dtype, random) for shape in use.shapes]
            expected = leaves(use.call(strict, *map(array_api_strict.asarray, arrays)))
            traced = weft.jit(lambda *xs, call=use.call: call(ours, *xs), backend="numpy")
            try:
                got = leaves(traced(*arrays))
            except (WeftError, TypeError):
                found.add("refused")
                continue
            if [each.dtype for each in got] != [_dtype(each, use.shapes) for each in expected]:
                found.add("dtype")
            if not all(map(_is_close, got, expected)):
                found.add("values")
    return found


def _dtype(expected: Any, shapes: Shapes) -> Any:
    """Return the dtype of a result, in single precision if no array decides: weft's default."""
    single = {"float64": "float32", "complex128": "complex64"}
    return expected.dtype if shapes else np.dtype(single.get(expected.dtype.name, expected.dtype))


def _is_close(got: Any, expected: Any) -> bool:
    if got.shape != expected.shape:
        return False
    accuracy = 1e-4 if np.result_type(got, expected).kind in "fc" else 0
    return np.allclose(got, expected, rtol=accuracy, atol=accuracy, equal_nan=True)


def lacking_keywords(name: str) -> set[str]:
    """Return the parameters of the standard that a function does not take by name."""
    ours, strict = both(name)
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [
        each.name for each in inspect.signature(strict).parameters.values() if each.kind in by_name
    ]
    return {each for each in wanted if each not in inspect.signature(ours).parameters}


def found_deviation(name: str) -> str:
    """Return in what a function deviates: one word, or several."""
    ours, strict = both(name)
    if ours is MISSING:
        return "missing"
    kinds = different(name) if name in USES else set()
    if inspect.isfunction(strict) and lacking_keywords(name):
        kinds.add("keywords")
    return " ".join(sorted(kinds))


DTYPES = [name for name in weft.dtypes.NAMES if hasattr(array_api_strict, name)]
CONSTANTS = ("e", "inf", "nan", "newaxis", "pi", "__array_api_version__")
OF_DTYPES = ("broadcast_shapes", "can_cast", "finfo", "iinfo", "isdtype", "result_type")


@pytest.mark.parametrize("name", of_the_standard())
def test_the_page_says_in_what_a_name_deviates_from_the_standard(name: str) -> None:
    said = DEVIATIONS[name].kind if name in DEVIATIONS else ""
    assert found_deviation(name) == said


def test_every_name_of_the_standard_is_compared() -> None:
    compared = {*USES, *CONSTANTS, *OF_DTYPES, *DTYPES}
    others = {"__array_namespace_info__", "fft", "linalg"}
    assert set(of_the_standard()) - compared == others
    assert set(DEVIATIONS) <= {*of_the_standard()}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_is_that_of_the_standard(name: str) -> None:
    assert repr(getattr(weft, name)) == repr(getattr(array_api_strict, name))


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    """Return a result with dtypes by name, or that there is none."""
    try:
        result = function(*args)
    except (TypeError, ValueError, WeftError):
        return "refused"
    return (
        getattr(result, "name", getattr(result, "_np_dtype", np.dtype(bool)).name)
        if (hasattr(result, "_np_dtype") or hasattr(result, "itemsize"))
        else result
    )


def _of_one_kind(left: str, right: str) -> bool:
    """Return whether the standard says what the promotion of two dtypes gives."""
    kinds = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 2}
    return kinds[np.dtype(left).kind] == kinds[np.dtype(right).kind]


@pytest.mark.parametrize("left", DTYPES)
def test_dtypes_are_promoted_as_in_the_standard(left: str) -> None:
    for right in DTYPES:
        if not _of_one_kind(left, right):
            continue
        for name in ("result_type", "can_cast"):
            ours, strict = (
                _outcome(getattr(xp, name), getattr(xp, left), getattr(xp, right))
                for xp in (weft, array_api_strict)
            )
            assert ours == strict, (name, left, right)


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_has_the_kinds_and_limits_of_the_standard(name: str) -> None:
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating",
             "complex floating", "numeric", ("bool", "integral"))  # fmt: skip
    for kind in kinds:
        ours, strict = (xp.isdtype(getattr(xp, name), kind) for xp in (weft, array_api_strict))
        assert ours is strict, kind
    assert weft.isdtype(getattr(weft, name), getattr(weft, name))
    for limits, fields in (
        ("finfo", ("bits", "eps", "max", "min", "smallest_normal")),
        ("iinfo", ("bits", "max", "min")),
    ):
        ours, strict = (
            _outcome(getattr(xp, limits), getattr(xp, name)) for xp in (weft, array_api_strict)
        )
        for field in fields if strict != "refused" else ():
            assert getattr(ours, field) == getattr(strict, field)
        assert (ours == "refused") == (strict == "refused")


@pytest.mark.parametrize(
    "shapes", [(), ((3, 1), (4,)), ((), (2, 1, 3)), ((1,), (0,)), ((2,), (3,)), ((2, 3), (2, 1, 4))]
)
def test_shapes_are_broadcast_as_in_the_standard(shapes: Any) -> None:
    ours, strict = (_outcome(xp.broadcast_shapes, *shapes) for xp in (weft, array_api_strict))
    assert ours == strict


def test_the_namespace_tells_of_itself() -> None:
    ours, strict = weft.__array_namespace_info__(), array_api_strict.__array_namespace_info__()
    assert ours.capabilities().keys() == strict.capabilities().keys()
    assert ours.default_dtypes().keys() == strict.default_dtypes().keys()
    assert ours.devices() == [ours.default_device()]
    for kind in (None, "bool", "integral", ("real floating", "complex floating"), "numeric"):
        assert ours.dtypes(kind=kind, device=None).keys() == strict.dtypes(kind=kind).keys()
    defaults = ours.default_dtypes()
    made = {
        "real floating": weft.asarray(1.5), "complex floating": weft.asarray(1j),
        "integral": weft.asarray([1]), "indexing": weft.argmax([1.0, 2.0]),
    }  # fmt: skip
    assert {kind: each.dtype for kind, each in made.items()} == defaults


OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "&", "|", "<", "==")


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_takes_what_the_standard_lets_it_take(operator: str) -> None:
    """Where the standard defines a result of two dtypes or of a number, weft's is the same."""
    apply = eval(f"lambda x, y: x {operator} y")
    ones = {name: np.ones(2, name) for name in DTYPES}
    for dtype, array in ones.items():
        for other in [*ones.values(), 1, 1.0, 1j, True]:
            theirs = array_api_strict.asarray(other) if isinstance(other, np.ndarray) else other
            if operator == "<" and isinstance(other, complex):
                continue
            try:
                expected = np.asarray(apply(array_api_strict.asarray(array), theirs))
            except TypeError:
                continue
            made = weft.constant(other) if isinstance(other, np.ndarray) else other
            op = apply(weft.constant(array), made)
            assert op.dtype == expected.dtype, (dtype, other)


def test_what_has_no_common_dtype_is_refused() -> None:
    with pytest.raises(weft.errors.DTypeError, match="no common integer dtype"):
        weft.ones(2, "uint64") + weft.ones(2, "int64")
    assert (weft.ones(2, "bool") + weft.ones(2, "int8")).dtype == weft.int8


def test_a_device_other_than_none_is_refused_with_the_way_out() -> None:
    x = weft.ones(3)
    assert x.device is None
    assert x.to_device(x.device) is x
    for use in (lambda: weft.zeros(3, device="cuda"), lambda: x.to_device("cpu")):
        with pytest.raises(weft.errors.ArgumentError, match=r"jit\(f, backend="):
            use()


@pytest.mark.parametrize("name", ["unique_all", "unique_counts", "unique_inverse", "unique_values"])
def test_distinct_elements_are_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(weft.errors.AxesError, match=rf"{name}: .* weft.unique\(x, size="):
        getattr(weft, name)(weft.ones(3))


def test_other_mistakes_are_refused() -> None:
    with pytest.raises(weft.errors.ArgumentError, match="zeros: give axes or shape, not both"):
        weft.zeros(axes=3, shape=3)
    with pytest.raises(weft.errors.DTypeError, match="'floating' is not a dtype or one of the ki"):
        weft.isdtype(weft.float32, "floating")
    with pytest.raises(weft.errors.DTypeError, match=r"finfo takes a float .* see iinfo"):
        weft.finfo(weft.int8)
    with pytest.raises(weft.errors.DTypeError, match=r"iinfo takes an integer .* see finfo"):
        weft.iinfo(weft.bool)
    with pytest.raises(weft.errors.ArgumentError, match="ord must be 'fro', 'nuc'"):
        weft.linalg.matrix_norm(weft.ones((2, 2)), ord=3)
