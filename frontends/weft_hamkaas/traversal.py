"""From nodes to a script, and to the order in which they are evaluated."""

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
    """A model as text, and what the text does not hold.

    Attributes
    ----------
    script
        The statements, a line each, and the node whose value is the result.
    constants
        The values of the constants, by name; those of a script that was read without are missing.
    inputs
        What an evaluation is given, by name.
    output
        What an evaluation returns.
    """

    script: str
    constants: dict[str, Any]
    inputs: dict[str, TensorMeta]
    output: TensorMeta


def evaluation_order(root: HamKaasNode) -> list[HamKaasNode]:
    """Return what a node needs and, last, the node; inputs come first, from left to right.

    This is the order of effects: what comes after a replacement sees the new elements. Raises
    KindError for what is no node.
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
    """Return the script of a node and of all it needs, with what is to be known of its tensors.

    Constants without a name are called ``constant_0`` and so on, in the order of the script. Raises
    NodeError for two inputs, constants or buffers of one name, KindError for what is no node.
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
    """Return the inputs by name; raises NodeError if two have the same one."""
    found = [node for node in order if isinstance(node, InputTensor)]
    _require_different([node.get_name() for node in found], "input")
    return {node.get_name(): node for node in found}


def require_different_buffers(order: Iterable[HamKaasNode]) -> None:
    """Raise NodeError if two buffers have the same name."""
    _require_different([e.name for e in order if isinstance(e, BufferTensor) and e.name], "buffer")


def constant_names(order: Iterable[HamKaasNode]) -> dict[ConstantTensor, str]:
    """Return the name of each constant, in order; those without one get the next that is free.

    Such a name holds for this traversal; the constant remembers it, and may get another one in the
    next. Raises NodeError if two have the same name.
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
    """Return the right side of a statement."""
    if isinstance(node, ConstantTensor):
        arguments: list[Any] = [names[node], node.meta.dtype, node.meta.shape]
    else:
        named = isinstance(node, BufferTensor) and node.name
        arguments = [*([named] if named else []), *node.arguments]
        arguments = [numbers.get(e, e) if isinstance(e, HamKaasNode) else e for e in arguments]
    return f"{type(node).__name__}({', '.join(map(str, arguments))})"
