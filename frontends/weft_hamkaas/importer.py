"""The importer of script files, for `weft run` and other users of importers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import IndexOutOfRange
from weft.runtime.importers import ImportedGraph
from weft_hamkaas.inputs import Inputs
from weft_hamkaas.lowering import lower
from weft_hamkaas.memory import plan_memory
from weft_hamkaas.parser import parse_script
from weft_hamkaas.traversal import evaluation_order


@dataclass(frozen=True, kw_only=True)
class ScriptGraph(ImportedGraph):
    """The graph of a script; it checks its inputs like a model.

    Attributes
    ----------
    wanted
        The declarations of the inputs.
    """

    wanted: Inputs

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """Return the inputs as arrays; raises NodeError for an invalid one."""
        return list(self.wanted.arrays(given))

    def explained(self, error: IndexOutOfRange, arguments: Sequence[Any]) -> IndexOutOfRange:
        """Return the error with the node whose bounds are out of range."""
        return self.wanted.explained(error, arguments)


class ScriptImporter:
    """Reads scripts; the values of ConstantTensors are looked up in the constants by name."""

    suffixes = (".hk", ".hamkaas")

    def read(self, path: Path, constants: Mapping[str, Any] | None) -> ImportedGraph:
        """Return the graph of a script, whose only output is ``result``.

        Without constants the graph can only be planned. Raises ScriptError with line and column,
        and MemoryError with the line.
        """
        node = parse_script(path.read_bytes(), constants, str(path))
        lowered = lower(node)
        return ScriptGraph(
            inputs=lowered.inputs,
            outputs={"result": lowered.result},
            updates=lowered.updates,
            memory=str(plan_memory(node)),
            wanted=Inputs(evaluation_order(node)),
        )
