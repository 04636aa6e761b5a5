"""Compiling and evaluating: checks, kinds of tensors, and how long everything lives."""

from __future__ import annotations

import gc
import mmap
import re
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hamkaas_models import floats, index, mnist

import weft
import weft_hamkaas as hk
from weft import plugins
from weft.errors import BackendError, UnknownPluginError
from weft_hamkaas import (
    BufferTensor,
    ConstantTensor,
    HamKaasModel,
    HamKaasPlugin,
    InputTensor,
    KindError,
    NodeError,
)


def scaled():
    return InputTensor("x", "float32", [2, 3]) * floats(1, 3) + InputTensor("y", "float32", [1, 1])


GIVEN = {"x": floats(2, 3), "y": floats(1, 1)}


def test_the_network_of_the_document_is_computed(backend: str):
    values = [floats(784, 1000), floats(1, 1000), floats(1000, 10), floats(1, 10)]
    w1, b1, w2, b2 = values
    images = floats(128, 28, 28)
    found = HamKaasPlugin(backend).compile_model(mnist(values)).evaluate({"input": images})
    hidden = np.maximum(images.reshape(128, 784).astype("f8") @ w1 + b1, 0)
    expected = hidden @ w2 + b2
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


WRONG = {
    "none": ({}, "Missing input tensor: x"),
    "missing": ({"x": GIVEN["x"]}, "Missing input tensor: y"),
    "unknown": (GIVEN | {"z": floats(1)}, r"Unknown input tensor: z"),
    "unknown instead": ({"x": GIVEN["x"], "z": floats(1)}, "Unknown input tensor: z"),
    "shape": (GIVEN | {"x": floats(3, 2)}, r"x has wrong shape: \[3, 2\] vs \[2, 3\]"),
    "rank": (GIVEN | {"y": floats(1)}, r"y has wrong shape: \[1\] vs \[1, 1\]"),
    "type": (GIVEN | {"x": np.ones((2, 3))}, "x has wrong type: float64 vs float32"),
    "integers": (GIVEN | {"x": np.ones((2, 3), "i8")}, "x has wrong type: int64 vs float32"),
    "list": (GIVEN | {"y": [[1.0]]}, "y is not a tensor"),
    "None": (GIVEN | {"y": None}, "Missing input tensor: y"),
}


@pytest.fixture(scope="module")
def model():
    return HamKaasPlugin().compile_model(scaled())


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs_are_refused(name: str, model: HamKaasModel):
    inputs, words = WRONG[name]
    with pytest.raises(NodeError, match=words):
        model.evaluate(inputs)


@pytest.mark.parametrize("given", [None, 3, [("x", GIVEN["x"])]], ids=["None", "number", "list"])
def test_inputs_are_a_mapping_of_names(given: int | list[Any] | None, model: HamKaasModel):
    words = rf"mapping of names to tensors, not {re.escape(repr(given)[:4])}.*\(there are x, y\)"
    with pytest.raises(KindError, match=f"(?s){words}"):
        model.evaluate(given)
    with pytest.raises(KindError, match="not None"):
        model.evaluate()


def test_a_model_without_inputs_needs_none_to_be_given():
    model = HamKaasPlugin().compile_model(ConstantTensor(floats(2)).relu())
    for given in ((), (None,), ({},)):
        np.testing.assert_array_equal(model.evaluate(*given), np.maximum(floats(2), 0))


def test_inputs_may_have_gaps_and_results_are_new(model: HamKaasModel):
    wide = floats(3, 4)
    given = GIVEN | {"x": wide.T[1:3]}
    results = [model.evaluate(given) for _ in range(2)]
    np.testing.assert_allclose(results[0], wide.T[1:3] * floats(1, 3) + GIVEN["y"], rtol=1e-6)
    assert not np.may_share_memory(*results)
    results[0][:] = 0
    assert results[1].any()


