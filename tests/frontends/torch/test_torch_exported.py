"""Exported programs run on every backend, without torch once they are artifacts."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from needs import skip_without_backend
from torch import Tensor, nn
from torch_models import MODELS, made

import weft
import weft_torch
from weft.runtime.importers import Specialization
from weft.text.printer import labels
from weft_torch.errors import ProgramError, UnsupportedOp
from weft_torch.exported import graph_of
from weft_torch.importer import ProgramImporter, read_program
from weft_torch.tensors import as_array, as_tensor

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Let torch warn of itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield


def exported(model: nn.Module, *args: Tensor, **options: Any) -> Any:
    with torch.no_grad():
        return torch.export.export(model, args, **options)


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", MODELS)
def test_a_program_computes_what_its_model_does(name: str, backend: str) -> None:
    skip_without_backend(backend)
    model, args = made(name)
    run = weft_torch.from_exported(exported(model.eval(), *args), backend)
    (found,) = run(*(each.numpy() for each in args))
    with torch.no_grad():
        np.testing.assert_allclose(found, model(*args).numpy(), 2e-5, 2e-6)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from weft.cli.app import app
"""


def test_artifacts_of_all_models_run_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    commands, expected = [], {}
    for name in MODELS:
        model, args = made(name)
        inputs = [each.numpy() for each in args]
        run = weft_torch.from_exported(exported(model.eval(), *args), "numpy")
        run.save(artifact := tmp_path / f"{name}.weft", states=True)
        (expected[name],) = run(*inputs)
        command = ["run", str(artifact), "--backend", "numpy"]
        command += ["--output", str(tmp_path / f"{name}.npy")]
        for label, array in zip(labels(run.parameters).values(), inputs, strict=True):
            np.save(file := tmp_path / f"{name}-{label}.npy", array)
            command += ["--input", f"{label}={file}"]
        commands.append(f"app({command}, standalone_mode=False)")
    program = "\n".join([WITHOUT_TORCH, *commands])
    subprocess.run([sys.executable, "-c", program], check=True)
    for name, value in expected.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), value)


def test_open_lengths_stay_open() -> None:
    model, _ = made("gpt")
    lengths = {0: torch.export.Dim("batch"), 1: torch.export.Dim("steps", max=32)}
    program = exported(
        model.eval(), torch.zeros(2, 9, dtype=torch.int64), dynamic_shapes=(lengths,)
    )
    run = weft_torch.from_exported(program, "numpy")
    for shape in ((3, 5), (1, 12)):
        tokens = torch.randint(0, 50, shape)
        with torch.no_grad():
            np.testing.assert_allclose(run(tokens.numpy())[0], model(tokens), 2e-5, 2e-6)


