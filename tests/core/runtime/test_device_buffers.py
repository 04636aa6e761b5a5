"""Buffers and pipelines that a user or the class of a backend makes by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, BackendError, StateError
from weft.ir.description import TensorDescription, contiguous

PLACE = contiguous((3, 4), np.dtype("float32"))


def buffer(transformer: weft.Transformer, name: str = "mine"):
    storage = transformer.device_buffer_storage(48, name)
    return storage, storage.device_tensor(PLACE)


def works(storage: weft.DeviceBufferStorage, tensor: weft.DeviceTensor):
    assert storage.allocated
    assert not tensor.get().any()
    tensor[...] = np.arange(12).reshape(3, 4)
    assert tensor[1, ::2].tolist() == [4, 6]


def test_a_buffer_is_allocated_by_whatever_comes_next(backend: str):
    x = weft.placeholder((2,))
    with weft.make_transformer(backend) as transformer:
        early = buffer(transformer)
        transformer.initialize()
        works(*early)
        later = buffer(transformer)
        transformer.initialize()
        works(*later)
        with_program = buffer(transformer)
        transformer.computation(weft.tanh(x), x)([1, 2])
        works(*with_program)
        with_state = buffer(transformer)
        transformer.get_value(weft.variable((), initial_value=2))
        works(*with_state)
        assert early[1][2, 3] == 11
        assert not transformer.unallocated


def test_a_buffer_without_memory_says_so(backend: str):
    if backend.startswith("array-api"):
        pytest.skip("its arrays are made when they are asked for")
    with weft.make_transformer(backend) as transformer:
        storage, tensor = buffer(transformer, "scratch")
        uses = [tensor.get, lambda: tensor[0], lambda: tensor.__setitem__(..., 1)]
        for use in uses:
            with pytest.raises(StateError, match=r"scratch has no memory yet.*initialize"):
                use()
        assert "not allocated" in repr(storage)
        with pytest.raises(AttributeError):
            _ = tensor.unknown


NO_SIZE = [-1, 2.5, "a", None, True, np.True_, np.float32(8), [8], (8,), -(2**70)]


@pytest.mark.parametrize("size", NO_SIZE, ids=repr)
def test_the_size_of_a_buffer_is_a_number_of_bytes(backend: str, size: Any):
    with weft.make_transformer(backend) as transformer:
        with pytest.raises(ArgumentError, match=r"buffer odd: its size .*at least 0") as caught:
            transformer.device_buffer_storage(size, "odd")
        assert f'File "{__file__}", line' in str(caught.value)
        assert not transformer.device_buffers
        mine = transformer.device_buffer_storage(np.int64(48), "even")
        tensor = mine.device_tensor(PLACE)
        transformer.initialize()
        works(mine, tensor)
        assert type(mine.bytes) is int


F4, F8 = np.dtype("float32"), np.dtype("float64")
TOO_LARGE = {
    "longer": contiguous((3, 5), F4),
    "wider": contiguous((3, 4), F8),
    "moved": TensorDescription((3, 4), F4, (16, 4), 4),
    "by a byte": TensorDescription((3, 4), F4, (16, 4), 1),
    "before": TensorDescription((3, 4), F4, (16, 4), -4),
    "backwards": TensorDescription((12,), F4, (-4,), 40),
    "steps": TensorDescription((2,), F4, (48,), 0),
    "none of it": TensorDescription((0,), F4, (4,), 49),
    "one": TensorDescription((), F4, (), 48),
}
FITTING = {
    "all": contiguous((3, 4), F4),
    "other": contiguous((6,), F8),
    "last": TensorDescription((), F4, (), 44),
    "backwards": TensorDescription((12,), F4, (-4,), 44),
    "transposed": TensorDescription((4, 3), F4, (4, 16), 0),
    "repeated": TensorDescription((100,), F4, (0,), 0),
    "empty": TensorDescription((0, 9), F4, (36, 4), 48),
}
NO_DESCRIPTION = {
    "none": None,
    "shape": (3, 4),
    "dtype": F4,
    "array": np.zeros(3),
    "lists": TensorDescription([3, 4], F4, [16, 4]),
    "negative": TensorDescription((-3,), F4, (4,)),
    "strides": TensorDescription((3, 4), F4, (4,)),
    "fractions": TensorDescription((1.5,), F4, (4,)),
    "text": TensorDescription((3,), "float32", (4,)),
    "objects": TensorDescription((3,), np.dtype(object), (8,)),
}


def test_a_tensor_fits_into_its_buffer(backend: str):
    with weft.make_transformer(backend) as transformer:
        storage = transformer.device_buffer_storage(48, "mine")
        for allocate in (lambda: None, transformer.initialize):
            allocate()
            for name, place in TOO_LARGE.items():
                with pytest.raises(ArgumentError, match=r"mine has 48 bytes.*larger buffer"):
                    pytest.fail(f"{name}: {storage.device_tensor(place)}")
            for name, given in NO_DESCRIPTION.items():
                with pytest.raises(ArgumentError, match="mine takes a TensorDescription"):
                    pytest.fail(f"{name}: {storage.device_tensor(given)}")
        assert not storage.views
        if not backend.startswith("array-api"):
            for place in FITTING.values():
                tensor = storage.device_tensor(place)
                tensor[...] = np.ones(place.shape)
                assert tensor.get().shape == place.shape
                assert (tensor.get() == 1).all()


def test_nothing_is_left_of_a_closed_transformer(backend: str):
    state = weft.variable((2,), initial_value=[1, 2])
    with weft.make_transformer(backend) as transformer:
        storage, tensor = buffer(transformer)
        late, later = buffer(transformer, "late")
        transformer.initialize()
        tensors = [tensor, later, transformer.state_tensor(state)]
        for each in tensors:
            each[...] = each.get()
        unallocated, waiting = buffer(transformer, "never")
    uses = [use for each in (*tensors, waiting) for use in uses_of(each)]
    uses += [lambda: buffer(transformer), lambda: late.device_tensor(contiguous((2,), F4))]
    uses += [unallocated.allocate_with_views, late.allocate_with_views]
    for number, use in enumerate(uses):
        with pytest.raises(StateError, match="transformer has been closed: make another"):
            pytest.fail(f"use {number}: {use()}")
    assert "not allocated" in repr(storage)
    assert not transformer.device_buffers


def uses_of(tensor: weft.DeviceTensor):
    return [
        tensor.get,
        lambda: tensor.get(np.zeros(tensor.shape, tensor.dtype)),
        lambda: tensor[0],
        lambda: tensor.__setitem__(..., 1),
        lambda: tensor.__setitem__(0, 1),
    ]


class NoCode(weft.NumPyTransformer):
    """A backend that cannot compile while it is told so."""

    fails = True

    def transform_ordered_ops(self, program: weft.Program, ordered_ops: list[Any], name: str):
        if self.fails:
            raise RuntimeError("no code")
        return super().transform_ordered_ops(program, ordered_ops, name)


def test_a_buffer_outlives_a_program_that_cannot_be_compiled():
    x = weft.placeholder((2,))
    with NoCode(cache=False) as transformer:
        mine = buffer(transformer)
        failing = transformer.computation(weft.tanh(x), x)
        with pytest.raises(RuntimeError, match="no code"):
            failing([1, 2])
        assert list(transformer.device_buffers) == list(transformer.unallocated) == [mine[0]]
        transformer.fails = False
        failing([1, 2])
        works(*mine)
        assert not transformer.unallocated


class Doubled(weft.PeepholeGraphPass):
    """Takes twice the constants."""

    @weft.visit.on_type(weft.ops.AddOp)
    def visit(self, op: weft.TensorOp):
        self.replace_op(op, weft.subtract(op.args[0], op.args[1] * -2))


class Own(weft.NumPyTransformer):
    """Builds its list of passes in the constructor, as the document on transformers has it."""

    def __init__(self, passes_of_mine: Any, **options: Any):
        super().__init__(**options)
        self.graph_passes = passes_of_mine


def test_a_constructor_builds_the_list_of_passes():
    x = weft.placeholder((2,))
    with Own([Doubled(), "decompose"]) as own, weft.make_transformer("numpy") as other:
        assert [each.name for each in own.graph_passes] == ["Doubled", "Decompose"]
        assert own.computation(x + 3, x)([1, 2]).tolist() == [7, 8]
        assert other.computation(x + 3, x)([1, 2]).tolist() == [4, 5]
        own.graph_passes = ["decompose"]
        assert own.computation(x + 3, x)([1, 2]).tolist() == [4, 5]
        own.graph_passes.append(Doubled())
        assert own.computation(x + 3, x)([1, 2]).tolist() == [7, 8]


@pytest.mark.parametrize("wrong", [None, "decompose", Doubled(), [Doubled], [3]])
def test_a_list_of_passes_holds_passes(wrong: Any):
    with pytest.raises(ArgumentError, match=r"graph_passes|passes="):
        Own(wrong)


TOO_EARLY = {
    "set": lambda own: setattr(own, "graph_passes", [Doubled()]),
    "extend": lambda own: own.graph_passes.append(Doubled()),
    "register": lambda own: own.register_graph_pass(Doubled()),
    "compile": lambda own: own.computation(weft.constant(1) + 1),
    "initialize": lambda own: own.initialize(),
    "buffer": lambda own: own.device_buffer_storage(8, "early"),
}


@pytest.mark.parametrize("use", TOO_EARLY.values(), ids=TOO_EARLY)
def test_a_constructor_makes_the_transformer_first(use: Callable[..., Any]):
    class Hasty(weft.NumPyTransformer):
        def __init__(self):
            use(self)
            super().__init__()

    with pytest.raises(StateError, match=r"Hasty .*call super\(\).__init__\(\) first"):
        Hasty()


@pytest.mark.parametrize(
    "method",
    [
        "transform_ordered_ops(self, ordered_ops, name)",
        "device_buffer_storage(self, nbytes, dtype, name)",
        "constant_storage(self)",
        "finish_transform(self, more)",
        "_transform_computations(self)",
        "initialize_tensor_descriptions(self)",
        "run_registered_graph_passes(self)",
        "get_value(self)",
    ],
)
def test_a_method_with_other_parameters_is_refused_when_the_class_is_defined(method: str):
    with pytest.raises(BackendError, match="takes other parameters than") as caught:
        exec(f"class Old(weft.NumPyTransformer):\n    def {method}: ...", {"weft": weft})
    assert f"Old.{method}" in str(caught.value)
    assert 'File "<string>", line 1' in str(caught.value)


@pytest.mark.parametrize("values", [([1, 2],), ([1, 2], "computed")], ids=["copied", "both"])
def test_the_computation_of_initial_values_does_not_claim_to_be_pending(
    values: tuple[Any, ...], transformer: weft.Transformer
):
    computed = weft.exp(weft.constant([0.0, 0.0]))
    states = [
        weft.variable((2,), initial_value=computed if value == "computed" else value)
        for value in values
    ]
    transformer.computation([state * 2 for state in states])
    transformer.initialize()
    initial = transformer.init_computation
    assert "not compiled" not in repr(initial)
    assert "initial values are set" in repr(initial)
    initial()
    assert "compiled" in repr(initial)
    assert transformer.get_value(states[0]).tolist() == [1, 2]


def device_buffer(transformer: weft.Transformer, nbytes: int = 48):
    storage = transformer.device_buffer_storage(nbytes, "test")
    assert storage in transformer.device_buffers
    assert not storage.allocated
    assert "not allocated" in repr(storage)
    return storage


def test_device_tensors_copy_to_and_from_numpy(transformer: weft.Transformer):
    storage = device_buffer(transformer)
    tensor = storage.device_tensor(contiguous((3, 4), weft.float32))
    storage.transform_allocate()
    transformer.allocate_storage()
    assert (storage.allocated, storage.bytes, storage.views) == (True, 48, [tensor])
    assert tensor.get().tolist() == np.zeros((3, 4)).tolist()
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor[...] = value
    out = np.empty((3, 4), np.float32)
    assert tensor.get(out) is out
    assert out.tolist() == value.tolist()
    tensor[1, 1:3] = [100, 200]
    assert tensor[1].tolist() == [4, 100, 200, 7]
    assert tensor[:, ::2].tolist() == [[0, 2], [4, 200], [8, 10]]
    kept = tensor.get()
    tensor[...] = 0
    assert kept[1, 1] == 100


def test_views_of_one_buffer_see_each_others_writes(transformer: weft.Transformer):
    storage = device_buffer(transformer)
    whole = contiguous((3, 4), weft.float32)
    turned = whole.slice([(0, 2, 2), (1, 2, 1)]).transpose((1, 0))
    tensor, view = storage.device_tensor(whole), storage.device_tensor(turned)
    storage.transform_allocate()
    transformer.allocate_storage()
    late = storage.device_tensor(turned.slice([(0, 1, 1), (0, 2, 1)]))
    assert (view.shape, view.strides, view.offset) == ((2, 2), (4, 32), 4)
    assert view.dtype == weft.float32
    tensor[...] = np.arange(12).reshape(3, 4)
    assert view.get().tolist() == [[1, 9], [2, 10]]
    assert late.get().tolist() == [[1, 9]]
    view[1] = -1
    assert tensor.get().tolist() == [[0, 1, -1, 3], [4, 5, 6, 7], [8, 9, -1, 11]]
