from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_site import Site, backend
from typer.testing import CliRunner, Result

import weft.cli.app
from weft import plugins
from weft.cli import health
from weft.cli.app import app
from weft.plugins.registry import BACKENDS

pytestmark = pytest.mark.slow

DRIVERS = "backends:opencl, backends:cupy"
"""What is left out: asking for devices takes a while, and other tests do."""

PASSES = """
from weft.plugins import hookimpl
from weft import GraphPass

class Tidy(GraphPass):
    '''Tidies the graph up.

    At length.
    '''

    def do_pass(self, graph, target):
        return graph

class Silent(GraphPass):
    def do_pass(self, graph, target):
        return graph

@hookimpl
def weft_register_passes(register):
    register("tidy", Tidy)
    register("silent", Silent)
"""


def weft_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def line_with(text: str, output: str) -> str:
    (line,) = (line for line in output.splitlines() if text in line)
    return line


def disable_all_but(monkeypatch: pytest.MonkeyPatch, *kept: str) -> None:
    others = [name for name in plugins.names(BACKENDS) if name not in kept]
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", ",".join(f"backends:{name}" for name in others))


@pytest.fixture(autouse=True)
def _plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("WEFT_DISABLE_PLUGINS", DRIVERS)


@pytest.fixture
def _some_plugins(site: Site) -> None:
    site.install(
        "weft-gem",
        "[weft.backends]\ngem = gem_engine\nasleep = asleep_engine\nlost = lost_engine\n",
        {
            "gem_engine": backend("gem", "return 'a pretended device', 'its driver is old'"),
            "asleep_engine": backend("asleep", "return None, 'no card: plug one in'"),
            "lost_engine": "import a_missing_driver\n",
        },
        extras=("lost",),
    )
    site.install(
        "weft-tidy",
        "[weft.passes]\ntidy = tidy_passes\nsilent = tidy_passes\nbroken = broken_pass\n",
        {"tidy_passes": PASSES, "broken_pass": "raise ValueError('no [bold]luck[/bold]')\n"},
    )


def test_version_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weft, "__version__", "7.8.9")
    result = weft_command("--version")
    assert (result.exit_code, result.output) == (0, "weft 7.8.9\n")


@pytest.mark.usefixtures("_some_plugins")
def test_backends_says_what_is_usable_and_what_is_missing() -> None:
    result = weft_command("backends")
    assert result.exit_code == 0
    assert "yes" in line_with("a pretended device; its driver is old", result.output)
    assert "asleep" in line_with("no card: plug one in", result.output)
    assert "pip install 'weft-gem[lost]'" in line_with("a_missing_driver", result.output)


@pytest.mark.usefixtures("_some_plugins")
def test_passes_shows_the_first_line_of_each_and_survives_a_broken_one() -> None:
    result = weft_command("passes")
    assert result.exit_code == 0
    assert "weft-tidy" in line_with("Tidies the graph up.", result.output)
    assert "(not documented)" in line_with("silent", result.output)
    assert "no [bold]luck[/bold]" in line_with("broken", result.output)
    assert "At length" not in result.output


def test_passes_says_which_are_patterns_and_which_transforms() -> None:
    output = weft_command("passes").output
    assert "pattern" in line_with("decompose", output)
    assert "transform" in line_with("merge-equal", output)


@pytest.mark.usefixtures("_some_plugins")
def test_plugins_loads_each_and_says_what_came_of_it() -> None:
    result = weft_command("plugins")
    assert result.exit_code == 0
    for expected in ("weft.passes", "weft-tidy", "1.0.0", "failed", "no [bold]luck[/bold]"):
        assert expected in line_with("broken", result.output)
    assert "loaded" in line_with("asleep", result.output)
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("_some_plugins")
def test_plugins_prints_tracebacks_when_asked() -> None:
    output = weft_command("plugins", "--traceback").output
    assert "weft.passes broken\nTraceback (most recent call last):" in output
    assert "raise ValueError('no [bold]luck[/bold]')" in output


@pytest.mark.usefixtures("_some_plugins")
def test_plugins_can_list_without_loading(site: Site) -> None:
    output = weft_command("plugins", "--no-load").output
    assert "installed" in line_with("broken", output)
    assert site.imports("broken_pass") == site.imports("gem_engine") == 0


def test_names_are_shown_as_they_are_and_never_cut_off(site: Site) -> None:
    name = "[red]" + "long-name-" * 30 + "[/red]\x1b[31m"
    site.install("weft-odd", f"[weft.backends]\n{name} = nowhere\n", {})
    output = weft_command("plugins", "--no-load").output
    assert name.replace("\x1b", " ") in line_with("weft-odd", output)
    assert "\x1b" not in output


