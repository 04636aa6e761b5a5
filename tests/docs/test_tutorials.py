"""The tutorials and the how-to pages run, block after block, and their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pages
import pytest
from needs import skip_without
from threadpoolctl import threadpool_limits

import weft

pytestmark = pytest.mark.slow

pytest.importorskip("sklearn")

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted([*DOCS.glob("tutorials/*.md"), *DOCS.glob("howto/*.md")])
LINK = re.compile(r"\]\(([^)#:]*)(?:#([\w-]+))?\)")
CONTINUED = {"transformer.md": "opencl.md"}
"""Which page goes on with the program of another one."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_of_the_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where pages write files
    if page.name in CONTINUED.values():
        pytest.skip("runs with the page that it continues")
    assert pages.BLOCK.search(page.read_text())
    scope: dict[str, object] = {}
    with threadpool_limits(1):  # threads of a BLAS spin, which takes long if tests run side by side
        pages.run(page, scope)
        if continuation := CONTINUED.get(page.name):
            skip_without("opencl")
            pages.run(page.with_name(continuation), scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text())
    assert links, "a page that leads nowhere"
    for path, anchor in links:
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {path}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}
            assert anchor in anchors, f"{page.name} links to {path}#{anchor}"


def test_what_the_pages_call_is_there() -> None:
    """Names in the text as well, such as those in tables of advice."""
    for page in PAGES:
        for name in re.findall(r"`weft\.(\w+)", page.read_text()):
            assert hasattr(weft, name), f"{page.name}: weft.{name}"
