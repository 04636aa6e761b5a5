"""The correspondence of a gradient graph's inputs and outputs to tensors of the forward graph."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft_popxl.errors import refuse_type
from weft_popxl.ops.call import CallSiteInfo
from weft_popxl.ops.elementwise import add
from weft_popxl.ops.repeat import RepeatInfo
from weft_popxl.program import Graph, Tensor

__all__ = ["ExpectedConnection", "ExpectedConnectionType", "GradGraphInfo", "Known"]


class ExpectedConnectionType(enum.Enum):
    """The kind of a gradient graph's input or output: a forward value or a gradient."""

    Fwd = "Fwd"
    FwdGrad = "FwdGrad"


@dataclass(frozen=True)
class ExpectedConnection:
    """The meaning of an input or output of a gradient graph.

    Attributes
    ----------
    connection_type
        Whether it is the value of a forward tensor (Fwd) or the gradient of one (FwdGrad).
    fwd_tensor
        An input or output of the forward graph.
    """

    connection_type: ExpectedConnectionType
    fwd_tensor: Tensor

    def __repr__(self) -> str:
        return f"({self.connection_type.name}, {self.fwd_tensor!r})"


@dataclass(frozen=True, eq=False, repr=False)
class GradGraphInfo:
    """A gradient graph with the meanings of its inputs and outputs, created by `autodiff`.

    Attributes
    ----------
    graph
        The gradient graph. Its inputs are the gradients of outputs, then values of the forward
        graph; its outputs are the gradients of inputs.
    forward_graph
        The graph that was differentiated.
    expected_inputs, expected_outputs
        The meanings of the inputs and outputs, in order.
    """

    graph: Graph
    forward_graph: Graph
    expected_inputs: tuple[ExpectedConnection, ...]
    expected_outputs: tuple[ExpectedConnection, ...]
    _core: Any = field()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The forward tensors of the inputs."""
        return tuple(each.fwd_tensor for each in self.expected_inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The forward tensors of the outputs."""
        return tuple(each.fwd_tensor for each in self.expected_outputs)

    def inputs_dict(self, fwd_call_info: CallSiteInfo) -> dict[Tensor, Tensor]:
        """Return the forward values for a call of the gradient graph, by its input.

        They are passed after the gradients of the outputs. Raises TypeError for a call of another
        graph.
        """
        self._require(fwd_call_info, self.forward_graph)
        return {
            own: fwd_call_info.graph_to_parent(expected.fwd_tensor)
            for own, expected in zip(self.graph.inputs, self.expected_inputs, strict=True)
            if expected.connection_type is ExpectedConnectionType.Fwd
        }

    def fwd_graph_ins_to_grad_parent_outs(
        self, grad_call_info: CallSiteInfo
    ) -> dict[Tensor, Tensor]:
        """Return the gradients in a call of `graph`, by input of the forward graph.

        Raises TypeError for a call of another graph.
        """
        self._require(grad_call_info, self.graph)
        return dict(zip(self.outputs, grad_call_info.outputs, strict=False))

    def fwd_parent_ins_to_grad_parent_outs(
        self, fwd_call_info: CallSiteInfo, grad_call_info: CallSiteInfo
    ) -> dict[Tensor, Tensor]:
        """Return the gradients of a forward call's inputs; those of repeated inputs are summed.

        The sum is built in the graph of the gradient call, whichever graph is open. Raises
        TypeError for a call of another graph.
        """
        self._require(fwd_call_info, self.forward_graph)
        places = {tensor: n for n, tensor in enumerate(self.forward_graph.inputs)}
        found: dict[Tensor, Tensor] = {}
        for inner, gradient in self.fwd_graph_ins_to_grad_parent_outs(grad_call_info).items():
            outer = fwd_call_info.inputs[places[inner]]
            if outer in found:
                with grad_call_info.graph:
                    gradient = add(found[outer], gradient)
            found[outer] = gradient
        return found

    def _require(self, info: Any, graph: Graph) -> None:
        plain = isinstance(info, CallSiteInfo) and not isinstance(info, RepeatInfo)
        if not plain or info.called_graph is not graph:
            refuse_type(
                "The called graph does not match the graph that was differentiated. This takes a "
                f"call of {graph}, not {info!r}"
            )

    def __repr__(self) -> str:
        return (
            f"GradGraphInfo[\n  graph={self.graph}\n  expected_inputs={list(self.expected_inputs)}"
            f"\n  expected_outputs={list(self.expected_outputs)}\n]"
        )


Known = Mapping[Graph, GradGraphInfo]
