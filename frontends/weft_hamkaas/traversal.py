"""The evaluation order of nodes, and their script."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weft_hamkaas.errors import KindError, NodeError
from weft_hamkaas.nodes import BufferTensor, ConstantTensor, HamKaasNode, InputTensor
from weft_hamkaas.tensors import TensorMeta


@dataclass(frozen=True)
class TraversalResult:
    """A model as text, with the tensors that the text refers to.

    Attributes
    ----------
    script
        The statements, one on each line, and the result.
    constants
        The values of the constants by name, without unknown ones.
    inputs
        The types and shapes of the inputs, by name.
    output
        The type and shape of the result.
    """

    script: str
    constants: dict[str, Any]
    inputs: dict[str, TensorMeta]
    output: TensorMeta


def evaluation_order(root: HamKaasNode) -> list[HamKaasNode]:
    """Return a node after all its operands, which are visited from left to right.

    This is the order of effects: nodes after a replacement see the new elements. Raises
    KindError if the argument is not a node.
    """
    if not isinstance(root, HamKaasNode):
        raise KindError(f"A model is a node, such as InputTensor, not {reprlib.repr(root)}")
    order: dict[HamKaasNode, None] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        missing = [each for each in node.inputs if each not in order] if node not in order else []
        if missing:
            stack.extend(reversed(missing))
        else:
            order.setdefault(stack.pop())
    return list(order)


def traverse_node(node: HamKaasNode) -> TraversalResult:
    """Return the script of a node and its operands, with their tensors.

    Unnamed constants are called ``constant_0`` and so on, in the order of the script. Raises
    NodeError for duplicate names of inputs, constants or buffers, KindError if the argument is
    not a node.
    """
    order = evaluation_order(node)
    names = constant_names(order)
    inputs = named_inputs(order)
    require_different_buffers(order)
    numbers = {each: f"${number}" for number, each in enumerate(order, 1)}
    lines = [f"{numbers[each]} = {_call(each, numbers, names)};\n" for each in order]
    return TraversalResult(
        script="".join([*lines, f"result = {numbers[node]};\n"]),
        constants={name: each.get_tensor() for each, name in names.items() if each.is_known},
        inputs={name: each.meta for name, each in inputs.items()},
        output=node.meta,
    )


def named_inputs(order: Iterable[HamKaasNode]) -> dict[str, InputTensor]:
    """Return the inputs by name; raises NodeError for a duplicate name."""
    found = [node for node in order if isinstance(node, InputTensor)]
    _require_different([node.get_name() for node in found], "input")
    return {node.get_name(): node for node in found}


def require_different_buffers(order: Iterable[HamKaasNode]) -> None:
    """Raise NodeError if two buffers have the same name."""
    _require_different([e.name for e in order if isinstance(e, BufferTensor) and e.name], "buffer")


def constant_names(order: Iterable[HamKaasNode]) -> dict[ConstantTensor, str]:
    """Return the name of each constant, in order; unnamed ones get the next free name.

    The generated name is stored in the constant, but the next traversal may generate another one.
    Raises NodeError for a duplicate name.
    """
    found = [node for node in order if isinstance(node, ConstantTensor)]
    taken = {node.name for node in found if node.name}
    _require_different([node.name for node in found if node.name], "constant")
    number = 0
    names = {}
    for node in found:
        name = node.name
        while name is None:
            candidate = f"constant_{number}"
            number += 1
            if candidate not in taken:
                name = node.last_name = candidate
        names[node] = name
    return names


def _require_different(names: list[str], kind: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise NodeError(f"Multiple {kind} tensors with name {name} were found")
        seen.add(name)


def _call(
    node: HamKaasNode, numbers: dict[HamKaasNode, str], names: dict[ConstantTensor, str]
) -> str:
    """Return the right-hand side of a statement."""
    if isinstance(node, ConstantTensor):
        arguments: list[Any] = [names[node], node.meta.dtype, node.meta.shape]
    else:
        named = isinstance(node, BufferTensor) and node.name
        arguments = [*([named] if named else []), *node.arguments]
        arguments = [numbers.get(e, e) if isinstance(e, HamKaasNode) else e for e in arguments]
    return f"{type(node).__name__}({', '.join(map(str, arguments))})"
