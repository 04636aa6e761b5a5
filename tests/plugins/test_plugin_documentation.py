from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from weft import plugins
from weft.cli.app import app
from weft.plugins import hookspecs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")

HOOKS = [name for name in vars(hookspecs) if name.startswith("weft_")]
COMMANDS = [f"weft {command.name}" for command in app.registered_commands]
VARIABLES = ["WEFT_DISABLE_PLUGINS", "WEFT_PREFER", "WEFT_PASSES", "WEFT_BACKEND", "WEFT_API"]


@pytest.mark.parametrize("name", [*HOOKS, *plugins.GROUPS, *plugins.__all__, *COMMANDS, *VARIABLES])
def test_the_page_names_everything_that_is_public(name: str) -> None:
    assert re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", PAGE)


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
def test_the_examples_run(block: str) -> None:
    if "weft.passes" in block and importlib.util.find_spec("weft.passes") is None:
        pytest.skip("weft.passes is not installed")
    exec(compile(block, "docs/plugins.md", "exec"), {"__name__": "documented"})
