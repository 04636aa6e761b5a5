"""Saves a computation as an artifact: its graph, constants, states, and the code of its programs.

The graph is what counts: loading compiles it. The generated code is there for a reader who trusts
the file, beside the plan and the source for one who wants to look at them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

import weft
from weft.errors import ArtifactError, ParseError
from weft.ir import scope
from weft.ir.graph import Graph, called_graphs
from weft.ops.control.effects import sequential
from weft.ranks.sharding import shard_axis
from weft.runtime import artifact_files
from weft.runtime.given_lengths import HOW_TO_GIVE
from weft.runtime.safetensors_content import content_of
from weft.support.processor import processor_features
from weft.text.parser import Parsing
from weft.text.printer import Listings, new_names
from weft.transforms.capture import capture
from weft.transforms.state_initializers import initial_constants, initializers_of

if TYPE_CHECKING:
    from weft.runtime.computation import Computation
    from weft.runtime.program import Program


def save(computation: Computation, path: str | os.PathLike[str], states: bool) -> None:
    """Write a computation to a file; see `Computation.save`."""
    import json  # which a program that only computes does not need; so in other functions

    transformer = computation.transformer
    transformer.require_open()
    results = results_of(computation)
    with transformer.state_lock:
        computation.prepare()
        graph = computation.graph
        graphs = {artifact_files.GRAPH: graph, **({} if states else _initial(computation))}
        listings = Listings(graphs.values())
        texts = {part: listings.text(each) for part, each in graphs.items()}
        read = _require_readable(computation.name, texts, listings)
        parts = {name: text.encode() for name, text in texts.items()}
        parts[artifact_files.CONSTANTS] = content_of(listings.constants)
        if states:
            _require_whole(computation.name, graph)
            transformer.require_values(computation.name, graph)
            values = {
                listings.labels[state]: transformer.memory_of(state) for state in graph.states
            }
            parts[artifact_files.STATES] = content_of(values)
        symbols = listings.symbol_names(graph)
        given = computation.arguments.given
        document = {
            "format": artifact_files.FORMAT,
            **facts(transformer),
            "name": computation.name,
            "options": {
                "fast_math": bool(transformer.fast_math),
                "memory_limit": transformer.memory_limit,
            },
            "results": results,
            "given": {symbols[each]: n for each, n in given.items() if each in symbols},
            "ops": _foreign_ops(graphs.values()),
            "programs": {},
        }
        for number, program in enumerate(computation.programs.values()):
            parts |= _program_parts(f"programs/{number}", computation, program, read, document)
    whole = json.dumps(document, indent=1).encode()
    artifact_files.write_parts(path, {artifact_files.DOCUMENT: whole, **parts})


def _foreign_ops(graphs: Iterable[Graph]) -> dict[str, str]:
    """Return the package of each op class that is not weft's."""
    whole = [each for graph in graphs for each in called_graphs(graph, own=True)]
    kinds = {type(op) for graph in whole for op in graph.ops}
    packages = {kind.__name__: kind.__module__.partition(".")[0] for kind in kinds}
    return {name: packages[name] for name in sorted(packages) if packages[name] != "weft"}


def _require_whole(name: str, graph: Graph) -> None:
    """Raise ArtifactError if a state is a shard: a file would have the values of one rank alone."""
    for state in graph.states:
        axis = shard_axis(state)
        if axis is not None:
            problem = f"{name} has shards of {axis.ranks} ranks, and a file the states of one"
            hint = "save it without states=True, and the states by transformer.save_states"
            raise ArtifactError(state.explain(f"{problem}: {hint}"))


def facts(transformer: Any) -> dict[str, Any]:
    """Return the settings that the generated code depends on beside the graph, as JSON."""
    import platform

    return {
        "weft": weft.__version__,
        "backend": transformer.transformer_name,
        "python": f"{sys.implementation.cache_tag} {platform.python_version()}",
        "numpy": np.__version__,
        "processor": sorted(processor_features()),
    }


def results_of(computation: Computation) -> dict[str, Any]:
    """Return the structure of a computation's results as JSON.

    Raises ArtifactError for results by keys that a file cannot hold.
    """
    ops = computation.results
    packed = computation.pack(list(range(len(ops))))
    form = "none" if packed is None else "one" if isinstance(packed, int) else "tuple"
    keys = None
    if isinstance(packed, dict):
        form, keys = "dict", list(packed)
        for key in keys:
            if not isinstance(key, str | int):
                problem = f"has a result under the key {key!r}, and a file holds text and integers"
                raise ArtifactError(f"{computation.name} {problem}: give the results in a list")
    return {"form": form, "keys": keys, "tensors": [op.is_tensor for op in ops]}


def _initial(computation: Computation) -> dict[str, Graph]:
    """Return the graphs of the initial values: of constants, and of what is computed after them."""
    ordered = initializers_of(computation.graph.states, ())
    constants = initial_constants(ordered)
    rest = [op for op in ordered if op.args[0] not in constants]
    graphs = {}
    if constants:
        values: Any = constants.items()
        graphs[artifact_files.INITIAL] = Graph(updates=values, name="initial_constants")
    if rest:
        with scope.saved_user_deps():
            graph = capture([sequential(rest)], (), "initial_computed")
        graphs[artifact_files.COMPUTED] = _solved(computation, graph)
    return graphs


def _solved(computation: Computation, graph: Graph) -> Graph:
    """Return a graph with the lengths that were given; raises ArtifactError if one is missing."""
    given = computation.arguments.given
    unknown = ", ".join(repr(symbol) for symbol in graph.symbols if symbol not in given)
    if unknown:
        raise ArtifactError(
            f"{computation.name} has states whose initial values depend on the lengths {unknown}, "
            f"which only a call tells: {HOW_TO_GIVE}"
        )
    return graph.specialized(given)


def _require_readable(name: str, texts: dict[str, str], listings: Listings) -> Graph:
    """Return the graph as its text says it; raises ArtifactError if that is another one."""
    parsing = Parsing(constants=listings.constants)
    problems = {}
    for part, text in texts.items():
        try:
            problems[part] = parsing.parse(text)
        except ParseError as error:
            problem = f"{name} has an op that cannot be kept as text: {error.problem}"
            raise ArtifactError(
                f"{problem}. Register its class as a plugin's, or replace it"
            ) from None
    again = Listings(problems.values())
    if any(again.text(graph) != texts[part] for part, graph in problems.items()):
        raise ArtifactError(f"{name} has an op whose attributes cannot be kept as text")
    return problems[artifact_files.GRAPH]


def _program_parts(
    folder: str, computation: Computation, program: Program, read: Graph, document: dict[str, Any]
) -> dict[str, bytes]:
    """Return the parts of a compiled program, whose key becomes one of the document's."""
    parts = {
        f"{folder}/plan.txt": str(program.plan).encode(),
        f"{folder}/source.txt": program.source.encode(),
    }
    names = {symbol: str(name) for symbol, name in new_names(computation.graph.symbols).items()}
    known = {str(symbol): symbol for symbol in read.symbols}
    solution = {
        known[names.get(symbol, symbol.name)]: size
        for symbol, size in program.solution.items()
        if names.get(symbol, symbol.name) in known
    }
    packed = computation.transformer.compile_cache.entry_content(program, read, solution)
    if packed is not None:
        key, parts[f"{folder}/code"] = packed
        document["programs"][folder] = key
    return parts
