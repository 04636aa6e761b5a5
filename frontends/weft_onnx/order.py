"""The order of the nodes of a graph."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

import onnx

from weft.support.quoting import harmless
from weft_onnx.errors import ModelError


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, also those that graphs inside read from around them."""
    yield from node.input
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            own = _names_inside(graph)
            for each in graph.node:
                yield from (name for name in names_read(each) if name not in own)
            yield from (each.name for each in graph.output if each.name not in own)


def _names_inside(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a graph gives values itself, which may be names around it too."""
    found = {each.name for each in (*graph.input, *graph.initializer)}
    found |= {each.values.name for each in graph.sparse_initializer}
    return found.union(*(node.output for node in graph.node))


def in_order(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes each after those whose results it reads, otherwise as they were.

    Nodes that are in a cycle, or read what is in one, are left out.
    """
    yields = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    missing: list[int] = []
    readers: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        sources = {yields[name] for name in names_read(node) if name in yields}
        missing.append(len(sources))
        for source in sources:
            readers[source].append(index)
    ready = [index for index, count in enumerate(missing) if not count]
    found = []
    while ready:
        index = heapq.heappop(ready)
        found.append(nodes[index])
        for reader in readers[index]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    return found


def require_order(
    graph: onnx.GraphProto, declared: Iterable[str], constants: Iterable[str]
) -> None:
    """Raise ModelError for a cycle, and for a name that nothing or more than one node yields."""
    known = {"", *declared, *constants}
    for node in graph.node:
        twice = [name for name in node.output if name and name in known]
        if twice:
            raise ModelError(f"{harmless(twice[0])} is yielded twice")
        known.update(node.output)
    for node in graph.node:
        for name in node.input:
            if name not in known:
                reader = harmless(node.name or node.op_type)
                raise ModelError(f"node {reader} reads {harmless(name)}, which does not exist")
    done = {name for node in in_order(graph.node) for name in node.output}
    first = next((node for node in graph.node if not done.issuperset(node.output)), None)
    if first is not None:
        raise ModelError(
            f"node {harmless(first.name or first.op_type)} is in a cycle, or reads one"
        )
    for each in graph.output:
        if each.name not in known:
            raise ModelError(f"nothing yields the result {harmless(each.name)}")
