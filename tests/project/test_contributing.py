"""The page for contributors and the hooks for pre-commit name what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text()
WORKFLOW = (ROOT / ".github" / "workflows" / "checks.yml").read_text()
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_links_of_the_pages_at_the_root_lead_to_a_heading() -> None:
    links = [
        (page, *link)
        for page in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
        for link in re.findall(r"\]\(([^)#:]+)(?:#([\w-]+))?\)", (ROOT / page).read_text())
    ]
    assert len(links) > 15
    for page, path, anchor in links:
        assert (ROOT / path).exists(), f"{page} links to {path}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}
            assert anchor in anchors, f"{page} links to {path}#{anchor}"


def test_commands_of_make_are_there() -> None:
    named = set(re.findall(r"`make ([\w-]+)", PAGE))
    commands = "demo fast test test-all test-torch lint types docs support bench"
    assert set(commands.split()) == named
    assert named <= TARGETS


def test_files_that_the_page_names_are_there() -> None:
    named = set(
        re.findall(r"`((?:core|passes|codegen|backends|tests|docs|benchmarks)/[^` ]*)`", PAGE)
    )
    assert len(named) > 15
    to_be_made = {"backends/weft_mine"}
    assert {name for name in named - to_be_made if not (ROOT / name).exists()} == set()


def test_names_of_the_code_that_the_page_gives_are_in_their_files() -> None:
    for name, path in (
        ("DEFAULT_PIPELINE", "core/weft/plugins/entrypoints.py"),
        ("LOADERS", "tests/project/test_arrows.py"),
        ("REFUSALS", "core/weft/testing/table/activation.py"),
        ("WEFT_WRITE_GOLDEN", "tests/passes/test_golden.py"),
        ("known-first-party", "pyproject.toml"),
        ("root_packages", "pyproject.toml"),
    ):
        assert name in PAGE
        assert name in (ROOT / path).read_text(), f"{name} in {path}"


def test_the_hooks_run_what_ci_runs() -> None:
    entries = re.findall(r"^ +entry: make ([\w-]+)$", HOOKS, re.MULTILINE)
    assert entries == ["lint", "types", "fast"]
    assert set(entries) <= TARGETS
    assert HOOKS.count("language: system") == HOOKS.count("- id:") == len(entries)
    assert HOOKS.count("repo: local") == HOOKS.count("- repo:")
    assert "http" not in HOOKS
    ci = (ROOT / ".ci" / "run").read_text()
    assert all(f"make {name}\n" in ci for name in ("lint", "types", "test"))


def test_the_workflow_of_a_public_host_runs_the_same_on_each_system_and_python() -> None:
    assert re.findall(r"run: make (.+)$", WORKFLOW, re.MULTILINE) == ["lint", "types", "test"]
    for system in ("ubuntu", "macos", "windows"):
        assert f"{system}-latest" in WORKFLOW
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    tested = re.findall(r"\"(3\.\d+)\"", WORKFLOW.partition("matrix:")[2])
    assert tested == supported
    assert project["requires-python"] == f">={supported[0]}"


def test_the_workflow_can_neither_publish_nor_read_secrets() -> None:
    assert re.findall(r"permissions:\n((?:  .*\n)+)", WORKFLOW) == ["  contents: read\n"]
    assert "secret" not in WORKFLOW
    assert "http" not in WORKFLOW
