"""Write the table of ATen ops with rules into docs/torch.md.

It needs torch. Run it from the root: ``python docs/tools/torch_ops.py``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

PAGE = Path(__file__).parents[1] / "torch.md"
MARKS = re.compile(r"(<!-- written by docs/tools/torch_ops.py -->\n).*(<!-- end -->)", re.DOTALL)


def table() -> str:
    """Return the table: for each family the names of its ops."""
    from weft_torch import lowering
    from weft_torch.rules import RULES

    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(RULES):
        families[RULES[name].family].append(f"`{name}`")
    lines = [f"{len(RULES)} names, by family:", "", "| family | ops |", "| --- | --- |"]
    for family in lowering.__all__:
        title = family.replace("_", " ")
        lines.append(f"| {title} | {', '.join(families[family])} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the page with the table of today."""
    return MARKS.sub(
        lambda found: f"{found[1]}\n{table()}\n{found[2]}", PAGE.read_text(encoding="utf-8")
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
