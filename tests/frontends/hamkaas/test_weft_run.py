"""The command that computes a graph from a file, and how it finds who reads the file."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hamkaas_command import SCRIPT, WHOLE, run
from hamkaas_models import floats

import weft
import weft_hamkaas as hk
from weft import plugins
from weft.errors import PluginError
from weft.plugins import hookimpl
from weft.runtime.importers import ImportedGraph, Importer, importer_for


def test_a_script_is_computed_and_the_result_written(folder: Path, backend: str):
    status, said, wrong = run(folder, *WHOLE, "--output", "y.npy", "--backend", backend)
    assert (status, said, wrong) == (0, "", "")
    expected = np.maximum(floats(2, 3) @ floats(3, 4), 0)
    np.testing.assert_allclose(np.load(folder / "y.npy"), expected, rtol=1e-5, atol=1e-6)
    assert not list(folder.glob("*.new"))


def test_results_are_printed_or_written_by_name(folder: Path):
    status, said, _ = run(folder, *WHOLE)
    assert status == 0
    assert said.startswith("result: float32[2, 4]\n[[")
    assert run(folder, *WHOLE, "--output", "y.npz")[0] == 0
    with np.load(folder / "y.npz") as found:
        assert list(found) == ["result"]


def test_the_plan_of_a_script_needs_no_values(folder: Path):
    status, said, _ = run(folder, "model.hk", "--plan")
    assert status == 0
    assert "4 nodes: constants 48 bytes, buffers 0 bytes, outputs 512 bytes" in said
    assert "arena" in said
    assert "$3 MatMulNode, $4 ReLUNode" in said
    assert re.search(r"^kernels +1$", said, re.MULTILINE)


def test_plan_and_steps_are_printed_together(folder: Path):
    status, said, _ = run(folder, "model.hk", "--plan", "--steps", "--backend", "numpy")
    assert status == 0
    assert said.endswith(
        """
steps before fusion    steps after it
    1  MatmulOp            1  matmul_relu
    1  ReluOp              1  in all
    2  in all
