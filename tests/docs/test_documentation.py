"""The documentation is true: its examples run, and it names everything that is public."""

import importlib
import json
import pkgutil
import re
import runpy
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from pathlib import Path

import pages
import pytest

import weft
import weft_array_api.rules
import weft_c
import weft_numpy.rules
from weft import plugins
from weft.ir.op import op_classes
from weft.plugins.entrypoints import OWN
from weft.testing.table import TABLE

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.DOTALL | re.MULTILINE)
ROOMS = ("weft.ops.", "weft.linalg.", "weft.nn.", "weft.ranks.", "weft.train.")
WITH_TESTS_OF_THEIR_OWN = {"tutorial.md", "plugins.md", "torch.md"}
NEEDS = {
    "backends.md": ("compiler", "opencl"),
    "extending.md": ("compiler", "opencl"),
    "native.md": ("compiler",),
}
"""What the examples on a page need."""


@pytest.fixture
def _no_rules_are_left() -> Iterator[None]:
    """Take rules back that examples add, for later tests have no names for them."""
    tables = [weft_numpy.rules.rules, weft_array_api.rules.rules, weft_c.rules]
    before = [set(table) for table in tables]
    yield
    for table, kinds in zip(tables, before, strict=True):
        for kind in set(table) - kinds:
            del table._rules[kind]


@pytest.mark.usefixtures("_no_rules_are_left", "fresh_names")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.needs(*NEEDS.get(page.name, ())))
        for page in [ROOT / "README.md", *PAGES]
    ],
    ids=lambda page: page.name,
)
def test_examples_on_the_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where examples may write files
    if page.name in WITH_TESTS_OF_THEIR_OWN:
        pytest.skip("this page has tests of its own")
    pages.run(page)


def test_every_primitive_is_on_the_page_of_primitives() -> None:
    text = (ROOT / "docs" / "primitives.md").read_text()
    own = [kind for kind in op_classes.values() if kind.__module__.startswith(ROOMS)]
    leaves = [
        kind
        for kind in own
        if issubclass(kind, weft.TensorOp)
        and not issubclass(kind, weft.CompositeOp)
        and not any(other is not kind and issubclass(other, kind) for other in own)
    ]
    not_computed = {"AssignableTensorOp", "ReadOp", "ParameterOp", "ResultOp"}
    not_computed |= {"AfterOp", "SavedOp"}  # capture resolves them
    primitives = {kind.__name__ for kind in leaves} - not_computed
    assert 40 < len(primitives) < 80
    assert {name for name in primitives if f"`{name}`" not in text} == set()
    listed = set(re.findall(r"`(\w+Op)`", text))
    assert listed - primitives <= {"IdentityOp", "EffectOp", "HostOp", "CommunicationOp"}, (
        "the page lists what is not a primitive"
    )


def test_the_page_of_ops_is_what_its_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "tools" / "catalog.py"))
    assert families() - {f"weft.{name}" for name in script["FAMILIES"]} == set()
    assert (ROOT / "docs" / "ops.md").read_text() == script["page"](), "run: make docs"


def test_the_page_of_support_covers_every_function_and_nothing_fails() -> None:
    found = json.loads((ROOT / "docs" / "support.json").read_text())
    assert set(found["backends"]) == {"numpy", "native", "array-api-strict", "opencl"}
    assert found["failures"] == []
    tested = {attrgetter(row.function)(weft) for row in TABLE}
    listed = {attrgetter(name)(weft) for name in found["functions"]}
    assert {function.__name__ for function in tested - listed} == set(), "run: make support"


def families() -> set[str]:
    """Return the names of the modules that have public functions or op classes."""
    rooms = (weft.ops, weft.nn, weft.ranks, weft.train)
    below = (pkgutil.walk_packages(room.__path__, f"{room.__name__}.") for room in rooms)
    names = [each.name for each in chain.from_iterable(below) if not each.ispkg]
    return {name for name in names if getattr(importlib.import_module(name), "__all__", None)}


def test_every_pass_is_on_the_page_of_passes() -> None:
    text = (ROOT / "docs" / "passes.md").read_text()
    records = plugins.records(plugins.PASSES)
    names = {record.name for record in records if record.distribution == OWN}
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_the_page_of_environment_variables_lists_the_settings() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "tools" / "environment.py"))
    page = (ROOT / "docs" / "environment.md").read_text()
    assert page == script["page"](), "run: make docs"


def test_a_variable_is_read_by_its_setting_alone() -> None:
    sources = [
        path
        for folder in ("core", "passes", "codegen", "backends", "frontends", "communicators")
        for path in (ROOT / folder).rglob("*.py")
    ]
    reads = re.compile(r"""(?:environ(?:\.get)?|getenv)[\[(]\s*["']WEFT_""")
    assert [path for path in sources if reads.search(path.read_text())] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *PAGES]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_index_of_the_site_names_every_page_once() -> None:
    lines = "".join(TOCTREE.findall((ROOT / "docs" / "index.md").read_text())).splitlines()
    named = [
        page
        for line in lines
        if line and not line.startswith((":", "generated/"))
        for page in sorted((ROOT / "docs").glob(f"{line}.md")) or [ROOT / "docs" / f"{line}.md"]
    ]
    pages = {path for path in (ROOT / "docs").rglob("*.md") if path.name != "index.md"}
    pages = {path for path in pages if not path.is_relative_to(ROOT / "docs" / "generated")}
    assert {path.name for path in pages - set(named)} == set(), "name them in docs/index.md"
    assert len(named) == len(pages), "it names a page twice, or one that is not there"


def test_pages_of_the_site_that_show_files_of_the_repository_have_theirs() -> None:
    pytest.importorskip("docutils")
    script = runpy.run_path(str(ROOT / "docs" / "extensions" / "repository_files.py"))
    for name, page in script["PAGES"].items():
        assert (ROOT / name).is_file()
        assert (ROOT / "docs" / f"{page}.md").is_file()


def test_the_inventories_of_the_site_are_what_their_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "tools" / "inventories.py"))
    for name, text in script["inventories"]().items():
        assert (ROOT / "docs" / "inventories" / name).read_text() == text, "run: make docs"


def test_every_decision_has_a_date_a_status_and_a_refused_alternative() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    numbers = re.findall(r"^(\d+)\. ", text, re.MULTILINE)
    status = r"(?:accepted|amended \d{4}-\d\d-\d\d|superseded by \d+)"
    ends = re.findall(rf"^ +\*\d{{4}}-\d\d-\d\d, {status}\. Refused: .+\.\*$", text, re.MULTILINE)
    assert len(numbers) == len(set(numbers)) == len(ends) > 100
