"""Scripts in files, for `weft run` and whoever else reads a graph from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.importers import ImportedGraph
from weft_hamkaas.lowering import lower
from weft_hamkaas.memory import plan_memory
from weft_hamkaas.parser import parse_script


class ScriptImporter:
    """Reads scripts; each ConstantTensor takes its value from the constants, by name."""

    suffixes = (".hk", ".hamkaas")

    def read(self, path: Path, constants: Mapping[str, Any] | None) -> ImportedGraph:
        """Return the graph of a script, whose only output is ``result``.

        Without constants these are zeros, which is enough to plan. Raises ScriptError, with line
        and column.
        """
        node = parse_script(path.read_bytes(), constants, str(path))
        lowered = lower(node)
        return ImportedGraph(
            inputs=lowered.inputs,
            outputs={"result": lowered.result},
            updates=lowered.updates,
            memory=str(plan_memory(node)),
        )
