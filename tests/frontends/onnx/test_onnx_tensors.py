"""Tensors of models, wherever they stand: in the file, sparse, and in files of its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import declared, made, node

import weft_onnx

X = np.ones((2, 3), "float32")
VALUES = np.array([5, 7], "float32")
PLACES = np.array([1, 5], "int64")
DENSE = np.array([[0, 5, 0], [0, 0, 7]], "float32")


def tensor(name: str, array: np.ndarray, location: str | None) -> TensorProto:
    """Return a tensor, whose bytes are at the end of another file if a location is given."""
    found = numpy_helper.from_array(array, name)
    if location is not None:
        found.ClearField("raw_data")
        found.data_location = TensorProto.EXTERNAL
        found.external_data.add(key="location", value=location)
        found.external_data.add(key="offset", value="0" if array is not PLACES else "8")
        found.external_data.add(key="length", value=str(array.nbytes))
    return found


def sparse(values: str | None, places: str | None) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        tensor("w", VALUES, values), tensor("", PLACES, places), [2, 3]
    )


ADD = node("Add", "x w", "y")
INPUTS = [declared("x", [2, 3])]


def initializer(kind: str, location: str) -> onnx.ModelProto:
    model = made([ADD], INPUTS, ["y"])
    if kind == "dense":
        model.graph.initializer.append(tensor("w", VALUES[:1], location))
    else:
        model.graph.sparse_initializer.append(of_kind(kind, location))
    return model


def of_kind(kind: str, location: str):
    if kind == "dense":
        return tensor("w", VALUES[:1], location)
    return sparse(location if kind == "values" else None, location if kind == "places" else None)


def constant(kind: str, location: str) -> onnx.NodeProto:
    name = "value" if kind == "dense" else "sparse_value"
    return node("Constant", "", "w", **{name: of_kind(kind, location)})


def constant_at_the_top(kind: str, location: str) -> onnx.ModelProto:
    return made([constant(kind, location), ADD], INPUTS, ["y"])


def branch_with(inside: onnx.GraphProto) -> onnx.ModelProto:
    nodes = [node("If", "c", "y", then_branch=inside, else_branch=inside)]
    return made(nodes, INPUTS, ["y"], {"c": np.array(True)})


def constant_in_a_branch(kind: str, location: str) -> onnx.ModelProto:
    nodes = [constant(kind, location), ADD]
    return branch_with(helper.make_graph(nodes, "inside", [], [declared("y", None)]))


def initializer_of_a_branch(kind: str, location: str) -> onnx.ModelProto:
    inside = helper.make_graph([ADD], "inside", [], [declared("y", None)])
    if kind == "dense":
        inside.initializer.append(of_kind(kind, location))
    else:
        inside.sparse_initializer.append(of_kind(kind, location))
    return branch_with(inside)


def constant_in_a_branch_of_a_branch(kind: str, location: str) -> onnx.ModelProto:
    inner = constant_in_a_branch(kind, location).graph
    nodes = [node("Constant", "", "c", value=numpy_helper.from_array(np.array(True))), *inner.node]
    return branch_with(helper.make_graph(nodes, "outer", [], [declared("y", None)]))


def with_function(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("own", "Plus", ["x"], ["y"], nodes, opsets)
    model = made([helper.make_node("Plus", ["x"], ["y"], domain="own")], INPUTS, ["y"])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def constant_in_a_function(kind: str, location: str) -> onnx.ModelProto:
    return with_function([constant(kind, location), ADD])


def constant_in_a_branch_of_a_function(kind: str, location: str) -> onnx.ModelProto:
    inner = constant_in_a_branch(kind, location).graph
    truth = node("Constant", "", "c", value=numpy_helper.from_array(np.array(True)))
    return with_function([truth, *inner.node])


def default_of_a_function(kind: str, location: str) -> onnx.ModelProto:
    name = "value" if kind == "dense" else "sparse_value"
    reads = node("Constant", "", "w")
    kinds = onnx.AttributeProto
    reads.attribute.add(
        name=name, ref_attr_name="own",
        type=kinds.TENSOR if kind == "dense" else kinds.SPARSE_TENSOR,
    )  # fmt: skip
    model = with_function([reads, ADD])
    model.functions[0].attribute_proto.append(helper.make_attribute("own", of_kind(kind, location)))
    return model


PLACES_OF_TENSORS: list[Callable[[str, str], onnx.ModelProto]] = [
    initializer, constant_at_the_top, constant_in_a_branch, initializer_of_a_branch,
    constant_in_a_branch_of_a_branch, constant_in_a_function, constant_in_a_branch_of_a_function,
    default_of_a_function,
]  # fmt: skip
KINDS = ("dense", "values", "places")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder for a model; the process is in another, which has other data."""
    found, present = tmp_path / "model", tmp_path / "present"
    for each, factor in ((found, 1), (present, 100)):
        each.mkdir()
        for kind in KINDS:
            (each / f"{kind}.bin").write_bytes(
                b"\0" * 8 + PLACES.tobytes() if kind == "places" else (VALUES * factor).tobytes()
            )
        (each / "places.bin").write_bytes(b"\0" * 8 + PLACES.tobytes())
    (present / "elsewhere.bin").write_bytes(VALUES.tobytes())
    monkeypatch.chdir(present)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", PLACES_OF_TENSORS, ids=lambda make: make.__name__)
