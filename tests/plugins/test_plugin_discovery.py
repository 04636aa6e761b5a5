from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plugin_site import Site, backend

from weft import plugins
from weft.errors import PluginError, UnknownPluginError
from weft.plugins.registry import BACKENDS, GROUPS, HOOKS, PASSES, PluginRecord, PluginWarning


def records_of(distribution: str) -> list[PluginRecord]:
    return [record for record in plugins.records() if record.distribution == distribution]


def test_listing_imports_nothing(site: Site) -> None:
    site.install(
        "weft-slow",
        "[weft.backends]\nslow = slow_engine\n[weft.hooks]\nslow = slow_engine\n",
        {"slow_engine": "import time\ntime.sleep(60)\n"},
    )
    assert "slow" in plugins.names(BACKENDS)
    assert {record.group for record in records_of("weft-slow")} == {BACKENDS, HOOKS}
    assert site.imports("slow_engine") == 0


def test_a_record_says_where_a_plugin_comes_from(site: Site) -> None:
    site.install("weft-fast", "[weft.backends]\nfast = fast_engine\n", {})
    assert records_of("weft-fast") == [
        PluginRecord(BACKENDS, "fast", "fast_engine", "weft-fast", "1.0.0", "installed")
    ]


def test_records_are_ordered_and_can_be_had_for_one_group(site: Site) -> None:
    site.install("weft-two", "[weft.passes]\nzz = m\naa = m\n[weft.backends]\nmm = m\n", {})
    assert [record.name for record in records_of("weft-two")] == ["mm", "aa", "zz"]
    assert {record.group for record in plugins.records(PASSES)} == {PASSES}


@pytest.mark.parametrize(
    "ask", [plugins.names, plugins.records, lambda group: plugins.load(group, "numpy")]
)
def test_an_unknown_group_is_refused_with_the_groups_there_are(ask: Callable[..., Any]) -> None:
    with pytest.raises(UnknownPluginError) as caught:
        ask("weft.backend")
    assert all(group in str(caught.value) for group in GROUPS)


