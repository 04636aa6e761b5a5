"""Collects what no import statement names: plugins, their metadata, C sources and templates.

PyInstaller runs this file for a program that imports `weft`.
"""

from __future__ import annotations

from PyInstaller.utils.hooks import collect_data_files, collect_entry_point, collect_submodules

from weft.plugins import GROUPS

LEFT_OUT = ("weft.testing", "weft.cli", "weft.__main__")
"""Tests and commands, which a program rarely has."""


def is_wanted(module: str) -> bool:
    """Whether a module belongs into a program that does not import it by name."""
    return not module.startswith(LEFT_OUT)


datas, hiddenimports = [], []
for group in GROUPS:
    metadata, modules = collect_entry_point(group)
    datas += metadata
    hiddenimports += modules
packages = {"weft", *(module.partition(".")[0] for module in hiddenimports)}
for package in sorted(packages):
    hiddenimports += collect_submodules(package, filter=is_wanted)
    datas += collect_data_files(package)

# A digest of its text is part of what is known of a driver.
module_collection_mode = {"weft_opencl.probe": "pyz+py"}
