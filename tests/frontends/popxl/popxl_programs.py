"""Programs of one run: what is built is stored, compiled for a backend, and run once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import weft_popxl as popxl
from weft_popxl import ops

Build = Callable[[popxl.Ir], Iterable[popxl.Tensor]]


def stored(tensors: Iterable[popxl.Tensor]) -> list[Any]:
    """Store tensors of the current graph, each to a stream of its own; returns the streams."""
    streams = []
    for tensor in tensors:
        streams.append(popxl.d2h_stream(tensor.shape, tensor.dtype))
        ops.host_store(streams[-1], tensor)
    return streams


def results(backend: str, build: Build, *, in_sequence: bool = False) -> list[np.ndarray]:
    """Return the values of the tensors that a function builds in a new main graph."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence(in_sequence):
        streams = stored(build(ir))
    with popxl.Session(ir, backend) as session:
        found = session.run()
    return [found[stream] for stream in streams]


def called(
    backend: str, graph_of: Callable[..., Any], values: Sequence[Any]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return outputs of a graph, and the gradients of all its float inputs for seeds of ones."""
    count: list[int] = []

    def build(ir: popxl.Ir) -> list[popxl.Tensor]:
        inputs = [popxl.variable(value, name=f"v{n}") for n, value in enumerate(values)]
        graph = ir.create_graph(graph_of, *inputs)
        forward = ops.call_with_info(graph, *inputs)
        info = popxl.transforms.autodiff(graph)
        count.append(len(forward._returned))
        seeds = [
            popxl.constant(np.ones(each.fwd_tensor.shape, each.fwd_tensor.dtype.as_numpy()))
            for each in info.expected_inputs
            if each.connection_type.name == "FwdGrad"
        ]
        gradients = ops.call(info.graph, *seeds, inputs_dict=info.inputs_dict(forward))
        return [*forward._returned, *gradients]

    found = results(backend, build)
    return found[: count[0]], found[count[0] :]


def differences(
    function: Callable[..., float], values: Sequence[np.ndarray], step: float = 1e-6
) -> list[np.ndarray]:
    """Return the central differences of a function of float64 arrays by each of them."""
    found = []
    for number, value in enumerate(values):
        slope = np.zeros(value.shape)
        for place in np.ndindex(*value.shape):
            ends = []
            for sign in (1, -1):
                moved = [np.array(each, np.float64) for each in values]
                moved[number][place] += sign * step
                ends.append(function(*moved))
            slope[place] = (ends[0] - ends[1]) / (2 * step)
        found.append(slope)
    return found
