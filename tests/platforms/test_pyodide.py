"""weft under Pyodide: with NumPy in Node.js, and in a browser with NumPy and on its GPU."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from threading import Timer

import numpy as np
import pytest
from needs import PYODIDE

pytestmark = [pytest.mark.long, pytest.mark.needs("pyodide")]

SERVER = Path(__file__).parents[2] / "examples" / "browser" / "serve.py"

HOST = """
import fs from "fs";
const [home, packages, program] = process.argv.slice(2);
const { loadPyodide } = await import(home + "/pyodide.mjs");
const python = await loadPyodide({ indexURL: home + "/" });
await python.loadPackage("numpy", { messageCallback: () => {} });
python.unpackArchive(new Uint8Array(fs.readFileSync(packages)), "zip");
await python.runPythonAsync(fs.readFileSync(program, "utf8"));
"""

PROGRAM = """
import sys
import types

import numpy as np

import weft

sys.modules["pytest"] = types.ModuleType("pytest")  # the table only mentions it
from weft.testing.cases import make_cases, run_cases
from weft.testing.table import TABLE

x = weft.placeholder((3,), name="x")
total = weft.variable((3,), initial_value=1, name="total")
with weft.make_transformer("numpy") as transformer:
    add = transformer.computation(weft.sequential([weft.assign(total, total + x), total]), x)
    add([1, 2, 3])
    total = await add.call_async([1, 2, 3])
    rows = [row for row in TABLE if row.dtypes[0] in ("float32", "int32", "bool")]
    rows = [row for row in rows if "arg" in row.name] + rows[::80]
    problems = [
        problem
        for row in rows
        for problem in run_cases(transformer, make_cases(row, row.dtypes[0], True)[:1])
    ]
print()
print(total, len(rows) > 30, problems)
"""


@pytest.mark.needs("node")
def test_the_numpy_backend_in_node(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("serve", SERVER)
    assert spec is not None
    assert spec.loader is not None
    server = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(server)
    (tmp_path / "packages.zip").write_bytes(server.packages())
    (tmp_path / "host.mjs").write_text(HOST)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["node", "host.mjs", PYODIDE, "packages.zip", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    # Some rows print.
    assert done.stdout.splitlines()[-1] == "[3. 5. 7.] True []"


@pytest.mark.needs("browser")
def test_the_example_in_a_browser(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    options = ("--headless=new", "--no-sandbox", "--enable-unsafe-webgpu")
    browser = ["chromium", *options, "--use-webgpu-adapter=swiftshader"]
    command = [sys.executable, SERVER, PYODIDE, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        with subprocess.Popen(
            [*browser, f"--user-data-dir={tmp_path}", url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as shown:
            limit = Timer(300, server.kill)
            limit.start()
            said = []
            for line in server.stdout:
                said.append(line)
                if line.startswith(("done", "failed")):
                    break
            limit.cancel()
            shown.terminate()
        server.terminate()
    assert said[-1] == "done\n", said
    pattern = re.compile(r"(\w+): epoch \d, loss ([\d.]+), held-out accuracy ([\d.]+), .* a step\n")
    found = [each.groups() for line in said if (each := pattern.fullmatch(line))]
    curves = {
        backend: np.array([each[1:] for each in found if each[0] == backend], float)
        for backend in ("numpy", "webgpu")
    }
    assert curves["numpy"].shape == (5, 2)
    assert curves["numpy"][-1, 1] > 0.9
    np.testing.assert_allclose(curves["webgpu"], curves["numpy"], atol=5e-3)