def test_a_record_of_a_name_that_two_bring_follows_the_preference(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for distribution in ("weft-left", "weft-right"):
        site.install(distribution, "[weft.backends]\ntwin = anything\n", {})
    monkeypatch.setenv("WEFT_PREFER", "backends:twin=weft-left")
    assert [record.state for record in records_of("weft-left")] == ["installed"]
    (other,) = records_of("weft-right")
    assert other.state == "duplicate"
    assert other.reason == "WEFT_PREFER=backends:twin=weft-left chooses another one."


def test_two_distributions_of_one_name_are_listed_and_refused(site: Site) -> None:
    for distribution in ("weft-left", "weft-right"):
        module = distribution.replace("-", "_")
        site.install(distribution, f"[weft.backends]\ntwin = {module}\n", {module: backend("twin")})
    listed = [record for record in plugins.records(BACKENDS) if record.name == "twin"]
    assert [record.state for record in listed] == ["duplicate", "duplicate"]
    with pytest.raises(PluginError) as caught:
        plugins.load(BACKENDS, "twin")
    for text in (str(caught.value), listed[0].reason, listed[1].reason):
        assert "weft-left 1.0.0" in text
        assert "weft-right 1.0.0" in text
    assert site.imports("weft_left") == site.imports("weft_right") == 0
    status = plugins.backend_status("twin")
    assert status.distribution in {"weft-left and weft-right", "weft-right and weft-left"}


@pytest.mark.parametrize("second_name", ["weft-same", "Weft_Same"])
def test_one_distribution_that_is_there_twice_is_no_duplicate(site: Site, second_name: str) -> None:
    entry_points = "[weft.backends]\nsame = same_engine\n"
    site.install("weft-same", entry_points, {"same_engine": backend("same")})
    site.install(second_name, entry_points, {}, folder="build")
    assert [record.name for record in plugins.records(BACKENDS)].count("same") == 1
    assert plugins.load(BACKENDS, "same").__module__ == "same_engine"


def test_the_same_name_in_two_groups_is_no_duplicate(site: Site) -> None:
    site.install("weft-both", "[weft.backends]\nboth = m\n[weft.passes]\nboth = m\n", {})
    assert [record.state for record in records_of("weft-both")] == ["installed", "installed"]


def test_metadata_that_cannot_be_read_hides_no_other_plugin(site: Site) -> None:
    site.install("weft-good", "[weft.backends]\ngood = good_engine\n", {})
    site.install("weft-broken-metadata", "[weft.backends]\nno equals sign\n", {})
    with pytest.warns(PluginWarning, match="cannot be read"):
        assert "good" in plugins.names(BACKENDS)


def test_broken_metadata_of_a_stranger_is_none_of_our_business(site: Site) -> None:
    site.install("stranger", "[other.group]\nno equals sign\n", {})
    plugins.names(BACKENDS)


@pytest.mark.filterwarnings("ignore:.*no plugin has this name")
@pytest.mark.parametrize(
    ("setting", "disabled"),
    [
        ("off", True),
        ("other, off ,", True),
        ("weft.backends:off", True),
        ("backends:off", True),
        ("passes:off", False),
        ("of", False),
        ("", False),
    ],
)
def test_disabling_acts_before_import(
    site: Site, monkeypatch: pytest.MonkeyPatch, setting: str, disabled: bool
) -> None:
    site.install("weft-off", "[weft.backends]\noff = off_engine\n", {"off_engine": backend("off")})
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", setting)
    assert ("off" in plugins.names(BACKENDS)) is not disabled
    assert records_of("weft-off")[0].state == ("disabled" if disabled else "installed")
    if disabled:
        with pytest.raises(PluginError, match="disabled by WEFT_DISABLE_PLUGINS"):
            plugins.load(BACKENDS, "off")
        assert not plugins.backend_status("off").importable
        assert "WEFT_DISABLE_PLUGINS" in plugins.backend_status("off").usable.reason
        assert site.imports("off_engine") == 0
    else:
        assert plugins.load(BACKENDS, "off").__name__ == "Engine"


def test_an_unknown_name_lists_what_is_installed_and_the_nearest(site: Site) -> None:
    site.install("weft-opal", "[weft.backends]\nopal = opal_engine\n", {})
    with pytest.raises(UnknownPluginError) as caught:
        plugins.load(BACKENDS, "opla")
    assert "named 'opla'. Did you mean 'opal'? Installed: " in str(caught.value)
    with pytest.raises(UnknownPluginError) as caught:
        plugins.load(BACKENDS, "entirely-else")
    assert "Did you mean" not in str(caught.value)
    assert "opal" in str(caught.value)


def test_a_distribution_in_an_archive_is_found(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        info = "weft_packed-1.0.0.dist-info"
        packed.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: weft-packed\nVersion: 3\n"
        )
        packed.writestr(f"{info}/entry_points.txt", "[weft.backends]\npacked = packed_engine\n")
        packed.writestr("packed_engine.py", backend("packed"))
    monkeypatch.syspath_prepend(str(archive))
    assert [record.version for record in records_of("weft-packed")] == ["3"]
    assert plugins.load(BACKENDS, "packed").__module__ == "packed_engine"
    monkeypatch.delitem(sys.modules, "packed_engine")
    # importlib.metadata leaves the archive open; it is not to warn of that in another test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        importlib.invalidate_caches()
        gc.collect()


def test_an_egg_and_a_folder_that_is_not_there(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "eggs" / "weft_egg.egg-info"
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Name: weft-egg\nVersion: 2\n\nName: not this one\n")
    (info / "entry_points.txt").write_text("[weft.passes]\n# a remark\n\negg = egg_pass\n")
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.syspath_prepend(str(tmp_path / "nowhere"))
    assert records_of("weft-egg") == [
        PluginRecord(PASSES, "egg", "egg_pass", "weft-egg", "2", "installed")
    ]


@pytest.mark.parametrize(
    "value", ["inner_engine:Holder.plugin", "inner_engine : Holder.plugin [gpu, fast]"]
)
def test_an_entry_point_may_name_an_object_in_a_module(site: Site, value: str) -> None:
    text = f"import types\n{backend('inner')}\n"
    text += "plugin = types.SimpleNamespace(weft_register_backends=weft_register_backends)\n"
    text += "Holder = types.SimpleNamespace(plugin=plugin)\ndel weft_register_backends\n"
    site.install("weft-inner", f"[weft.backends]\ninner = {value}\n", {"inner_engine": text})
    assert plugins.load(BACKENDS, "inner").__name__ == "Engine"


def test_finding_and_loading_plugins_needs_no_slow_import() -> None:
    script = (
        "import sys, weft; weft.make_transformer('numpy').graph_passes; "
        "print({'importlib.metadata', 'difflib'}.intersection(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