@pytest.mark.long
@pytest.mark.usefixtures("_some_plugins")
def test_doctor_shows_states_versions_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_BACKEND", "asleep")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OPENBLAS_VERBOSE", "2")
    result = weft_command("doctor")
    assert result.exit_code == 1
    for name in ("python", "numpy", "pluggy", "OPENBLAS_VERBOSE", "WEFT_DISABLE_PLUGINS"):
        assert name in result.output
    rows = [re.findall(r"[^\s│]+", line)[:5] for line in result.output.splitlines()]
    for name, states in {
        "gem": ["yes", "yes", "yes", "yes"],
        "asleep": ["yes", "yes", "no", "no"],
        "lost": ["yes", "no", "no", "no"],
    }.items():
        assert [name, *states] in rows
    assert "half as fast on newer CPUs; unset it" in line_with("OPENBLAS_CORETYPE", result.output)
    assert "this one is not usable" in line_with("WEFT_BACKEND ", result.output)
    assert "no [bold]luck[/bold]" in line_with("weft.passes:broken", result.output)
    assert "no card: plug one in" in line_with("'asleep' would be used", result.output)


@pytest.mark.share(4)
@pytest.mark.usefixtures("_some_plugins")
@pytest.mark.parametrize(
    ("chosen", "exit_code", "trouble"),
    [
        ("gem", 0, ""),
        ("asleep", 1, "no card: plug one in"),
        ("gen", 1, "Did you mean 'gem'?"),
        ("", 1, "Backend 'numpy' is disabled"),
    ],
)
def test_doctor_fails_if_the_backend_in_use_is_not_usable(
    monkeypatch: pytest.MonkeyPatch, chosen: str, exit_code: int, trouble: str
) -> None:
    disable_all_but(monkeypatch, "gem", "asleep")
    monkeypatch.setenv("WEFT_BACKEND", chosen)
    result = weft_command("doctor")
    assert result.exit_code == exit_code
    assert (f"The backend {chosen or 'numpy'!r} would be used" in result.output) is bool(exit_code)
    assert trouble in result.output


def test_the_distribution_of_the_same_name_is_remarked_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not list(health.other_weft())
    folder = tmp_path / "weft-0.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: weft\nVersion: 0.9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (remark,) = health.other_weft()
    assert "the distribution weft 0.9 is installed, which is not this project" in remark
    assert "pip uninstall weft, then pip install --force-reinstall weftc" in remark


def test_doctor_fails_without_the_default_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "WEFT_DISABLE_PLUGINS", f"passes:decompose, hooks:decompose, nowhere, {DRIVERS}"
    )
    result = weft_command("doctor")
    assert result.exit_code == 1
    remarks = line_with("WEFT_DISABLE_PLUGINS ", result.output)
    assert "passes:decompose is part of the default pipeline" in remarks
    assert "no plugin hooks:decompose; there is no plugin nowhere" in remarks
    assert "Pass 'decompose' is disabled" in line_with("pipeline does not work", result.output)


@pytest.mark.usefixtures("_some_plugins")
def test_backends_are_json_for_programs() -> None:
    found = {each["name"]: each for each in json.loads(weft_command("backends", "--json").output)}
    assert found["gem"]["device"] == "a pretended device"
    assert found["gem"]["reason"] == "its driver is old"
    assert found["numpy"]["usable"]
    assert not found["asleep"]["usable"]
    assert not found["asleep"]["broken"]
    assert "no card: plug one in" in found["asleep"]["reason"]


@pytest.mark.usefixtures("_some_plugins")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("passes",), {"name": "tidy", "kind": "transform", "description": "Tidies the graph up."}),
        (("plugins", "--no-load"), {"name": "tidy", "state": "installed"}),
        (("plugins",), {"name": "tidy", "state": "loaded"}),
    ],
)
def test_listings_are_json_for_programs(command: tuple[str, ...], expected: dict[str, str]) -> None:
    rows = json.loads(weft_command(*command, "--json").output)
    (row,) = (each for each in rows if each["name"] == "tidy")
    assert expected.items() <= row.items()


def test_the_cache_is_json_for_programs() -> None:
    found = json.loads(weft_command("cache", "--json").output)
    assert found.keys() == {"folder", "files", "bytes", "limit", "in_use"}


def test_without_a_command_it_prints_its_help() -> None:
    result = weft_command()
    assert result.exit_code == 0
    assert "doctor" in result.output


@pytest.mark.usefixtures("_some_plugins")
def test_the_command_works_as_a_process_of_its_own(tmp_path: Path) -> None:
    paths = [str(tmp_path / "weft-gem"), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", "from weft.cli.app import app; app(prog_name='weft')", "plugins"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    assert "pip install 'weft-gem[lost]'" in line_with("a_missing_driver", done.stdout)
    assert "\x1b" not in done.stdout
