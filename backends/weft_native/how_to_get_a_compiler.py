"""The command that installs a C compiler on this system, for messages."""

from __future__ import annotations

import platform
import sys

DISTRIBUTIONS = {
    "debian": "apt-get install gcc",
    "ubuntu": "apt-get install gcc",
    "fedora": "dnf install gcc",
    "rhel": "dnf install gcc",
    "suse": "zypper install gcc",
    "arch": "pacman -S gcc",
    "alpine": "apk add gcc musl-dev",
}
"""By families of Linux distributions, as ``/etc/os-release`` names them."""

SYSTEMS = {
    "darwin": "xcode-select --install",
    "win32": "winget install LLVM.LLVM, which needs the Build Tools of Visual Studio",
}
"""By `sys.platform`, for systems that are no Linux."""

OTHERWISE = "gcc or clang, by the package manager of the system"

ZIG = 'pip install "weftc[native-zig]"'
"""The command that works on every system, in double quotes, which every shell takes."""


def how_to_get_a_compiler() -> str:
    """Return the end of a sentence that says how to get a C compiler on this system."""
    command = _of_linux() if sys.platform == "linux" else SYSTEMS.get(sys.platform, OTHERWISE)
    return f"install one ({command}), name one in WEFT_CC, or {ZIG}"


def _of_linux() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return OTHERWISE
    families = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((DISTRIBUTIONS[each] for each in families if each in DISTRIBUTIONS), OTHERWISE)
