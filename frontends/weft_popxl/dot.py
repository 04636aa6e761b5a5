"""Graphs of an Ir in the DOT language of Graphviz, with ops as boxes and tensors as edges."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from weft_popxl import dtypes
from weft_popxl.errors import refuse_type


class _Tensor(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> dtypes.dtype: ...


class _Op(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def file_info(self) -> str: ...
    @property
    def inputs(self) -> tuple[_Tensor, ...]: ...
    @property
    def outputs(self) -> tuple[_Tensor, ...]: ...


class _Graph(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def ops(self) -> tuple[_Op, ...]: ...
    @property
    def tensors(self) -> tuple[_Tensor, ...]: ...
    @property
    def outputs(self) -> tuple[_Tensor, ...]: ...


def write_dot(
    graphs: Iterable[_Graph], check: str, folder: str | os.PathLike[str] | None = None
) -> None:
    """Write graphs to a file atomically; creates the folder if needed."""
    try:
        target = Path(folder or ".")
    except TypeError:
        refuse_type(f"dot_checkpoint: save_dir must be a path, not {folder!r}")
    target.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.+-]", "_", check) or "_"
    part = target / f".{name}.{os.getpid()}.part"
    try:
        part.write_text("\n".join(_lines(graphs)) + "\n", encoding="utf-8")
        part.replace(target / f"{name}.dot")
    finally:
        part.unlink(missing_ok=True)


def _lines(graphs: Iterable[_Graph]) -> Iterator[str]:
    yield "digraph {"
    for number, graph in enumerate(graphs):
        yield f"  subgraph cluster_{number} {{"
        yield f"    label={_quoted(graph.id or 'main')};"
        yield from (f"    {line}" for line in _members(graph, f"g{number}"))
        yield "  }"
    yield "}"


def _members(graph: _Graph, prefix: str) -> Iterator[str]:
    """Yield the lines of the ops of a graph, its edges, inputs and outputs."""
    maker: dict[_Tensor, str] = {}
    ops = graph.ops
    made = {tensor for op in ops for tensor in op.outputs}
    for number, tensor in enumerate(each for each in graph.tensors if each not in made):
        maker[tensor] = f"{prefix}_t{number}"
        yield f"{maker[tensor]} [shape=ellipse, label={_quoted(_described(tensor))}];"
    for number, op in enumerate(ops):
        node = f"{prefix}_o{number}"
        yield f"{node} [shape=box, label={_quoted(op.kind)}, tooltip={_quoted(op.file_info)}];"
        for tensor in op.inputs:
            yield f"{maker[tensor]} -> {node} [label={_quoted(_described(tensor))}];"
        maker.update(dict.fromkeys(op.outputs, node))
    for number, tensor in enumerate(graph.outputs):
        node = f"{prefix}_r{number}"
        yield f"{node} [shape=ellipse, label={_quoted('output ' + _described(tensor))}];"
        yield f"{maker[tensor]} -> {node};"


def _described(tensor: _Tensor) -> str:
    lengths = ", ".join(map(str, tensor.shape))
    return f"{tensor.name} {tensor.dtype.name}({lengths})"


def _quoted(text: str) -> str:
    """Return a text as a quoted string of the DOT language; all names of the user are quoted."""
    safe = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{safe}"'
