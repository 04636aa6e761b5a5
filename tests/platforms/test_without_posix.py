"""What runs elsewhere runs here without what only POSIX has: modules, functions, and /proc."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft import plugins

pytestmark = pytest.mark.slow

HIDING = Path(__file__).parent / "without_posix"
DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"

USABLE = [name for name in ("numpy", "native") if plugins.backend_status(name).usable]


def run(folder: Path, *arguments: Any) -> str:
    """Return the output of Python in whose processes POSIX is hidden.

    Files for a while are in the same folder, for nothing locks them.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(HIDING),
        "PYTHONUTF8": "1",
        "TMPDIR": str(folder),
        "WEFT_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment, capture_output=True, encoding="utf-8", timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


HIDDEN = """
import importlib, os, signal
from pathlib import Path

for name in ("fcntl", "pwd", "grp", "resource", "termios"):
    try:
        importlib.import_module(name)
    except ImportError:
        continue
    raise AssertionError(f"{name} is there")
for name in ("fork", "register_at_fork", "geteuid", "killpg", "memfd_create", "O_DIRECTORY"):
    assert not hasattr(os, name), name
assert not hasattr(signal, "SIGALRM")
assert not Path("/proc").exists() and not os.path.exists("/sys/fs")
for read in (open, os.open, os.listdir, Path.read_text):
    try:
        read(Path("/proc/cpuinfo"), *((os.O_RDONLY,) if read is os.open else ()))
    except FileNotFoundError:
        continue
    raise AssertionError(read)
"""


def test_they_are_hidden(tmp_path: Path) -> None:
    run(tmp_path, "-c", HIDDEN)


@pytest.mark.parametrize("backend", USABLE)
def test_the_digits_are_learnt(backend: str, tmp_path: Path) -> None:
    for package in ("matplotlib", "safetensors", "sklearn"):
        pytest.importorskip(package)
    out = tmp_path / "out"
    printed = run(tmp_path, DIGITS, "--backend", backend, "--epochs", 6, "--out", out)
    accuracy = re.search(r"^accuracy +(0\.\d+)", printed, flags=re.MULTILINE)
    assert accuracy, printed
    assert float(accuracy[1]) > 0.9
    assert (out / "digits.safetensors").exists()
    assert list(tmp_path.glob("cache/*.weft")), "what was compiled is kept"


@pytest.mark.long
def test_the_doctor_finds_the_same_backends_usable(tmp_path: Path) -> None:
    found = json.loads(run(tmp_path, "-m", "weft", "doctor", "--json"))
    runs = [each["name"] for each in found["backends"] if each.get("runs")]
    assert set(USABLE) <= set(runs)
    assert found["troubles"] == []


EVERY_MODULE = """
import importlib, pkgutil, warnings

warnings.simplefilter("ignore")
for package in ("weft", "weft_passes", "weft_c", "weft_array_api", "weft_numpy", "weft_native",
                "weft_opencl", "weft_onnx", "weft_hamkaas", "weft_popxl"):
    module = importlib.import_module(package)
    for each in pkgutil.walk_packages(module.__path__, f"{package}."):
        if not each.name.endswith("__main__") and ".testing.test_" not in each.name:
            try:
                importlib.import_module(each.name)
            except ModuleNotFoundError as error:
                # That of an extra, such as onnx, may not be installed; what is hidden says so.
                if error.name.startswith("weft") or "hidden" in str(error):
                    raise
print("imported")
"""


def test_every_module_is_imported(tmp_path: Path) -> None:
    assert run(tmp_path, "-c", EVERY_MODULE).splitlines()[-1:] == ["imported"]
