"""Construction of ops, immediately, so that errors are raised at the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import weft
from weft import TensorOp
from weft.errors import WeftError
from weft_popxl.context import get_current_graph
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception
from weft_popxl.program import Constant, Graph, Record, Tensor, current
from weft_popxl.storage import Storage, View


def recorded(
    kind: str,
    operands: Sequence[Tensor],
    writes: Iterable[Storage] = (),
    called_graphs: Sequence[Graph] = (),
) -> Record:
    """Return a new record in the current graph."""
    graph = get_current_graph()
    graph._require_open()
    record = Record(
        kind,
        operands,
        writes=writes,
        called_graphs=called_graphs,
        in_sequence=current.get().in_sequence,
    )
    return graph._record(record)


def announced(record: Record, *outputs: Tensor) -> None:
    """Set the outputs of a record, and call the hooks of the graph."""
    record.outputs = outputs
    get_current_graph()._announce(record)


def computed(kind: str, function: Callable[..., Any], operands: Iterable[Tensor]) -> Any:
    """Call a function on the operands' values; errors become popart_exception."""
    get_current_graph()._require_open()
    try:
        return function(*(operand.place.read() for operand in operands))
    except popart_exception:
        raise
    except WeftError as error:
        raise popart_exception(f"{kind}: {error.problem}") from None


def apply(
    kind: str, function: Callable[..., TensorOp], *operands: Tensor, name: str | None = None
) -> Tensor:
    """Apply a function of ops to tensors, and return its result as a tensor."""
    (made,) = apply_all(kind, lambda *ops: [function(*ops)], *operands, name=name)
    return made


def apply_all(
    kind: str,
    function: Callable[..., Sequence[TensorOp]],
    *operands: Tensor,
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """Apply a function of ops with several results to tensors, and return these as tensors."""
    made = computed(kind, function, operands)
    graph = get_current_graph()
    record = recorded(kind, operands)
    given = {operand.op for operand in operands}
    # A function may return its operand unchanged, but a tensor needs a separate op.
    ops = [weft.value_of(op) if op in given else op for op in made]
    tensors = tuple([graph._add(Tensor, op, name, record=record) for op in ops])
    graph._effects += [op for op in ops if op.has_effect]
    announced(record, *tensors)
    return tensors


def change(
    kind: str, function: Callable[..., TensorOp], target: Tensor, *operands: Tensor
) -> Tensor:
    """Replace the value of a tensor by a function of it, and return the new tensor.

    The result has the same storage. Raises popart_exception if the tensor is a constant, or if the
    new value has another shape.
    """
    op = computed(kind, function, (target, *operands))
    if isinstance(target, Constant):
        raise popart_exception(f"{kind}: {target!r} is a constant, which cannot be changed")
    if tuple(op.shape) != target.shape:
        raise popart_exception(
            f"{kind}: {target!r} cannot take a value of shape {tuple(op.shape)} in its place"
        )
    record = recorded(kind, (target, *operands), writes=target.place.roots)
    target.place.write(weft.cast(op, target.op.dtype))
    made = get_current_graph()._add(
        Tensor, target.place.read(), target.label, place=target.place, record=record
    )
    announced(record, made)
    return made


def view(
    kind: str,
    show: Callable[..., TensorOp],
    put: Callable[..., Sequence[TensorOp]],
    *bases: Tensor,
) -> Tensor:
    """Return a tensor that is a view of others; see `View`."""
    op = computed(kind, show, bases)
    record = recorded(kind, bases)
    record.reads = {}
    place = View([base.place for base in bases], show, put)
    place.show(op)
    made = get_current_graph()._add(Tensor, op, place=place, record=record)
    announced(record, made)
    return made


def same_dtypes(kind: str, *operands: Tensor) -> None:
    """Raise popart_exception unless all operands have the same dtype."""
    if len({operand.dtype for operand in operands}) > 1:
        found = ", ".join(f"{operand.id} of {operand.dtype.name}" for operand in operands)
        raise popart_exception(f"{kind} takes tensors of one dtype, not {found}: ops.cast one")


def pair(kind: str, left: Any, right: Any) -> tuple[Tensor, Tensor]:
    """Return two operands as tensors of one dtype; a number or array takes that of the tensor."""
    if not isinstance(left, Tensor):
        right = as_tensor(right)
        left = as_tensor(left, right)
    left = as_tensor(left)
    right = as_tensor(right, left)
    same_dtypes(kind, left, right)
    return left, right


def matching(kind: str, *tensors: Any) -> tuple[Tensor, ...]:
    """Return operands as tensors of one dtype, that of the first tensor."""
    first = as_tensor(tensors[0])
    found = (first, *(as_tensor(each, first) for each in tensors[1:]))
    same_dtypes(kind, *found)
    return found
