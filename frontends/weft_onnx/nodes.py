"""Nodes as lowerings see them, and the table of lowerings."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

import weft
from weft.errors import WeftError
from weft.ir.dtypes import Array
from weft.ir.op import Op
from weft.support.memory import half_of_memory
from weft.support.quoting import harmless
from weft_onnx.choices import choices_of, default_of, listed, problem_of
from weft_onnx.errors import ModelError, NodeError
from weft_onnx.values import HostRef, Tensor, Value, dtype_of, is_for_device, is_known, shape_of

if TYPE_CHECKING:
    from weft_onnx.tracing import Frame, Tracer

Lowering = Callable[["Node"], Any]

_table: dict[tuple[str, str], Lowering] = {}
_attributes: dict[tuple[str, str], frozenset[str]] = {}

MICROSOFT = "com.microsoft"
ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"


def lowers(
    *names: str, domain: str = "", attributes: str | None = None
) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of ops: it takes a node and returns its results.

    `attributes` are the names of those that it reads, separated by blanks: a node with another one
    is then refused. It is for domains of which onnx has no schemas to check attributes by.
    """

    def register(function: Lowering) -> Lowering:
        for name in names:
            _table[domain, name] = function
            if attributes is not None:
                _attributes[domain, name] = frozenset(attributes.split())
        return function

    return register


def lowering_of(domain: str, name: str) -> Lowering | None:
    """Return the lowering of an op."""
    return _table.get(("" if domain == "ai.onnx" else domain, name))


def lowered_ops() -> list[tuple[str, str]]:
    """Return the domain and name of each op with a lowering."""
    return sorted(_table)


def attributes_read() -> dict[tuple[str, str], frozenset[str]]:
    """Return by domain and name the attributes of each op whose lowering declares them."""
    return dict(_attributes)


WIDEST = 8
"""The bytes of a number that the host computes with."""


class Cut(Exception):
    """A lowering needs what a call computes, so the step of the program that is traced ends.

    Attributes
    ----------
    values
        The values that are needed.
    function
        The function of the host that takes their arrays, or None if they are needed themselves.
    """

    def __init__(self, values: Sequence[Value], function: Callable[..., Any] | None) -> None:
        super().__init__()
        self.values = list(values)
        self.function = function


