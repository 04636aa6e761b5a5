"""The cache is where each system keeps the caches of its users."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest
from platformdirs import macos, unix, windows

from weft.cache.store import default_folder

FOLDERS = [
    (unix.Unix, "HOME", ".cache/weft"),
    (unix.Unix, "XDG_CACHE_HOME", "weft"),
    (macos.MacOS, "HOME", "Library/Caches/weft"),
    (windows.Windows, "LOCALAPPDATA", "weft/Cache"),
]


@pytest.mark.parametrize(("system", "variable", "folder"), FOLDERS)
def test_programs_are_kept_in_the_folder_of_the_system(
    system: type, variable: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WEFT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "ä 漢"))
    monkeypatch.setattr(platformdirs, "PlatformDirs", system)
    monkeypatch.setattr(windows, "get_win_folder", windows.get_win_folder_from_env_vars)
    assert default_folder() == tmp_path / "ä 漢" / folder
