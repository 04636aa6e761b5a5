"""Results that stay on the device of a backend, and arguments that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from needs import skip_without, skip_without_backend

import weft
from weft.errors import ArgumentError, CheckFailed, DTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_opencl.transformer import OpenCLTransformer

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def step(params: Any, x: Any) -> Any:
    return {"w": params["w"] * 2 + x, "sum": (weft.sum(params["w"], 0), x), "n": params["n"] + 1}


@pytest.fixture
def opencl() -> Iterator[OpenCLTransformer]:
    skip_without("opencl")
    from weft_opencl.transformer import OpenCLTransformer

    with weft.make_transformer("opencl") as made:
        assert isinstance(made, OpenCLTransformer)
        yield made


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_the_arrays_of_the_host_are_those_of_numpy(backend: str) -> None:
    skip_without_backend(backend)
    function = weft.jit(lambda x: (x * 2, x), backend=backend, device=True)
    for _ in range(2):
        double, same = function(X)
        assert type(double) is type(same) is np.ndarray
        np.testing.assert_array_equal(np.from_dlpack(double), X * 2)


def test_results_are_arguments_as_they_are(
    opencl: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = weft.jit(step, backend=opencl, device=True)
    kind = opencl.device_arrays.kind
    params, wanted = function({"w": X, "n": 0}, 1.0), step_of_numpy({"w": X, "n": 0}, 1.0)
    monkeypatch.setattr(kind, "get", forbidden)
    monkeypatch.setattr(type(opencl.device_arrays), "to_host", forbidden)
    for _ in range(3):
        assert type(params["w"]) is type(params["sum"][0]) is kind
        params, wanted = function(params, params["sum"][1]), step_of_numpy(wanted, 1.0)
    monkeypatch.undo()
    assert params["w"].get().tolist() == wanted["w"].tolist()
    assert params["n"].get() == 4


def step_of_numpy(params: Any, x: Any) -> Any:
    return {"w": params["w"] * 2 + x, "n": params["n"] + 1}


def forbidden(*args: Any, **options: Any) -> Any:
    raise AssertionError("an array was copied to the host")


CASES: dict[str, Any] = {
    "elementwise": lambda x, y: weft.sin(x) + y,
    "as it came": lambda x, y: (y, x),
    "no elements": lambda x, y: (x[:0] * 2, y),
    "a row": lambda x, y: x[1] * y[2],
    "products": lambda x, y: x @ weft.transpose(y),
    "on the host": lambda x, y: weft.cholesky(x @ weft.transpose(x) + weft.eye(3)) + weft.sum(y),
    "a loop": lambda x, y: weft.scan(lambda c, r: (c * 0.5 + r, c), x[0], y),
    "a choice": lambda x, y: weft.cond(x[0, 0] > 1, lambda: x, lambda: y * 2),
    "checked indices": lambda x, y: weft.take(x, weft.cast(y[0], "int32") % 3, axis=0) * 2,
}


@pytest.mark.parametrize("form", ["as it is", "copies", "groups", "maps"])
@pytest.mark.parametrize("case", CASES)
def test_programs_compute_with_them(opencl: OpenCLTransformer, case: str, form: str) -> None:
    from dataclasses import replace

    facts = {"copies": {"shares_host": False}}
    facts["groups"] = facts["maps"] = {"is_serial": False, "group": 64, **facts["copies"]}
    opencl.processor = replace(opencl.processor, **facts.get(form, {}))
    opencl.maps_host = form in ("maps", "as it is")
    function = CASES[case]
    wanted = leaves(weft.jit(function, backend="numpy")(X, X + 1))
    on_device = weft.jit(function, backend=opencl, device=True)
    there = opencl.device_arrays.from_host(X)
    for args in ((X, X + 1), (there, X + 1), (there, opencl.device_arrays.from_host(X + 1))):
        for found, other in zip(leaves(on_device(*args)), wanted, strict=True):
            np.testing.assert_allclose(found.get(), other, rtol=1e-5)


def leaves(tree: Any) -> list[Any]:
    return [leaf for each in tree for leaf in leaves(each)] if isinstance(tree, tuple) else [tree]


def test_arrays_in_other_orders_are_copied(opencl: OpenCLTransformer) -> None:
    double = weft.jit(lambda x: x * 2, backend=opencl, device=True)
    x = opencl.device_arrays.from_host(X)
    for each, wanted in ((x, X), (x.T, X.T), (x[1:], X[1:]), (x[:, 1:3], X[:, 1:3])):
        for _ in range(2):
            np.testing.assert_array_equal(double(each).get(), wanted * 2)


def test_unknown_lengths(opencl: OpenCLTransformer) -> None:
    double = weft.jit(lambda x: x * 2, backend=opencl, device=True, dynamic="rows")
    x = opencl.device_arrays.from_host(X)
    for rows in (3, 2, 3, 2):
        np.testing.assert_array_equal(double(double(x[:rows])).get(), X[:rows] * 4)


def test_a_check_of_results_sees_them(opencl: OpenCLTransformer) -> None:
    opencl.checks_finite = True
    log = weft.jit(weft.log, backend=opencl, device=True)
    np.testing.assert_allclose(log(log(X + 3)).get(), np.log(np.log(X + 3)), rtol=1e-5)
    with pytest.raises(CheckFailed, match="LogOp"):
        log(-X)


def test_the_computation_takes_arrays_of_both_kinds(opencl: OpenCLTransformer) -> None:
    computation = weft.jit(lambda x: x * 2, backend=opencl, device=True).lower(X)
    there = opencl.device_arrays.from_host(X)
    for each in (X, there, X.tolist()):
        np.testing.assert_array_equal(computation(each).get(), X * 2)
    out = np.empty_like(X)
    computation(there, out=out)
    np.testing.assert_array_equal(out, X * 2)
    assert computation.find_nonfinite(there) is None
    assert computation.profile(there, repeat=1).rows
    with pytest.raises(DTypeError, match=r"float64 is not float32.*cast"):
        computation(opencl.device_arrays.from_host(X.astype(np.float64)))


def test_refusals(opencl: OpenCLTransformer) -> None:
    import pyopencl

    double = weft.jit(lambda x: x * 2, backend=opencl, device=True)
    double(X)
    context = pyopencl.Context([opencl.device.handle])  # PoCL 6 does not keep that of a queue
    elsewhere = pyopencl.CommandQueue(context)
    foreign = type(double(X))(elsewhere, (3, 4), np.float32)
    with pytest.raises(ArgumentError, match="in another context"):
        double(foreign)
    with pytest.raises(ArgumentError, match=r"argument x is an array on the device.*device=True"):
        weft.jit(lambda x: x * 2, backend=opencl)(double(X))


def test_a_number_is_the_device_itself() -> None:
    skip_without("opencl")
    assert type(weft.jit(lambda x: x + 1, backend="opencl", device=0)(X)) is np.ndarray
