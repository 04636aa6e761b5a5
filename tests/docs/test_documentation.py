"""The documentation is true: its examples run, and it names everything that is public."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import weft
from weft import plugins

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
WITH_TESTS_OF_THEIR_OWN = {"tutorial.md", "plugins.md"}


def modules() -> list[str]:
    found = pkgutil.walk_packages(weft.__path__, "weft.")
    return [module.name for module in found if "test" not in module.name]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert not failed


def test_the_example_of_the_package_runs() -> None:
    failed, attempted = doctest.testmod(weft)
    assert attempted
    assert not failed


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_examples_on_the_page_run(page: Path) -> None:
    if page.name in WITH_TESTS_OF_THEIR_OWN:
        pytest.skip("this page has tests of its own")
    scope: dict[str, object] = {}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, page.name, "exec"), scope)


def test_every_public_op_is_on_the_page_of_ops() -> None:
    text = (ROOT / "docs" / "ops.md").read_text()
    ops = [
        name
        for name in weft.__all__
        if inspect.isfunction(getattr(weft, name))
        and getattr(weft, name).__module__.startswith("weft.ops")
    ]
    assert len(ops) > 80
    assert [name for name in ops if f"`{name}(" not in text and f"`{name}` is" not in text] == []


def test_every_pass_is_on_the_page_of_passes() -> None:
    text = (ROOT / "docs" / "passes.md").read_text()
    names = {record.name for record in plugins.records(plugins.PASSES)}
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_every_environment_variable_is_documented() -> None:
    text = (ROOT / "docs" / "environment.md").read_text()
    sources = [
        path.read_text()
        for folder in ("core", "passes", "backends")
        for path in (ROOT / folder).rglob("*.py")
    ]
    used = {name for source in sources for name in re.findall(r'"(WEFT_[A-Z_]+)"', source)}
    used.discard("WEFT_API")
    assert used, "the search finds nothing, so it tests nothing"
    assert {name for name in used if f"`{name}`" not in text} == set()


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *PAGES]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
