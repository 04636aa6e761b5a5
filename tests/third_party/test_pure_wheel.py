"""The wheel is pure Python: it runs where NumPy is the only package with native modules.

Browsers are such a place. The import system of the program refuses all other native modules.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
from importlib.machinery import ExtensionFileLoader, PathFinder

class OnlyNumPy:
    refused = []

    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target)
        root = name.partition(".")[0]
        if spec and isinstance(spec.loader, ExtensionFileLoader):
            if root != "numpy" and root not in sys.stdlib_module_names:
                self.refused.append(name)
                raise ImportError(f"{name} is a native module")
        return spec

sys.meta_path.insert(0, OnlyNumPy())
sys.path.insert(0, sys.argv[1])
import numpy as np
import weft

x = weft.placeholder((2, 3), name="x")
w = weft.variable((3, 2), initial_value=np.ones((3, 2), np.float32), name="w")
loss = weft.mean(weft.softmax(x @ w) ** 2)
step = weft.doall([loss, weft.assign(w, w - weft.deriv(loss, w))])
with weft.make_transformer("numpy") as transformer:
    train, evaluate = transformer.computation(step, x), transformer.computation(loss, x)
    train(np.ones((2, 3), np.float32))
    value = evaluate(np.ones((2, 3), np.float32))
    if "--functions" in sys.argv:
        weft.jit(lambda x: x + 1)([1, 2])
print(weft.__file__, float(value), OnlyNumPy.refused)
"""


def test_the_wheel_needs_no_native_module_but_those_of_numpy(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", tmp_path], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as content:
        (tags,) = (name for name in content.namelist() if name.endswith(".dist-info/WHEEL"))
        assert re.search(r"^Root-Is-Purelib: true$", content.read(tags).decode(), re.MULTILINE)
        assert not [n for n in content.namelist() if n.endswith((".so", ".pyd", ".dylib", ".a"))]
        content.extractall(unpacked)

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-I", "-c", PROGRAM, unpacked, *options]
        return subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{unpacked / 'weft' / '__init__.py'} 0.25 []\n"
    # What maps functions over trees does need one, and says so.
    done = run("--functions")
    assert done.returncode == 1
    assert "MissingPackage: functions of trees, such as jit, need optree" in done.stderr
