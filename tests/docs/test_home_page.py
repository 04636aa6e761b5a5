"""What newcomers see first: README.md, and the home page of the site."""

from __future__ import annotations

import re
from pathlib import Path

import pages

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HOME = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
ROLES = (
    "I know NumPy, JAX or PyTorch",
    "I have an ONNX model",
    "I write a backend",
    "I want to understand a compiler",
)


def test_the_first_code_of_the_readme_is_a_compiled_gradient() -> None:
    code, _ = pages.BLOCK.findall(README)[0]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 5
    assert "weft.jit(weft.grad(" in code


def test_the_first_screen_of_the_readme_links_where_to_look() -> None:
    assert "(docs/architecture.md#where-to-look)" in "\n".join(README.splitlines()[:40])


def test_the_home_page_leads_by_role_with_link_output_and_picture() -> None:
    for role in ROLES:
        text = HOME.partition(f"\n## {role}\n")[2].partition("\n## ")[0]
        assert re.match(r"\nBegin with \[[^]]+\]\([\w/-]+\.md", text), role
        outputs = [output for _, output in pages.BLOCK.findall(text) if output]
        assert outputs, f"{role}: no output of a program"
        pictures = re.findall(r"!\[[^]]{20,}\]\(([^)]+)\)", text)
        assert pictures, f"{role}: no picture"
        assert all((ROOT / "docs" / path).is_file() for path in pictures)
