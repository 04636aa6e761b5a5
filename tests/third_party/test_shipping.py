"""A program that uses weft, shipped: frozen by PyInstaller, in a zip file, and the wheel alone.

Each runs away from the sources, with a plugin of a third party.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipapp
from pathlib import Path
from typing import Any

import pytest
from installation import PIP_INSTALL, Installation

from weft import plugins

ROOT = Path(__file__).parents[2]
BACKEND = "native" if plugins.backend_status("native").usable else "numpy"
"""The backend that the artifact is for."""

pytestmark = pytest.mark.long

MAKE = """
import os
import sys
import numpy as np
import onnx
import weft

os.chdir(sys.argv[2])
x = weft.placeholder((weft.symbol("n"), 4), name="x")
w = weft.variable((4, 3), initial_value=np.eye(4, 3), name="w")
with weft.make_transformer(sys.argv[1]) as transformer:
    scores = transformer.computation(weft.softmax(x @ w), x, name="scores")
    scores(np.ones((2, 4), np.float32))
    scores.save("scores.weft", states=True)
make = onnx.helper
x, y = (make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy")
graph = make.make_graph([make.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
onnx.save(make.make_model(graph), "abs.onnx")
"""

PROGRAM = """
import json
import os
import sys
from pathlib import Path

import numpy as np
import weft
import weft_onnx

folder = Path(os.environ.get("MODELS") or Path(__file__).parent)
x = weft.placeholder((3,), name="x")
found = {"weft": weft.__file__, "backends": weft.transformer_choices()}
for backend in ("numpy", "toy"):
    computation = weft.make_transformer(backend).computation(x * 2, x)
    found[backend] = computation([1, 2, 3]).tolist()
    if backend == "numpy":
        found["from the cache"] = computation.program.is_restored
scores = weft.load(folder / "scores.weft", trust=True)
found["artifact"] = scores(np.ones((2, 4), np.float32)).tolist()
found["its code is used"] = scores.program.is_restored
found["its backend"] = scores.transformer.transformer_name
model = weft_onnx.load(folder / "abs.onnx").prepare("numpy")
found["onnx"] = model.run({"x": np.array([-1, 2, -3], np.float32)})["y"].tolist()
print(json.dumps(found))
"""

HEAVY = ("scipy", "sklearn", "matplotlib", "dask", "distributed", "pyopencl", "mpi4py", "IPython")
"""Packages of an environment of developers that make freezing long."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of weft."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", folder], cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def models(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an artifact and an ONNX model.

    The code in the artifact is used only where the passes are the same, so with the same plugins.
    """
    for package in ("onnx", "safetensors"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("models")
    installation.output("-c", MAKE, BACKEND, folder, packages=("weft_toy",), WEFT_CACHE="0")
    return folder


def check(command: list[Any], folder: Path, place: str, **variables: str) -> None:
    """Run the program twice, with a cache of its own, and look at what it prints."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    environment["WEFT_CACHE_DIR"] = str(folder / "cache")
    for is_first in (True, False):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        found = json.loads(done.stdout)
        assert place in found.pop("weft")
        assert {"native", "numpy", "toy"} <= set(found.pop("backends"))
        assert found.pop("artifact")[1] == pytest.approx([1 / 3] * 3)
        assert found == {
            "numpy": [2, 4, 6],
            "toy": [2, 4, 6],
            "from the cache": not is_first,
            "its code is used": True,
            "its backend": BACKEND,
            "onnx": [1, 2, 3],
        }


def test_a_program_frozen_into_one_file(
    installation: Installation, models: Path, tmp_path: Path
) -> None:
    pytest.importorskip("PyInstaller")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    data = [f"--add-data={path}{os.pathsep}." for path in models.iterdir() if path.is_file()]
    installation.run(
        *("-m", "PyInstaller", "--onefile", "--log-level=ERROR", f"--distpath={tmp_path / 'dist'}"),
        *(f"--workpath={tmp_path / 'work'}", f"--specpath={tmp_path}", *data),
        *(f"--exclude-module={name}" for name in HEAVY),
        program,
        packages=("weft_toy",),
    ).check_returncode()
    (frozen,) = (tmp_path / "dist").iterdir()
    (tmp_path / "elsewhere").mkdir()
    check([frozen], tmp_path / "elsewhere", "_MEI")


def test_a_program_in_a_zip_file_beside_numpy(
    installation: Installation, wheel: Path, models: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "packed"
    shutil.copytree(installation.folder("weft_toy"), packed)
    subprocess.run([*PIP_INSTALL, "--target", packed, wheel], check=True)
    (packed / "__main__.py").write_text(PROGRAM)
    program = tmp_path / "program.pyz"
    zipapp.create_archive(packed, program, compressed=True)
    shutil.rmtree(packed)
    check([sys.executable, program], tmp_path, program.name, MODELS=str(models))


# The wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, which finds other packages in this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    found = Path(paths["scripts"], Path(sys.executable).name)
    pip = [*PIP_INSTALL[:3], "--python", found, *PIP_INSTALL[3:]]
    subprocess.run([*pip, wheel], check=True)
    Path(paths["purelib"], "others.pth").write_text(sysconfig.get_path("purelib"))
    return found


def output(folder: Path, *command: Any) -> str:
    """Return what a command prints away from the sources; it must succeed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    environment = {**kept, "WEFT_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_is_what_is_imported(python: Path, tmp_path: Path) -> None:
    found = output(tmp_path, python, "-I", "-c", "import weft; print(weft.__file__)")
    assert Path(found).is_relative_to(python.parents[1])


def test_the_wheel_alone_passes_the_quick_part_of_the_kit(python: Path, tmp_path: Path) -> None:
    kit = ("--pyargs", "weft.testing", "--weft-quick", "--weft-backend=numpy", "-q")
    printed = output(tmp_path, python, "-I", "-m", "pytest", "-p", "no:cacheprovider", *kit)
    passed = re.search(r"(\d+) passed", printed)
    assert passed, printed
    assert int(passed[1]) > 100


@pytest.mark.parametrize("command", ["backends", "cache", "doctor", "passes", "plugins"])
def test_commands_of_the_wheel(python: Path, tmp_path: Path, command: str) -> None:
    assert len(output(tmp_path, python.with_name("weft"), command).splitlines()) > 1


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_program_of_a_page_runs_on_the_wheel(
    python: Path, tmp_path: Path, page: str
) -> None:
    code = re.search(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert code
    shown = f"{code[1]}\nprint(value.shape, gradient.shape)"
    assert output(tmp_path, python, "-I", "-c", shown) == "() (3,)\n"
