"""Installs the packages beside this file with pip, and runs Python where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent
PIP_INSTALL = (
    *(sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--no-compile"),
    *("--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"),
)


class Installation:
    """A folder for each package that was installed, so that any of them can be put together."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.elsewhere = root / "elsewhere"
        self.elsewhere.mkdir()

    def source(self, package: str) -> Path:
        """Return a copy of a package's source, in which building it may leave files."""
        copy = self.root / "sources" / package
        return copy if copy.exists() else shutil.copytree(SOURCES / package, copy)

    def folder(self, package: str) -> Path:
        """Return where a package is installed, which this does the first time."""
        folder = self.root / "installed" / package
        if not folder.exists():
            command = [*PIP_INSTALL, "--target", folder, self.source(package)]
            subprocess.run(command, check=True)
        return folder

    def run(
        self, *arguments: str | Path, packages: tuple[str, ...], **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with some packages on its path, away from their sources."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        path = os.pathsep.join(str(self.folder(package)) for package in packages)
        return subprocess.run(
            [sys.executable, *arguments],
            env={**kept, "PYTHONPATH": path, **variables},
            cwd=self.elsewhere,
            capture_output=True,
            text=True,
        )

    def output(self, *arguments: str | Path, packages: tuple[str, ...], **variables: str) -> str:
        """Return what Python prints; it must succeed and print nothing to stderr."""
        done = self.run("-W", "error", *arguments, packages=packages, **variables)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout
