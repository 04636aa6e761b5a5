"""Ops between host and device, and ops that create tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

import weft
from weft import TensorOp
from weft.ops.control.effects import PrintOp
from weft.ops.shape.movement import IdentityOp
from weft_popxl import dtypes
from weft_popxl.arguments import flag, one_of, real, text
from weft_popxl.building import announced, apply, recorded
from weft_popxl.context import get_current_graph
from weft_popxl.data import as_tensor
from weft_popxl.errors import refuse_type, refuse_value
from weft_popxl.program import DeviceToHostStream, HostToDeviceStream, Load, Store, Stream, Tensor
from weft_popxl.tensor_spec import checked_shape

__all__ = ["arange", "host_load", "host_store", "init", "print_tensor"]


def _own(kind: str, stream: Any, wanted: type[Stream]) -> None:
    if not isinstance(stream, wanted):
        refuse_type(f"{kind} takes a {wanted.__name__}, not {stream!r}")
    if stream.ir is not get_current_graph().ir:
        refuse_value(f"{kind}: {stream!r} belongs to another Ir")


def new_load(stream: HostToDeviceStream, count: int) -> Load:
    """Add a load of slices of a stream to the current graph."""
    graph = get_current_graph()
    op = weft.placeholder((count, *stream.shape), stream.dtype.as_numpy(), name=stream.name)
    load = Load(stream, count, op)
    graph._loads.append(load)
    return load


def host_load(h2d_stream: HostToDeviceStream, name: str | None = None) -> Tensor:
    """Return the next tensor of a stream at each execution."""
    _own("host_load", h2d_stream, HostToDeviceStream)
    record = recorded("host_load", ())
    op = weft.reshape(new_load(h2d_stream, 1).op, h2d_stream.shape)
    made = get_current_graph()._add(Tensor, op, name, record=record)
    announced(record, made)
    return made


def host_store(d2h_stream: DeviceToHostStream, t: Tensor) -> None:
    """Append a tensor to a stream at each execution.

    Raises ValueError if shape or dtype differ from the stream's.
    """
    _own("host_store", d2h_stream, DeviceToHostStream)
    t = as_tensor(t, d2h_stream.dtype)
    if (t.shape, t.dtype) != (d2h_stream.shape, d2h_stream.dtype):
        refuse_value(f"host_store: {t!r} does not fit {d2h_stream!r}")
    record = recorded("host_store", (t,))
    op = weft.reshape(t.place.read(), (1, *t.shape))
    get_current_graph()._stores.append(Store(d2h_stream, 1, op))
    announced(record)


def init(
    shape: Iterable[int],
    dtype: Any,
    name: str | None = None,
    init_type: str = "zero",
    meta_shape: Iterable[int] | None = None,
) -> Tensor:
    """Return zeros; ``undef`` leaves the value undefined, but gives zeros as well.

    `meta_shape` has no effect. Raises ValueError for another `init_type`.
    """
    one_of("init_type", init_type, ("zero", "undef"))
    wanted, lengths = dtypes.dtype.as_dtype(dtype).as_numpy(), checked_shape(shape)
    return apply("init", lambda: weft.constant(np.zeros(lengths, wanted)), name=name)


def arange(start: float, stop: float, step: float, dtype: Any) -> Tensor:
    """Return numbers from start to before stop, with a step."""
    wanted = dtypes.dtype.as_dtype(dtype).as_numpy()
    given = [
        real(f"arange: {name}", value)
        for name, value in (("start", start), ("stop", stop), ("step", step))
    ]
    return apply("arange", lambda: weft.arange(*given, dtype=wanted))


def print_tensor(
    t: Tensor,
    title: str | None = None,
    print_self: bool = True,
    print_gradient: bool = False,
    summarize_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 75,
    digits: int = 8,
    float_format: str = "auto",
    separator: str = " ",
    open_bracket: str = "[",
    close_bracket: str = "]",
) -> Tensor:
    """Return t, and print it whenever it is computed, under a title, by default ``print_<name>``.

    It is printed on the standard error. `print_gradient` prints the gradient of t whenever that is
    computed, as ``<title>_gradient``. With `print_self` false t itself is not printed. The
    formatting arguments have no effect: the format is NumPy's.
    """
    t = as_tensor(t)
    title = f"print_{t.name}" if title is None else text("print_tensor: the title", title)
    prints_self = flag("print_tensor: print_self", print_self)
    prints_gradient = flag("print_tensor: print_gradient", print_gradient)

    def function(x: TensorOp) -> Any:
        x = PrintGradientOp(x, prefix=f"{title}_gradient") if prints_gradient else x
        return PrintTensorOp(x, prefix=title) if prints_self else x

    return apply("print_tensor", function, t)


class PrintTensorOp(PrintOp):
    """The operand, printed on the standard error whenever it is computed."""

    def perform(self, *values: Any) -> None:
        """Print the value, after the prefix."""
        (value,) = values
        text = value if self.prefix is None else f"{self.prefix} {value}"
        print(text, file=sys.stderr, flush=True)


class PrintGradientOp(IdentityOp):
    """The operand, whose adjoint is printed when it is computed.

    Attributes
    ----------
    prefix
        Printed before the adjoint.
    """

    prefix: str

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[TensorOp, ...]:
        """Print the adjoint."""
        return (PrintTensorOp(delta, prefix=self.prefix),)
