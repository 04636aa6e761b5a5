"""Folders and files may have spaces and letters of any language in their names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from needs import skip_without_backend

pytestmark = pytest.mark.slow

FOLDER = "my folder ä ö 漢"

PROGRAM = """
import os
from pathlib import Path
import numpy as np
import weft
from weft.cache.store import default_folder

backend = os.environ["BACKEND"]
x = weft.placeholder((3, 4), name="x")
w = weft.variable((4, 4), initial_value=np.eye(4), name="w")
y = weft.tanh(x @ w) + 1
ones = np.ones((3, 4), "f4")

transformer = weft.make_transformer(backend)
step = transformer.computation(y, x, name="ein schritt ä 漢")
expected = step(ones)
assert Path(__file__).name in step.source
transformer.save_states("weights ä 漢.safetensors")
transformer.load_states("weights ä 漢.safetensors")
step.save("step ä 漢.weft", states=True)
assert np.array_equal(weft.load("step ä 漢.weft", backend)(ones), expected)
step.report("report ä 漢.html", ones)
if backend == "native":
    step.export_c("exported ä 漢", "step")
if backend == "numpy":
    step.export_source("exported ä 漢.py")
found = default_folder()
if not os.environ.get("WEFT_CACHE_DIR"):
    assert Path.home() in found.parents, found
assert list(found.glob("*.weft")), found
print(os.path.basename(os.getcwd()))
"""


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("variables", [{}, {"WEFT_CACHE_DIR": "kept ä 漢"}], ids=["home", "named"])
def test_a_program_computes_and_writes_in_such_a_folder(
    backend: str, variables: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    skip_without_backend(backend)
    folder = tmp_path / FOLDER
    for name in ("home", "temporary 漢"):
        (folder / name).mkdir(parents=True)
    program = folder / "prögram 漢.py"
    program.write_text(PROGRAM, encoding="utf-8")
    unset = ("WEFT_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA")
    environment = {
        **{name: value for name, value in os.environ.items() if name not in unset},
        "BACKEND": backend,
        "HOME": str(folder / "home"),
        "USERPROFILE": str(folder / "home"),
        "PYTHONIOENCODING": "utf-8",
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder / "temporary 漢")),
        **{name: str(folder / value) for name, value in variables.items()},
        "WEFT_DUMP": str(folder / "graphs ä 漢"),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(program)],
        cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, FOLDER), done.stderr
    written = {path.name for path in folder.iterdir()}
    assert {"weights ä 漢.safetensors", "step ä 漢.weft", "report ä 漢.html"} <= written
    assert list((folder / "graphs ä 漢").iterdir())
    assert list((folder / "temporary 漢").iterdir()) == []


@pytest.mark.needs("compiler", "cc")
def test_exported_c_is_compiled_in_such_a_folder(tmp_path: Path) -> None:
    import weft

    compiler = next(filter(shutil.which, ("gcc", "clang")))
    folder = tmp_path / FOLDER
    x = weft.placeholder((3,), name="größe 漢")
    with weft.make_transformer("native") as transformer:
        computation = transformer.computation(weft.tanh(x), x, name="schritt")
        source, header = computation.export_c(folder)
    assert {source.parent, header.parent} == {folder}
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", source]
    subprocess.run([*command, "-o", folder / "schritt.o"], check=True)


def test_an_onnx_model_and_the_file_of_its_weights_are_read(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    import numpy as np

    import weft_onnx

    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = make.make_model(
        make.make_graph(
            [make.make_node("MatMul", ["x", "w"], ["y"])],
            "produkt ä 漢",
            [make.make_tensor_value_info("x", kind, [2, 3])],
            [make.make_tensor_value_info("y", kind, [2, 4])],
            [onnx.numpy_helper.from_array(weights, "w")],
        )
    )
    path = tmp_path / FOLDER / "mödel 漢.onnx"
    path.parent.mkdir()
    onnx.save(
        model, path, save_as_external_data=True, location="gewichte ä 漢.bin", size_threshold=0
    )
    assert path.with_name("gewichte ä 漢.bin").exists()
    x = np.ones((2, 3), np.float32)
    for given in (path, os.fspath(path)):
        assert np.array_equal(
            weft_onnx.load(given).prepare("numpy").run({"x": x})["y"], x @ weights
        )
