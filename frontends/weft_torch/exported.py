"""Exported programs: a graph with parameters as named states, and its computation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

import weft
from weft.runtime.computation import Computation
from weft.runtime.transformer import Transformer
from weft_torch.decomposing import decompositions
from weft_torch.graphs import Lowering, require_all, symbols_of
from weft_torch.tensors import as_array, dtype_name


class ProgramGraph(NamedTuple):
    """What an exported program is in weft.

    Attributes
    ----------
    inputs
        The placeholders of a call, by name.
    outputs
        What a call returns, by name, in the order of the flat results; numbers and None are left
        out.
    states
        Parameters and buffers, by the names that the model has for them.
    updates
        Ops that write buffers in each call.
    lengths
        The lengths that the program leaves open, by the names that torch has for them.
    """

    inputs: dict[str, Any]
    outputs: dict[str, Any]
    states: dict[str, Any]
    updates: list[Any]
    lengths: dict[str, Any]


class _ProgramLowering(Lowering):
    """A lowering in which parameters and buffers are states."""

    def __init__(self, program: Any, lengths: Mapping[Any, Any]) -> None:
        super().__init__(program.graph_module, lengths, for_torch=False)
        signature = program.graph_signature
        self.kept = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.lifted = dict(signature.inputs_to_lifted_tensor_constants)
        self.values = {**program.constants, **program.state_dict}
        self.states: dict[str, Any] = {}

    def placeholder(self, fx: torch.fx.Node) -> Any:
        name = self.kept.get(fx.name, self.lifted.get(fx.name))
        if name is None:
            return super().placeholder(fx)
        value = self.values[name]
        if fx.name in self.lifted:
            return weft.constant(as_array(value))
        make = weft.variable if isinstance(value, torch.nn.Parameter) else weft.persistent_tensor
        if name not in self.states:
            dtype, array = dtype_name(value.dtype), as_array(value)
            self.states[name] = make(array.shape, dtype, initial_value=array, name=name)
        return self.states[name]


def graph_of(program: Any, lengths: Mapping[str, int] | None = None) -> ProgramGraph:
    """Return the graph of an exported program, with lengths by name for some that it leaves open.

    Raises UnsupportedOp, which lists all ops that cannot be compiled.
    """
    program = program.run_decompositions(decompositions())
    known = {
        symbol: (lengths or {}).get(str(symbol), length)
        for symbol, length in symbols_of(program.graph_module).items()
    }
    lowering = _ProgramLowering(program, known)
    lowering.run()
    require_all(lowering.refused)
    signature = program.graph_signature
    names = [spec.arg.name for spec in signature.output_specs]
    outputs, updates = {}, []
    for number, (name, result) in enumerate(zip(names, lowering.results, strict=True)):
        if name in signature.buffers_to_mutate:
            updates.append(weft.assign(lowering.states[signature.buffers_to_mutate[name]], result))
        elif isinstance(result, weft.TensorOp):
            outputs[name if name not in outputs else f"{name}_{number}"] = result
    inputs = dict(zip(lowering.names, lowering.parameters, strict=True))
    found = {str(symbol): length for symbol, length in known.items()}
    return ProgramGraph(inputs, outputs, lowering.states, updates, found)


def from_exported(program: Any, backend: str | Transformer | None = None) -> Computation:
    """Return the computation of an exported program; see `weft_torch.from_exported`."""
    graph = graph_of(program)
    made = backend if isinstance(backend, Transformer) else weft.make_transformer(backend)
    results = [*graph.outputs.values(), *graph.updates]
    return made.computation(results, *graph.inputs.values())
