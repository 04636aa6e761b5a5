"""Places with little: no home, a full disk, one processor, few files, a small stack, other options.

In each a program computes with both backends of processors, and again with what it kept.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from weft import plugins

pytestmark = pytest.mark.slow

if sys.platform != "linux":
    pytest.skip("limits and mounts are those of Linux", allow_module_level=True)

PROGRAM = """
import sys
import numpy as np
import weft

x = weft.placeholder((300, 300), name="größe 漢")
y = x
for _ in range(40):
    y = weft.tanh(y @ x) + x
loss = weft.mean(y)
values = np.full((300, 300), 0.001, np.float32)
with weft.make_transformer(sys.argv[1]) as transformer:
    step = transformer.computation([loss, weft.deriv(loss, x)], x)
    loss, gradient = step(values)
    step.source
print(f"{loss:.6f} {gradient.sum():.3f}", step.program.is_restored)
"""
EXPECTED = "0.001429 2.041"
"""In the end y = 0.3 y + v for v = 0.001, and its derivative by v is 1 / 0.7 ** 2."""

NOT_KEPT = r"CacheWarning: compiled programs (cannot be|are not) kept in "


@dataclass(frozen=True)
class Place:
    """Where a program runs.

    Attributes
    ----------
    shell
        What a shell does before it; ``$FOLDER`` is a folder for it to mount something on.
    options
        Options of Python.
    variables
        Environment variables.
    warning
        What is warned of, once; otherwise nothing is.
    """

    shell: str = ""
    options: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    warning: str = ""

    @property
    def is_mounted(self) -> bool:
        """Whether the shell mounts something."""
        return self.shell.startswith("mount")


def mounted(options: str) -> str:
    return f'mount -t tmpfs -o mode=700,{options} none "$FOLDER"'


PLACES = {
    "as it is": Place(),
    "no home": Place(variables={"HOME": "/dev/null/nobody"}, warning=NOT_KEPT),
    "a user without a name": Place("unset HOME USER LOGNAME"),
    "a full disk for the cache": Place(
        mounted("size=4k"), variables={"WEFT_CACHE_DIR": "$FOLDER/cache"}, warning=NOT_KEPT
    ),
    "a cache that cannot be executed": Place(
        mounted("noexec"), variables={"WEFT_CACHE_DIR": "$FOLDER/cache"}
    ),
    "no folder in which files can be executed": Place(
        mounted("noexec"), variables={"TMPDIR": "$FOLDER"}
    ),
    "one processor": Place(f"taskset -p -c {min(os.sched_getaffinity(0))} $$ >/dev/null"),
    "32 files": Place("ulimit -n 32"),
    "512 KB of stack": Place("ulimit -s 512"),
    "the POSIX locale": Place(
        variables={"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    ),
    "without docstrings and assertions": Place(options=("-OO",)),
    "isolated": Place(options=("-I",)),
    "with checks of the interpreter": Place(options=("-X", "dev")),
}


def run(place: Place, folder: Path, backend: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a place; skips where this system makes no such place."""
    folder.joinpath("mounted").mkdir(exist_ok=True)
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    inherited = ("HOME", "XDG_CACHE_HOME", "WEFT_CACHE_DIR", "TMPDIR", "LC_ALL", "LANG")
    variables = {
        **{name: value for name, value in os.environ.items() if name not in inherited},
        "HOME": str(folder),
        **place.variables,
    }
    where = str(folder / "mounted")
    environment = {name: value.replace("$FOLDER", where) for name, value in variables.items()}
    before = ["unshare", "--map-root-user", "--mount"] if place.is_mounted else []
    shell = [*before, "sh", "-c", f'{place.shell or ":"} && exec "$@"', "sh"]
    environment["FOLDER"] = where
    tried = subprocess.run([*shell, "true"], env=environment, capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"not allowed here: {shlex.quote(place.shell)}")
    return subprocess.run(
        [*shell, sys.executable, *place.options, program, backend],
        cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip


def require(backend: str) -> None:
    usable = plugins.backend_status(backend).usable
    if not usable:
        pytest.skip(str(usable.reason))


@pytest.mark.share(6)
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", PLACES)
def test_a_program_runs(name: str, backend: str, tmp_path: Path) -> None:
    require(backend)
    place = PLACES[name]
    # What is kept on a mounted disk is gone with it.
    is_kept = not place.warning and not place.variables.get("WEFT_CACHE_DIR")
    for is_restored in (False, is_kept):
        done = run(place, tmp_path, backend)
        assert (done.returncode, done.stdout) == (0, f"{EXPECTED} {is_restored}\n"), done.stderr
        warnings = re.findall(r"\w+Warning: .*", done.stderr)
        assert len(warnings) == bool(place.warning), done.stderr
        assert all(re.match(place.warning, each) for each in warnings)


def test_a_full_disk_for_temporary_files_is_said_to_be_full(tmp_path: Path) -> None:
    require("native")
    done = run(Place(mounted("size=24k"), variables={"TMPDIR": "$FOLDER"}), tmp_path, "native")
    assert done.returncode == 1
    said = rf"the disk is full\..* {re.escape(str(tmp_path / 'mounted'))}, where 0\.\d MB are free"
    assert re.search(said, done.stderr), done.stderr
    assert "this is an error of weft" not in done.stderr