"""
    )


WRONG = {
    "no input": (("model.hk", "--constants", "weights.npz"), "Missing input tensor: x"),
    "other input": ((*WHOLE, "--input", "z=x.npy"), "--input z="),
    "an input twice": ((*WHOLE, "--input", "x=x.npy"), "once for each input"),
    "no name": (("model.hk", "--constants", "weights.npz", "--input", "x.npy"), "name=file.npy"),
    "no constants": (("model.hk", "--input", "x=x.npy"), "model.hk:3:1: ConstantTensor: the value"),
    "constants of one array": (("model.hk", "--constants", "x.npy"), "in an .npz file"),
    "constants of text": (("model.hk", "--constants", "model.hk"), "no arrays that can be read"),
    "no file": (("missing.hk", "--plan"), "No such file"),
    "no such format": (("x.npy", "--plan"), "No frontend reads files that end in '.npy'"),
    "no such backend": ((*WHOLE, "--backend", "nunpy"), "Did you mean 'numpy'"),
    "result as text": ((*WHOLE, "--output", "y.txt"), "goes to a .npy file"),
    "result of no format": ((*WHOLE, "--output", "y"), "goes to a .npy file, or to an .npz file"),
    "a folder as result": ((*WHOLE, "--output", "folder.npy"), "that is a folder"),
    "a result in no folder": ((*WHOLE, "--output", "missing/y.npy"), "there is no folder missing"),
    "a folder as input": ((*WHOLE[:1], *WHOLE[3:], "--input", "x=folder.npy"), "Is a directory"),
    "a folder as constants": ((*WHOLE, "--constants", "folder.npy"), "Is a directory"),
    "no file of an input": ((*WHOLE[:1], *WHOLE[3:], "--input", "x="), "name=file.npy"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_a_line_or_two(folder: Path, name: str):
    arguments, words = WRONG[name]
    status, said, wrong = run(folder, *arguments)
    assert (status, said) == (1, "")
    assert words in wrong
    assert "Traceback" not in wrong
    assert not list(folder.glob("y.*"))


def test_a_malformed_script_is_refused_with_its_line(folder: Path):
    (folder / "bad.hk").write_bytes(SCRIPT.encode() + b"$9 = \xff;")
    status, _, wrong = run(folder, "bad.hk", "--plan")
    assert status == 1
    assert wrong.rstrip().endswith("bad.hk:7:6: byte 0xff is not text in UTF-8")


def test_where_a_result_is_to_go_is_looked_at_before_anything_is_computed(folder: Path):
    (folder / "weights.npz").write_bytes(b"nothing")
    status, _, wrong = run(folder, *WHOLE, "--output", "missing/y.npy")
    assert status == 1
    assert wrong == "--output missing/y.npy: there is no folder missing, make it first\n"


@pytest.mark.parametrize("x", [floats(3, 2), floats(6), np.ones((2, 3)), np.ones((2, 3), "i8")])
def test_an_input_that_does_not_fit_is_refused_in_the_words_of_a_model(folder: Path, x: np.ndarray):
    np.save(folder / "x.npy", x)
    weights = {"layer.weight": floats(3, 4)}
    model = hk.HamKaasPlugin("numpy").compile_model(hk.parse_script(SCRIPT, weights))
    with pytest.raises(hk.NodeError) as caught:
        model.evaluate({"x": x})
    assert run(folder, *WHOLE) == (1, "", f"{caught.value.problem}\n")


REPLACING = """
$1 = BufferTensor(kept, float32, [4]);
$2 = InputTensor(new, float32, [1]);
$3 = InputTensor(begin, int64, [1]);
$4 = InputTensor(end, int64, [1]);
$5 = ReplaceSliceNode($1, $2, $3, $4);
result = $5;
"""


def test_bounds_that_are_out_of_range_are_named_by_node_and_line(folder: Path, backend: str):
    (folder / "model.hk").write_text(REPLACING)
    given = {"new": floats(1), "begin": np.array([7]), "end": np.array([8])}
    for name, value in given.items():
        np.save(folder / f"{name}.npy", value)
    named = [word for name in given for word in ("--input", f"{name}={name}.npy")]
    status, _, wrong = run(folder, "model.hk", *named, "--backend", backend)
    assert status == 1
    assert wrong.startswith("ReplaceSliceNode: Elements 7 to 8 of the first axis of [4]")
    assert wrong.rstrip().endswith('model.hk", line 6')


class GemImporter:
    """Reads files that hold a number: twice an input, and the input plus that number."""

    suffixes = (".gem",)

    def read(self, path: Path, constants: dict[Any, Any]):
        x = weft.placeholder((2,), name="x")
        counter = weft.persistent_tensor((2,), initial_value=0)
        return ImportedGraph(
            inputs={"x": x},
            outputs={"twice": x * 2, "more": x + float(path.read_text())},
            updates=weft.assign(counter, counter + 1),
        )


@pytest.fixture
def _gems():
    plugin = SimpleNamespace(
        __name__="gems",
        weft_register_frontends=hookimpl(specname="weft_register_frontends")(
            lambda register: register("gem", GemImporter())
        ),
    )
    plugins.register(plugin)
    yield
    plugins.unregister(plugin)


@pytest.mark.usefixtures("_gems")
def test_another_importer_is_found_by_the_suffix_of_its_files(folder: Path):
    (folder / "three.GEM").write_text("3")
    np.save(folder / "x.npy", floats(2))
    assert isinstance(importer_for(folder / "three.GEM"), GemImporter)
    status, _, _ = run(folder, "three.GEM", "--input", "x=x.npy", "--output", "y.npz")
    assert status == 0
    with np.load(folder / "y.npz") as found:
        np.testing.assert_array_equal(found["twice"], floats(2) * 2)
        np.testing.assert_array_equal(found["more"], floats(2) + 3)
    status, _, wrong = run(folder, "three.GEM", "--input", "x=x.npy", "--output", "y.npy")
    assert status == 1
    assert "there are twice, more" in wrong
    status, _, wrong = run(folder, "three.GEM")
    assert status == 1
    assert "the graph has inputs without values: x\n  x" in wrong


def test_the_importer_of_scripts_is_a_plugin():
    importer = plugins.load(plugins.FRONTENDS, "hamkaas")
    assert isinstance(importer, Importer)
    assert importer_for(Path("a.hk")) is importer
    with pytest.raises(PluginError, match=r"hamkaas: \.hk, \.hamkaas"):
        importer_for(Path("a.nothing"))