@pytest.mark.parametrize("order", [">", "<"])
def test_tensors_in_either_order_of_bytes_are_taken(order: str, backend: str):
    def there(array: np.ndarray):
        return array.astype(array.dtype.newbyteorder(order))

    begin, end = (ConstantTensor(there(index(bound))) for bound in (1, 2))
    x = InputTensor("x", np.dtype(f"{order}f4"), [2, 3])
    node = x.replace(InputTensor("row", "float32", [1, 3]), begin, end) * there(floats(1, 3))
    assert "ConstantTensor(constant_2, float32, [1, 3])" in hk.traverse_node(node).script
    model = HamKaasPlugin(backend).compile_model(node)
    found = model.evaluate({"x": there(floats(2, 3)), "row": there(floats(1, 3, seed=1))})
    expected = np.stack([floats(2, 3)[0], floats(1, 3, seed=1)[0]]) * floats(1, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32
    assert model.traversal.constants["constant_0"].dtype.isnative
    assert hk.HamKaasPlugin().inverse_elements(there(floats(2))).dtype.isnative


def test_a_script_that_was_read_without_values_is_not_compiled():
    node = hk.parse_script("$1 = ConstantTensor(w, float32, [2]); result = $1;")
    assert hk.traverse_node(node).constants == {}
    with pytest.raises(NodeError, match="Constant w has no value"):
        HamKaasPlugin().compile_model(node)


@pytest.mark.parametrize("node", [None, 1.0, floats(2)])
def test_a_model_is_compiled_from_a_node(node: float | np.ndarray | None):
    with pytest.raises(NodeError, match="node"):
        HamKaasPlugin().compile_model(node)
    with pytest.raises(NodeError, match="node"):
        hk.traverse_node(node)


def test_two_inputs_of_one_name_are_refused_when_the_model_is_compiled():
    root = InputTensor("x", "float32", [2]) + InputTensor("x", "float32", [2])
    with pytest.raises(NodeError, match="Multiple input tensors with name x were found"):
        HamKaasPlugin().compile_model(root)


@pytest.mark.long
@pytest.mark.parametrize("order", list(permutations(["plugin", "model", "node"])))
def test_plugin_model_and_node_are_let_go_in_any_order(order: Any):
    alive = {"node": BufferTensor("float32", [2]).replace(InputTensor("x", "float32", [2]), 0, 2)}
    alive["plugin"] = HamKaasPlugin("numpy")
    alive["model"] = alive["plugin"].compile_model(alive["node"])
    given = {"x": floats(2)}
    alive["model"].evaluate(given)
    transformer = weakref.ref(alive["model"].computation.transformer)
    for name in order:
        del alive[name]
        if "model" in alive:
            np.testing.assert_array_equal(alive["model"].evaluate(given), floats(2))
        elif transformer() is not None:
            assert transformer().closed
    gc.collect()
    assert transformer() is None


def test_memory_of_models_is_given_back():
    plugin = HamKaasPlugin("numpy")
    seen = []
    for _ in range(20):
        model = plugin.compile_model(scaled())
        model.evaluate(GIVEN)
        seen.append(weakref.ref(model.computation.transformer))
    del model
    gc.collect()
    assert [reference() for reference in seen] == [None] * 20


KEPT = 50_000_000
"""The bytes of a buffer that there is memory for."""

FAILING = {
    "no memory": (
        {},
        lambda: (
            BufferTensor("float32", [1, KEPT // 4])
            + BufferTensor("float32", [80_000, KEPT // 4])[0:1]
        ),
        MemoryError,
    ),
    "memory limit": (
        {"memory_limit": 1000},
        lambda: ((x := InputTensor("x", "float32", [100, 100])) @ x).permute([1, 0]) @ x,
        MemoryError,
    ),
    "two inputs of a name": (
        {},
        lambda: InputTensor("x", "float32", [2]) + InputTensor("x", "float32", [2]),
        NodeError,
    ),
}


@pytest.mark.share(9)
@pytest.mark.parametrize("name", FAILING)
def test_a_model_that_is_not_compiled_leaves_nothing_behind(
    name: Any, backend: str, monkeypatch: pytest.MonkeyPatch
):
    """Neither what it is made of, nor memory of the device, where it got a buffer."""
    options, build, expected = FAILING[name]
    plugin = HamKaasPlugin(backend, **options)
    transformers = []
    make = weft.make_transformer

    def noted(*arguments: Any, **options: Any):
        transformers.append(weakref.ref(made := make(*arguments, **options)))
        return made

    monkeypatch.setattr(weft, "make_transformer", noted)
    before, sizes = living_models(), []
    for _ in range(4):
        for _ in range(3):
            with pytest.raises(expected) as caught:
                plugin.compile_model(build())
            assert transformers[-1]().closed
            del caught
        gc.collect()
        assert [each() for each in transformers] == [None] * len(transformers)
        assert living_models() == before
        sizes.append(virtual_bytes())
    assert sizes[-1] - sizes[0] < KEPT


def living_models():
    gc.collect()
    return sum(isinstance(each, HamKaasModel) for each in gc.get_objects())


def virtual_bytes():
    """Return the bytes that the process has mapped, 0 where nothing tells."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[0]) * mmap.PAGESIZE if path.exists() else 0


@pytest.mark.parametrize("path", ["../cpp/libhamkaas.so", "libhamkaas.so", "/nowhere/lib", None])
def test_a_path_is_accepted_and_nothing_is_loaded_from_it(
    path: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WEFT_BACKEND", "numpy")
    model = HamKaasPlugin(path).compile_model(scaled())
    assert model.computation.transformer.transformer_name == "numpy"


def test_an_unknown_backend_is_refused_at_once():
    with pytest.raises(UnknownPluginError, match="Did you mean 'numpy'"):
        HamKaasPlugin("nunpy")


def test_options_are_those_of_the_backend():
    model = HamKaasPlugin("numpy", threads=1).compile_model(scaled())
    assert model.evaluate(GIVEN).shape == (2, 3)


def test_a_gpu_is_used_or_the_error_says_what_is_missing():
    try:
        model = HamKaasPlugin().compile_model(scaled(), use_gpu=True, use_cudnn=True)
    except BackendError as error:
        assert "no GPU can be used" in str(error)  # noqa: PT017
        assert "cupy:" in str(error)  # noqa: PT017
        assert "opencl:" in str(error)  # noqa: PT017
    else:
        name = model.computation.transformer.transformer_name
        assert plugins.backend_status(name).usable
        np.testing.assert_allclose(
            model.evaluate(GIVEN),
            HamKaasPlugin().compile_model(scaled()).evaluate(GIVEN),
            rtol=1e-6,
        )


def test_evaluations_of_several_threads_do_not_disturb_each_other(model: HamKaasModel):
    from concurrent.futures import ThreadPoolExecutor

    inputs = [GIVEN | {"x": floats(2, 3, seed=seed)} for seed in range(50)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(model.evaluate, inputs))
    for each, given in zip(found, inputs, strict=True):
        np.testing.assert_array_equal(each, model.evaluate(given))


# inverse_elements


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0), (1, 2, 3, 4, 5)])
def test_elements_of_any_shape_are_inverted(shape: tuple[int, ...]):
    found = HamKaasPlugin().inverse_elements(floats(*shape))
    np.testing.assert_array_equal(found, np.float32(1) / floats(*shape))
    assert (found.shape, found.dtype) == (shape, np.float32)


@pytest.mark.filterwarnings("error")
def test_the_inverse_of_a_subnormal_number_is_infinite():
    tensor = np.array([1e-42, -1e-45, np.inf, 1e-38], np.float32)
    found = HamKaasPlugin().inverse_elements(tensor)
    np.testing.assert_array_equal(found, [np.inf, -np.inf, 0, np.float32(1) / tensor[3]])


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (np.array([1, 0], np.float32), r"Division by zero \(element = \(1,\)\)"),
        (np.array([[-0.0]], np.float32), "Division by zero"),
        (np.array([1, 2], np.int32), "float32 tensor, not int32"),
        (np.ones(2), "float32 tensor, not float64"),
        ([1.0], "float32 tensor, not list"),
    ],
)
def test_what_has_no_inverse_is_refused(tensor: list[float] | np.ndarray, words: str):
    with pytest.raises(ValueError, match=words):
        HamKaasPlugin().inverse_elements(tensor)


# Tensors of torch: an imitation, which has the few methods that the bridge uses.


class Tensor:
    """What the bridge uses of a tensor of torch."""

    def __init__(self, array: np.ndarray):
        self._array = array
        self.shape = array.shape
        self.dtype = Dtype(array.dtype.name)

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self._array

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self._array))


class Dtype:
    """Prints as a dtype of torch does."""

    def __init__(self, name: str):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


@pytest.fixture
def imitation(monkeypatch: pytest.MonkeyPatch):
    module = types.ModuleType("imitated_torch")
    module.from_numpy = Tensor
    monkeypatch.setitem(sys.modules, "imitated_torch", module)
    monkeypatch.setattr(Tensor, "__module__", "imitated_torch.tensors")
    return module


@pytest.mark.usefixtures("imitation")
def test_tensors_of_torch_are_taken_and_given_back():
    x = InputTensor("x", Dtype("float32"), [3, 2])
    weight = Tensor(floats(2, 4).T)
    model = HamKaasPlugin().compile_model(ConstantTensor(weight) @ x.permute([1, 0]))
    found = model.evaluate({"x": Tensor(floats(3, 2))})
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.numpy(), floats(2, 4).T @ floats(3, 2).T, rtol=1e-6)
    assert "ConstantTensor(constant_0, float32, [4, 2])" in model.traversal.script
    assert model.traversal.constants["constant_0"].numpy().flags.c_contiguous
    with pytest.raises(NodeError, match="wrong type: int64 vs float32"):
        model.evaluate({"x": Tensor(np.ones((3, 2), np.int64))})
    inverse = HamKaasPlugin().inverse_elements(Tensor(floats(2)))
    assert isinstance(inverse, Tensor)


@pytest.mark.usefixtures("imitation")
def test_a_tensor_on_the_right_becomes_a_constant():
    node = InputTensor("x", Dtype("float32"), [2]) + Tensor(floats(2))
    assert isinstance(node.inputs[1], ConstantTensor)
    assert str(node.get_type()) == "torch.float32"
    found = HamKaasPlugin().compile_model(node).evaluate({"x": floats(2)})
    assert isinstance(found, Tensor), "the model has tensors of torch in it"


def torch_inputs():
    return InputTensor("x", Dtype("float32"), [2]).relu(), {"x": floats(2)}


def torch_buffers():
    return BufferTensor(Dtype("float32"), [2]) + InputTensor("x", "float32", [2]), {"x": floats(2)}


def torch_indices():
    index = InputTensor("index", Dtype("int64"), [1])
    x = InputTensor("x", np.float32, [2])
    return x.sliced_softmax(index), {"x": floats(2), "index": np.ones(1, np.int64)}


@pytest.mark.usefixtures("imitation")
@pytest.mark.parametrize("build", [torch_inputs, torch_buffers, torch_indices])
def test_a_model_with_dtypes_of_torch_returns_tensors_of_torch(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Dtype, "__module__", "imitated_torch")
    node, inputs = build()
    found = HamKaasPlugin().compile_model(node).evaluate(inputs)
    assert isinstance(found, Tensor)
    assert found.numpy().flags.writeable


@pytest.mark.usefixtures("imitation")
@pytest.mark.parametrize("type", ["torch.float32", "float32", np.float32, np.dtype("f4")])
def test_a_name_is_no_dtype_of_torch(type: Any):
    model = HamKaasPlugin().compile_model(InputTensor("x", type, [2]).relu())
    assert isinstance(model.evaluate({"x": floats(2)}), np.ndarray)
    assert isinstance(model.evaluate({"x": Tensor(floats(2))}), Tensor)


WITH_TORCH = """
import numpy as np, torch
from weft_hamkaas import HamKaasPlugin, InputTensor
node = InputTensor("x", torch.float32, [2]).relu()
found = HamKaasPlugin().compile_model(node).evaluate({"x": np.ones(2, np.float32)})
assert isinstance(found, torch.Tensor), found
assert found.dtype == torch.float32
"""


@pytest.mark.needs("torch")
def test_with_torch_itself():
    subprocess.run([sys.executable, "-c", WITH_TORCH], check=True)


WITHOUT_TORCH = """
import sys, numpy as np
from weft_hamkaas import HamKaasPlugin, InputTensor
node = InputTensor("x", "torch.float32", [2]).relu()
HamKaasPlugin().compile_model(node).evaluate({"x": np.ones(2, np.float32)})
assert "torch" not in sys.modules
"""


def test_torch_itself_is_never_needed():
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True)
    assert index(1).dtype == np.int64
