"""The command that computes a graph from a file, and how it finds who reads the file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hamkaas_models import floats
from typer.testing import CliRunner

import weft
from weft import plugins
from weft.cli import app
from weft.errors import PluginError
from weft.hookspecs import hookimpl
from weft.importers import ImportedGraph, Importer, importer_for

SCRIPT = """
$1 = InputTensor(x, float32, [2, 3]);
$2 = ConstantTensor(layer.weight, float32, [3, 4]);
$3 = MatMulNode($1, $2);
$4 = ReLUNode($3);
result = $4;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.hk").write_text(SCRIPT)
    np.save(tmp_path / "x.npy", floats(2, 3))
    np.savez(tmp_path / "weights.npz", **{"layer.weight": floats(3, 4)})
    return tmp_path


def run(folder, *arguments):
    """Run the command on files of a folder; returns its status, its output and its errors."""
    known = {path.name for path in folder.iterdir()} | {"y.npy", "y.npz", "y.txt"}

    def named(argument):
        name, equals, path = argument.rpartition("=")
        return f"{name}{equals}{folder / path}" if path in known else argument

    done = CliRunner().invoke(app, ["run", *map(named, arguments)])
    return done.exit_code, done.stdout, done.stderr


WHOLE = ("model.hk", "--input", "x=x.npy", "--constants", "weights.npz")


def test_a_script_is_computed_and_the_result_written(folder, backend):
    status, said, wrong = run(folder, *WHOLE, "--output", "y.npy", "--backend", backend)
    assert (status, said, wrong) == (0, "", "")
    expected = np.maximum(floats(2, 3) @ floats(3, 4), 0)
    np.testing.assert_allclose(np.load(folder / "y.npy"), expected, rtol=1e-5, atol=1e-6)
    assert not list(folder.glob("*.new"))


def test_results_are_printed_or_written_by_name(folder):
    status, said, _ = run(folder, *WHOLE)
    assert status == 0
    assert said.startswith("result: float32[2, 4]\n[[")
    assert run(folder, *WHOLE, "--output", "y.npz")[0] == 0
    with np.load(folder / "y.npz") as found:
        assert list(found) == ["result"]


def test_the_plan_of_a_script_needs_no_values(folder):
    status, said, _ = run(folder, "model.hk", "--plan")
    assert status == 0
    assert "4 nodes: constants 48 bytes, buffers 0 bytes, outputs 512 bytes" in said
    assert "arena" in said
    assert "$3 MatMulNode, $4 ReLUNode" in said


WRONG = {
    "no input": (("model.hk", "--constants", "weights.npz"), "inputs without values: x"),
    "other input": ((*WHOLE, "--input", "z=x.npy"), "--input z="),
    "an input twice": ((*WHOLE, "--input", "x=x.npy"), "once for each input"),
    "no name": (("model.hk", "--constants", "weights.npz", "--input", "x.npy"), "name=file.npy"),
    "no constants": (("model.hk", "--input", "x=x.npy"), "model.hk:3:1: ConstantTensor: the value"),
    "constants of one array": (("model.hk", "--constants", "x.npy"), "in an .npz file"),
    "constants of text": (("model.hk", "--constants", "model.hk"), "no arrays that can be read"),
    "no file": (("missing.hk", "--plan"), "No such file"),
    "no such format": (("x.npy", "--plan"), "No frontend reads files that end in '.npy'"),
    "no such backend": ((*WHOLE, "--backend", "nunpy"), "Did you mean 'numpy'"),
    "result as text": ((*WHOLE, "--output", "y.txt"), "a .npy file takes one result"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_a_line_or_two(folder, name):
    arguments, words = WRONG[name]
    status, said, wrong = run(folder, *arguments)
    assert (status, said) == (1, "")
    assert words in wrong
    assert "Traceback" not in wrong
    assert not list(folder.glob("y.*"))


def test_a_malformed_script_is_refused_with_its_line(folder):
    (folder / "bad.hk").write_bytes(SCRIPT.encode() + b"$9 = \xff;")
    status, _, wrong = run(folder, "bad.hk", "--plan")
    assert status == 1
    assert wrong.rstrip().endswith("bad.hk:7:6: byte 0xff is not text in UTF-8")


@pytest.mark.parametrize("kept", [0, 1, 50, 200])
@pytest.mark.parametrize("name", ["x.npy", "weights.npz"])
def test_files_that_are_cut_off_are_named(folder, name, kept):
    (folder / name).write_bytes((folder / name).read_bytes()[:-50][:kept])
    status, _, wrong = run(folder, *WHOLE)
    assert status == 1
    assert f"{name} holds no arrays that can be read" in wrong
    assert "Traceback" not in wrong


def test_an_input_is_one_array(folder):
    status, _, wrong = run(folder, *WHOLE[:1], "--input", "x=weights.npz", *WHOLE[3:])
    assert status == 1
    assert "holds several arrays" in wrong


def test_nothing_is_unpickled(folder):
    np.save(folder / "x.npy", np.array([print]), allow_pickle=True)
    status, _, wrong = run(folder, *WHOLE)
    assert status == 1
    assert "no arrays that can be read" in wrong


class GemImporter:
    """Reads files that hold a number: twice an input, and the input plus that number."""

    suffixes = (".gem",)

    def read(self, path, constants):
        x = weft.placeholder((2,), name="x")
        counter = weft.persistent_tensor((2,))
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
def test_another_importer_is_found_by_the_suffix_of_its_files(folder):
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


def test_the_importer_of_scripts_is_a_plugin():
    importer = plugins.load(plugins.FRONTENDS, "hamkaas")
    assert isinstance(importer, Importer)
    assert importer_for(Path("a.hk")) is importer
    with pytest.raises(PluginError, match=r"hamkaas: \.hk, \.hamkaas"):
        importer_for(Path("a.nothing"))