class Node:
    """A node with its operands.

    Attributes
    ----------
    proto
        The node of the model.
    inputs
        Its operands; None for one that is left out.
    version
        The opset of its domain.
    """

    def __init__(self, proto: onnx.NodeProto, inputs: list[Value], frame: Frame, tracer: Tracer):
        self.proto = proto
        self.inputs = inputs
        self.frame = frame
        self.tracer = tracer
        self.version: int = frame.opset(proto.domain)
        self._attributes = {each.name: each for each in proto.attribute}
        self._demands = 0

    @property
    def domain(self) -> str:
        """The domain of the op; empty for the default one."""
        return "" if self.proto.domain == "ai.onnx" else str(self.proto.domain)

    @property
    def outputs(self) -> int:
        """The number of results that are declared."""
        return len(self.proto.output)

    def wants(self, index: int) -> bool:
        """Whether a result has a name, so that it may be read."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def has(self, index: int) -> bool:
        """Whether an operand is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def __getitem__(self, index: int) -> Tensor:
        """Return an operand as a weft op."""
        if not self.has(index):
            raise self.error(f"operand {index} is missing")
        return self.op(self.inputs[index])

    def op(self, value: Value) -> Tensor:
        """Return a value as a weft op."""
        if isinstance(value, Op):
            return value
        if isinstance(value, HostRef):
            raise self.error(f"no device computes with {value.dtype}")
        if not isinstance(value, np.ndarray):
            raise self.error(f"an operand is a {type(value).__name__}, not a tensor")
        if not is_for_device(value.dtype):
            raise self.error(f"no device computes with {value.dtype}")
        return self.tracer.constant(value)

    def get(self, index: int) -> Tensor:
        """Return an operand as a weft op, or None if it is left out."""
        return self[index] if self.has(index) else None

    def raw(self, index: int) -> Value:
        """Return an operand as it is."""
        return self.inputs[index] if index < len(self.inputs) else None

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an operand."""
        return shape_of(self.raw(index))

    def rank(self, index: int = 0) -> int:
        """Return the rank of an operand."""
        return len(self.shape(index))

    def dtype(self, index: int = 0) -> np.dtype[Any]:
        """Return the dtype of an operand."""
        return dtype_of(self.raw(index))

    def array(self, index: int) -> Array:
        """Return the array of an operand; where a call computes it, the traced step ends here."""
        if not self.has(index):
            raise self.error(f"operand {index} is missing")
        found: Array = self.known(self.inputs[index])
        return found

    def known(self, value: Value) -> Any:
        """Return the array of a value; where a call computes it, the traced step ends here."""
        self._demands += 1
        if is_known(value):
            return value
        if isinstance(value, Op):
            found = self.tracer.constant_value(value)
            if found is not None:
                return found
        return self._resumed(Cut([value], None))[0]

    def host(self, function: Callable[..., Any], *values: Value) -> list[Any]:
        """Return the results of a function of the host, a list of arrays.

        Where a call computes an operand, the traced step ends here.
        """
        self._demands += 1
        if all(map(is_known, values)):
            return [np.asarray(each) for each in function(*values)]

        return self._resumed(Cut(values, naming(self.proto, self.version)(function)))

    def _resumed(self, cut: Cut) -> list[Any]:
        """Return the result of an earlier cut at this demand; raises it if there was none."""
        if self._demands not in self.frame.resumed:
            self.frame.demand = self._demands
            raise cut
        return self.frame.resumed[self._demands]

    def remember(self, **state: Any) -> None:
        """Keep values for when tracing comes back to this node, from its beginning."""
        self.frame.state = state
        self.frame.resumed = {}
        self._demands = 0

    def ints(self, index: int) -> list[int]:
        """Return the elements of an operand of integers."""
        return [int(each) for each in np.asarray(self.array(index)).reshape(-1)]

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute; without it the default of the op's schema, if any, or this one."""
        found = self._attributes.get(name)
        if found is not None and found.ref_attr_name:
            found = self.frame.attributes.get(found.ref_attr_name)
        if found is None:
            found = default_of(self.domain, self.proto.op_type, name, self.version)
        return default if found is None else self.tracer.reader.attribute(found)

    def choice(
        self, name: str, meanings: Mapping[Any, Any] | None = None, default: Any = None
    ) -> Any:
        """Return an attribute with a closed set of values, or what its value means.

        Raises NodeError for a value that has no meaning here: it is valid, as `check_choices` has
        looked at all attributes before, so weft does not compute it.
        """
        value = self.attr(name, default)
        if meanings is None:
            return value
        if value not in meanings:
            raise self.error(
                f"weft does not compute it with {name} {value!r}, only with "
                f"{listed(name, meanings)}: change the attribute, or register a lowering of your "
                "own with weft_onnx.lowers"
            )
        return meanings[value]

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an attribute that is 0 or 1."""
        return bool(self.choice(name, default=default))

    def check_attributes(self) -> None:
        """Raise NodeError for an attribute that the lowering of the op would not read."""
        known = _attributes.get((self.domain, self.proto.op_type))
        unknown = sorted(set(self._attributes) - known) if known is not None else []
        if unknown:
            several = ", ".join(sorted(known or ())) or "none"
            raise self.error(
                f"weft does not know its attribute {harmless(unknown[0])}, only these: {several}"
            )

    def check_choices(self) -> None:
        """Raise NodeError for an attribute outside of its closed set of values."""
        for name in self._attributes:
            if choices_of(self.domain, self.proto.op_type, name, self.version) is None:
                continue
            value = self.attr(name)
            problem = problem_of(self.domain, self.proto.op_type, name, self.version, value)
            if problem is not None:
                raise self.error(problem)

    def required(self, name: str) -> Any:
        """Return an attribute; raises NodeError if it is missing."""
        found = self.attr(name)
        if found is None:
            raise self.error(f"attribute {name} is missing")
        return found

    def axis(self, axis: int, rank: int | None = None) -> int:
        """Return an axis counted from the front; raises NodeError if there is none."""
        rank = self.rank() if rank is None else rank
        if not -rank <= axis < max(rank, 1):
            raise self.error(f"axis {axis} is not one of {rank}")
        return axis % rank if rank else 0

    def axes(self, axes: Sequence[int], rank: int | None = None) -> tuple[int, ...]:
        """Return axes counted from the front."""
        return tuple(self.axis(int(each), rank) for each in axes)

    def require_room(self, *lengths: int) -> None:
        """Raise NodeError if so many numbers exceed half of this machine's memory."""
        if prod(max(each, 0) for each in lengths) * WIDEST > half_of_memory():
            shape = " times ".join(map(str, lengths))
            raise self.error(f"{shape} numbers are more than memory holds")

    def error(self, problem: str) -> NodeError:
        """Return an error that names the node."""
        return NodeError(f"{described(self.proto, self.version)}: {problem}")


@contextmanager
def naming(proto: onnx.NodeProto, version: int) -> Iterator[None]:
    """Name a node in the errors of what is done inside: its lowering, or its work on the host.

    A lowering trusts what it is given. What it stumbles over then is a NodeError.
    """
    try:
        yield
    except (Cut, NodeError):
        raise
    except WeftError as error:
        error.add_note(f"in {described(proto, version)}")
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {harmless(str(error)[:300])}"
        raise NodeError(f"{described(proto, version)}: {problem}") from error


def described(proto: onnx.NodeProto, version: int) -> str:
    """Return the name, op and opset of a node for messages."""
    name = proto.name or (proto.output[0] if proto.output else "")
    domain = f"{proto.domain}." if proto.domain not in ("", "ai.onnx") else ""
    return f"node {harmless(name)!s} ({harmless(domain + proto.op_type)}, opset {version})"


def set_lines(file: str, nodes: Sequence[onnx.NodeProto]) -> None:
    """Make nodes the lines of a file, as errors and profiles show the lines of a program."""
    lines = [f"{_brief(node)}\n" for node in nodes]
    # No time of modification: the entry is not compared with the file.
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)


def _brief(node: onnx.NodeProto) -> str:
    """Return a node as an assignment."""
    results, operands = (", ".join(map(harmless, each)) for each in (node.output, node.input))
    return f"{results} = {harmless(node.op_type)}({operands})"


def numpy_dtype(number: int, what: str = "a tensor") -> np.dtype[Any]:
    """Return the NumPy dtype of a number of TensorProto.DataType; raises ModelError for others."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(number))
    except (KeyError, TypeError):
        raise ModelError(f"{what} has the unknown type {number}") from None


def cast(x: Any, dtype: Any) -> Tensor:
    """Return a tensor in another dtype."""
    return weft.cast(x, np.dtype(dtype).name)
