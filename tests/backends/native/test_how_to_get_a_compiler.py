"""A message names the command that installs a compiler on the system that it is shown on."""

from __future__ import annotations

import platform
import sys

import pytest

import weft
from weft.errors import BackendError
from weft_native import compiler
from weft_native.how_to_get_a_compiler import OTHERWISE, ZIG, how_to_get_a_compiler

DEBIAN = {"ID": "debian"}

COMMANDS = [
    ("linux", DEBIAN, "apt-get install gcc"),
    ("linux", {"ID": "ubuntu", "ID_LIKE": "debian"}, "apt-get install gcc"),
    ("linux", {"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt-get install gcc"),
    ("linux", {"ID": "raspbian", "ID_LIKE": "debian"}, "apt-get install gcc"),
    ("linux", {"ID": "fedora"}, "dnf install gcc"),
    ("linux", {"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "dnf install gcc"),
    ("linux", {"ID": "amzn", "ID_LIKE": "fedora"}, "dnf install gcc"),
    ("linux", {"ID": "opensuse-tumbleweed", "ID_LIKE": "opensuse suse"}, "zypper install gcc"),
    ("linux", {"ID": "arch"}, "pacman -S gcc"),
    ("linux", {"ID": "manjaro", "ID_LIKE": "arch"}, "pacman -S gcc"),
    ("linux", {"ID": "alpine"}, "apk add gcc musl-dev"),
    ("linux", {"ID": "nixos"}, OTHERWISE),
    ("linux", {}, OTHERWISE),
    ("linux", None, OTHERWISE),
    ("darwin", DEBIAN, "xcode-select --install"),
    ("win32", None, "winget install LLVM.LLVM"),
    ("freebsd14", None, OTHERWISE),
]


def pretend(monkeypatch: pytest.MonkeyPatch, system: str, release: dict[str, str] | None) -> None:
    def found() -> dict[str, str]:
        if release is None:
            raise OSError("there is no /etc/os-release")
        return release

    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "freedesktop_os_release", found)


@pytest.mark.parametrize(("system", "release", "command"), COMMANDS)
def test_each_system_has_its_command(
    system: str, release: dict[str, str] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, system, release)
    assert how_to_get_a_compiler().startswith(f"install one ({command}")
    assert how_to_get_a_compiler().endswith(f"name one in WEFT_CC, or {ZIG}")


def test_a_machine_without_a_compiler_is_told_its_own(
    monkeypatch: pytest.MonkeyPatch, anew: None
) -> None:
    monkeypatch.delenv("WEFT_CC", raising=False)
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    pretend(monkeypatch, "linux", {"ID": "alpine"})
    with pytest.raises(BackendError, match=r"there is no C compiler: install one \(apk add gcc"):
        weft.make_transformer("native")