class Counting(nn.Module):
    """Adds up what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x
        return self.total * self.scale


def test_parameters_are_states_by_their_names_and_buffers_are_written() -> None:
    model = Counting()
    x = torch.arange(3.0)
    program = exported(model, x)
    assert set(graph_of(program).states) == set(model.state_dict())
    run = weft_torch.from_exported(program, "numpy")
    for _ in range(3):
        np.testing.assert_array_equal(run(x.numpy())[0], model(x).detach())


def saved(tmp_path: Path, model: nn.Module, *args: Tensor, **options: Any) -> Path:
    path = tmp_path / "model.pt2"
    torch.export.save(exported(model, *args, **options), path)
    return path


def test_a_file_is_read_for_the_lengths_of_its_example_or_others(tmp_path: Path) -> None:
    model, args = made("perceptron")
    dims = ({0: torch.export.Dim("batch")},)
    path = saved(tmp_path, model.eval(), *args, dynamic_shapes=dims)
    first = ProgramImporter().specialize(path, None, Specialization())
    (name,) = first.lengths
    assert list(first.inputs) == ["input"]
    assert first.inputs["input"].axes.lengths == (5, 8)
    graph = ProgramImporter().specialize(path, None, Specialization({name: 3}, {}))
    (x,) = graph.inputs.values()
    assert x.axes.lengths == (3, 8)
    with pytest.raises(weft.errors.ArgumentError, match="length other: the program has"):
        ProgramImporter().specialize(path, None, Specialization({"other": 3}, {}))


def test_load_reads_a_program_for_all_lengths_that_it_leaves_open(tmp_path: Path) -> None:
    model, args = made("perceptron")
    dims = ({0: torch.export.Dim("batch")},)
    path = saved(tmp_path, model.eval(), *args, dynamic_shapes=dims)
    run = weft.load(path, "numpy")
    for batch in (1, 7):
        x = torch.randn(batch, 8)
        np.testing.assert_allclose(run(x.numpy())[0], model(x).detach(), 1e-5, 1e-6)
    (name,) = ProgramImporter().specialize(path, None, Specialization()).lengths
    assert weft.load(path, "numpy", lengths={name: 3}).is_static
    with pytest.raises(weft.errors.ArgumentError, match=f"length other: the program has {name}"):
        weft.load(path, lengths={"other": 3})


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 3, 3)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(self.convolution(x))
        return found


def test_a_state_dict_loads_into_a_program_by_names(tmp_path: Path) -> None:
    x = torch.randn(2, 2, 5, 5)
    run = weft.load(saved(tmp_path, Normalized().eval(), x), "numpy")
    other = Normalized()
    other(x)
    names = other.eval().state_dict()
    torch.save(names, tmp_path / "other.pt")
    weft.nn.save_state_dict(tmp_path / "other.safetensors", dict(names))
    for source in (
        torch.load(tmp_path / "other.pt", weights_only=True),
        tmp_path / "other.safetensors",
    ):
        run.transformer.load_states({name: torch.zeros_like(each) for name, each in names.items()})
        assert not run(x.numpy())[0].any()
        run.transformer.load_states(source)
        np.testing.assert_allclose(run(x.numpy())[0], other(x).detach(), 1e-5, 1e-6)
    wrong = {**names, "norm.bias": torch.zeros(4), "more": torch.zeros(1)}
    del wrong["norm.weight"]
    with pytest.raises(weft.errors.CheckpointError) as caught:
        run.transformer.load_states(wrong)
    for line in (
        "norm.weight is missing",
        "more is not a state here",
        "norm.bias is float32 (4,) there, and float32 (3,) here",
    ):
        assert line in str(caught.value)
    sparse = {**names, "norm.bias": torch.zeros(3).to_sparse()}
    with pytest.raises(weft.errors.CheckpointError, match=r"norm\.bias cannot be read as an array"):
        run.transformer.load_states(sparse)
    with pytest.raises(weft.errors.CheckpointError, match=r"torch\.load"):
        run.transformer.load_states(tmp_path / "other.pt")


def test_a_state_dict_of_bfloat16_loads_into_a_program(tmp_path: Path) -> None:
    x = torch.randn(2, 3, dtype=torch.bfloat16)
    run = weft.load(saved(tmp_path, nn.Linear(3, 4).bfloat16(), x), "numpy")
    other = nn.Linear(3, 4).bfloat16()
    run.transformer.load_states(other.state_dict())
    (found,) = run(as_array(x))
    expected = other(x).detach()
    torch.testing.assert_close(as_tensor(found), expected, rtol=2e-2, atol=2e-2)


def rewritten(path: Path, change: Callable[[str, bytes], bytes], **options: Any) -> Path:
    """Write the archive with other contents."""
    copy = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w", **options) as other:
        for part in archive.infolist():
            other.writestr(part.filename, change(part.filename, archive.read(part)))
    return copy


class Harmful:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_sample_inputs_are_not_unpickled(tmp_path: Path) -> None:
    model, args = made("perceptron")
    harm = tmp_path / "harm"
    content = io.BytesIO()
    torch.save((Harmful(harm),), content)

    def change(name: str, old: bytes) -> bytes:
        return content.getvalue() if "sample_inputs" in name else old

    path = rewritten(saved(tmp_path, model.eval(), *args), change)
    assert read_program(path).graph_module is not None
    assert not harm.exists()


def replacing(pattern: str, text: str) -> Callable[[str, bytes], bytes]:
    def change(name: str, old: bytes) -> bytes:
        if not name.endswith(".json"):
            return old
        found = re.sub(pattern, text, old.decode(), count=1)
        json.loads(found)
        return found.encode()

    return change


HOSTILE = {
    "pickle": (r'"use_pickle": false', '"use_pickle": true', "a pickled value"),
    "call": (r'"torch\.ops\.aten\.linear\.default"', '"torch.load"', "calls 'torch.load'"),
    "library": (r"torch\.ops\.aten\.linear\.default", "torch.ops.load_library", "is not an op"),
    "expression": (r"Symbol\('s\d+'[^\"]*\"", "eval('x')\"", "has the expression"),
    "attribute": (r"Symbol\('s\d+'[^\"]*\"", '().__class__"', "has the expression"),
    "import": (
        r'"in_spec": "',
        r'"in_spec": "[1, {\\"\\\\u005f_enum__\\": 1}]", "x": "',
        "to import",
    ),
    "operator": (r'"as_int": 1\b', '"as_operator": "torch.load"', "calls 'torch.load'"),
    "version": (r'"major": \d+', '"major": 99', "cannot load.*Export the model again"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_refused(kind: str, tmp_path: Path) -> None:
    model, args = made("perceptron")
    dims = ({0: torch.export.Dim("batch")},)
    pattern, text, message = HOSTILE[kind]
    path = saved(tmp_path, model.eval(), *args, dynamic_shapes=dims)
    with pytest.raises(ProgramError, match=re.compile(message, re.DOTALL)):
        read_program(rewritten(path, replacing(pattern, text)))


UNPICKLED = {
    "an object": ("data/constants/opaque_obj_0", True),
    "constants of an earlier format": ("data/constants/model.pt", False),
    "weights of an earlier format": ("data/weights/model.pt", False),
}
"""Parts that torch unpickles, and whether the table of constants names the part."""


@pytest.mark.parametrize("kind", UNPICKLED)
def test_parts_that_torch_unpickles_are_refused(kind: str, tmp_path: Path) -> None:
    """torch itself runs what is in them, which shows that the file is what it seems to be."""
    part, is_named = UNPICKLED[kind]
    harm, content = tmp_path / "harm", io.BytesIO()
    if is_named:
        content.write(pickle.dumps(Harmful(harm)) + b"....")
        content.truncate(len(content.getvalue()) // 4 * 4)
    else:
        torch.save({"x": Harmful(harm)}, content)
    device = {"type": "cpu", "index": None}
    meta = {"dtype": 7, "layout": 7, "device": device, "requires_grad": False}
    meta |= {"sizes": [], "strides": [], "storage_offset": {"as_int": 0}}
    value = {"path_name": Path(part).name, "is_param": False, "use_pickle": False}
    table = {"config": {"x": {**value, "tensor_meta": meta}}}

    def change(name: str, old: bytes) -> bytes:
        is_table = is_named and name.endswith("model_constants_config.json")
        return json.dumps(table).encode() if is_table else old

    model, args = made("perceptron")
    path = rewritten(saved(tmp_path, model.eval(), *args), change)
    with zipfile.ZipFile(path, "a") as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/{part}", content.getvalue())
    with pytest.raises(ProgramError, match=r"which is not a tensor|could run any code"):
        read_program(path)
    assert not harm.exists()
    with suppress(Exception):
        torch.export.load(path)
    assert harm.exists()


def test_a_part_that_torch_would_unpickle_is_no_tensor(tmp_path: Path) -> None:
    model, args = made("perceptron")
    change = replacing(r'"path_name": "weight_0"', '"path_name": "opaque_obj_0"')
    with pytest.raises(ProgramError, match="names 'opaque_obj_0', which is not a tensor"):
        read_program(rewritten(saved(tmp_path, model.eval(), *args), change))


def test_files_of_earlier_formats_are_refused(tmp_path: Path) -> None:
    harm, content = tmp_path / "harm", io.BytesIO()
    torch.save({"x": Harmful(harm)}, content)
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "8.8")
        archive.writestr("serialized_state_dict.pt", content.getvalue())
    with pytest.raises(ProgramError, match="could run any code"):
        read_program(path)


def test_files_that_are_no_programs_are_refused(tmp_path: Path) -> None:
    model, args = made("perceptron")
    path = saved(tmp_path, model.eval(), *args)
    squeezed = rewritten(path, lambda _, old: old, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ProgramError, match=r"nothing that torch\.export writes"):
        read_program(squeezed)
    for name in ("../outside", "/tmp/outside", "model/data/weights/../../../outside"):
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, b"")
        with pytest.raises(ProgramError, match=r"outside is nothing that torch\.export writes"):
            read_program(path)
        path = saved(tmp_path, model.eval(), *args)
    (tmp_path / "text.pt2").write_text("hello")
    with pytest.raises(ProgramError, match="not an exported program"):
        read_program(tmp_path / "text.pt2")


def test_ops_without_a_rule_are_listed() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.histogram(x, 4).hist

    with pytest.raises(UnsupportedOp, match=r"histogram\.bin_ct, .*test_torch_exported.py:\d+"):
        weft_torch.from_exported(exported(Model(), torch.randn(4)))