def test_external_data_is_that_of_the_models_folder(
    folder: Path, make: Callable[[str, str], onnx.ModelProto], kind: str
) -> None:
    model = make(kind, f"{kind}.bin")
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    expected = X + (5 if kind == "dense" else DENSE)
    for found in (
        weft_onnx.load(path),
        weft_onnx.load(path.read_bytes(), folder=folder),
        weft_onnx.load(model, folder=folder),
    ):
        np.testing.assert_array_equal(found.run({"x": X})["y"], expected)
    for source in (path.read_bytes(), model):
        with pytest.raises(weft_onnx.ModelError, match="load the model by its path, or with"):
            weft_onnx.load(source)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", PLACES_OF_TENSORS, ids=lambda make: make.__name__)
def test_no_other_file_is_opened(
    folder: Path, make: Callable[[str, str], onnx.ModelProto], kind: str
) -> None:
    present = folder.parent / "present"
    os.symlink(present / "elsewhere.bin", folder / "link.bin")
    os.symlink(present, folder / "linked")
    os.symlink("round", folder / "round")
    os.mkfifo(folder / "pipe")
    (folder / "inside").mkdir()
    path = folder / "model.onnx"
    for location in (
        "elsewhere.bin", "../present/elsewhere.bin", "inside/../../present/elsewhere.bin",
        str(present / "elsewhere.bin"), "link.bin", "linked/elsewhere.bin", "round", "pipe",
        "/dev/zero", "inside", ".", "", "elsewhere.bin\0", "n" * 300, "n" * 5000, "a/" * 2000,
    ):  # fmt: skip
        path.write_bytes(make(kind, location).SerializeToString())
        with pytest.raises(weft_onnx.ModelError, match="model's folder") as caught:
            weft_onnx.load(path)
        assert len(str(caught.value)) < 600


def test_a_link_within_the_folder_is_followed(folder: Path) -> None:
    os.symlink("dense.bin", folder / "link.bin")
    path = folder / "model.onnx"
    path.write_bytes(initializer("dense", "link.bin").SerializeToString())
    np.testing.assert_array_equal(weft_onnx.load(path).run({"x": X})["y"], X + 5)


def test_integers_of_four_bits_are_read_from_a_file(folder: Path) -> None:
    model = made(
        [node("Cast", "q", "w", to=TensorProto.FLOAT), ADD], INPUTS, ["y"],
    )  # fmt: skip
    (folder / "q.bin").write_bytes(b"\xe1\x03")
    entry = TensorProto(name="q", dims=[3], data_type=TensorProto.INT4)
    entry.data_location = TensorProto.EXTERNAL
    entry.external_data.add(key="location", value="q.bin")
    model.graph.initializer.append(entry)
    found = weft_onnx.load(model, folder=folder).run({"x": X})
    np.testing.assert_array_equal(found["y"], X + np.array([1, -2, 3]))


SPARSE = {
    "a large array": (lambda t: t.dims.__setitem__(slice(None), [1 << 37]), "allowed for a model"),
    "a huge array": (lambda t: t.dims.__setitem__(slice(None), [1 << 60]), "takes"),
    "a negative length": (lambda t: t.dims.__setitem__(0, -2), "negative length"),
    "an index outside": (
        lambda t: t.indices.CopyFrom(numpy_helper.from_array(np.array([1, 6]))), "outside of",
    ),
    "a negative index": (
        lambda t: t.indices.CopyFrom(numpy_helper.from_array(np.array([-1, 5]))), "outside of",
    ),
    "indices of floats": (
        lambda t: t.indices.CopyFrom(numpy_helper.from_array(np.array([1.0, 5.0]))), "int64",
    ),
    "three indices": (
        lambda t: t.indices.CopyFrom(numpy_helper.from_array(np.array([1, 5, 0]))), "do not fit",
    ),
    "indices in three dimensions": (
        lambda t: t.indices.CopyFrom(numpy_helper.from_array(np.zeros((2, 3), "int64"))),
        "do not fit",
    ),
    "values of two dimensions": (
        lambda t: t.values.CopyFrom(numpy_helper.from_array(np.ones((2, 1), "float32"), "w")),
        "list of values",
    ),
    "an unknown type": (lambda t: setattr(t.values, "data_type", 99), "unknown type 99"),
    "no values": (lambda t: t.ClearField("values"), "no type"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("is_initializer", [True, False])
def test_a_sparse_tensor_that_contradicts_itself_is_refused(
    name: str, is_initializer: bool
) -> None:
    change, message = SPARSE[name]
    made_sparse = sparse(None, None)
    change(made_sparse)
    model = made([ADD], INPUTS, ["y"])
    if is_initializer:
        model.graph.sparse_initializer.append(made_sparse)
    else:
        model = made([node("Constant", "", "w", sparse_value=made_sparse), ADD], INPUTS, ["y"])
        message = f"{message}|contradicts the specification"  # onnx's checker comes first
    with pytest.raises(weft_onnx.ModelError, match=message):
        weft_onnx.load(model).run({"x": X})


def test_sparse_tensors_together_take_no_more_than_the_model_justifies() -> None:
    each = sparse(None, None)
    each.dims[:] = [1 << 12, 1 << 12, 1]  # 64 MiB
    one = made([node("Constant", "", "w", sparse_value=each)], [], ["w"])
    result = weft_onnx.load(one).run({})["w"]
    assert result.shape == (4096, 4096, 1)
    assert result.sum() == 12
    two = made(
        [node("Constant", "", name, sparse_value=each) for name in ("v", "w")], [], ["v", "w"]
    )
    with pytest.raises(weft_onnx.ModelError, match="allowed for a model of"):
        weft_onnx.load(two)
