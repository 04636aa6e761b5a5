"""Session: a program compiled for a backend, its weights, and its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

import weft
from weft import plugins
from weft.ir.dtypes import Array
from weft_popxl.arguments import flag, mapping, several, text
from weft_popxl.data import as_array
from weft_popxl.errors import UnknownDevice, popart_exception, refuse_type, refuse_value
from weft_popxl.layout import layouts
from weft_popxl.ordering import check_order
from weft_popxl.program import (
    Constant,
    DeviceToHostStream,
    HostToDeviceStream,
    Ir,
    Tensor,
    Variable,
)
from weft_popxl.replicas import own_data, require_ranks
from weft_popxl.streams import by_stream, offsets, totals

DEVICES = {"cpu": "numpy", "ipu_model": None, "ipu_hw": None}
"""The backends of PopXL's devices; None is weft's default backend."""


class Session:
    """A program compiled for a backend; it runs inside `with session:`.

    Later additions to the Ir are not part of it. Of several replicas, this process runs the one of
    its rank, with arrays and variables of its own.

    Parameters
    ----------
    ir
        The program.
    device_desc
        ``cpu`` for the NumPy backend, ``ipu_model`` or ``ipu_hw`` for weft's default backend, or
        the name of a backend, such as ``opencl``.
    weights_to_host_on_exit
        Whether to copy variables to the host when the context exits without an error.

    Raises popart_exception if the order of in-place changes is undefined and if there are not as
    many ranks as replicas, and ValueError with a list of devices for an unknown one.
    """

    def __init__(
        self, ir: Ir, device_desc: str = "cpu", weights_to_host_on_exit: bool = True
    ) -> None:
        if not isinstance(ir, Ir):
            refuse_type(f"a session runs an Ir, not {ir!r}")
        self.ir = ir
        self.device_desc = device_desc
        self.weights_to_host_on_exit = flag("weights_to_host_on_exit", weights_to_host_on_exit)
        self._depth = 0
        self._loads = tuple(ir.main_graph._loads)
        self._stores = tuple(ir.main_graph._stores)
        self._layouts = layouts((*self._loads, *self._stores), ir.num_host_transfers)
        self._check(ir)
        self._transformer = weft.make_transformer(_backend(device_desc))
        self._computation = self._compiled(ir)
        self._weights: dict[Any, Array] = {
            each: np.array(own_data(each)) for each in ir.main_graph.variables
        }
        used = set(self._computation.graph.states)
        self._on_device = {each: each.op for each in self._weights if each.op in used}

    def _check(self, ir: Ir) -> None:
        if ir.main_graph.inputs:
            raise popart_exception(
                f"the main graph has the inputs {list(ir.main_graph.inputs)}, which nothing gives "
                "a value: use variables, constants and streams"
            )
        for graph in ir.graphs:
            check_order(graph._records)

    def _compiled(self, ir: Ir) -> Any:
        main = ir.main_graph
        changed = [each for each in main.variables if each.place.version]
        with weft.saved_user_deps():
            # Values come before the writes: one may be the old value of another variable.
            values = [weft.value_of(each.place.read()) for each in changed]
            writes = [
                weft.assign(each.op, value) for each, value in zip(changed, values, strict=True)
            ]
            results = [*(store.op for store in self._stores), *writes, *main._effects]
            made = self._transformer.computation(results, *(load.op for load in self._loads))
        require_ranks(ir, made.graph)
        self._transformer.initialize()
        return made

    # The context

    @property
    def is_attached(self) -> bool:
        """Whether the context is open."""
        return self._depth > 0

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth == 1:
            self.weights_from_host()
        return self

    def __exit__(self, kind: Any, *error: object) -> None:
        try:
            if self._depth == 1 and kind is None and self.weights_to_host_on_exit:
                self.weights_to_host()
        finally:
            self._depth -= 1

    def _require_attached(self, what: str) -> None:
        if not self.is_attached:
            refuse_value(f"{what} needs an open session: write `with session:` around it")

    # Weights

    def weights_from_host(self) -> None:
        """Copy all variables from host to device; raises ValueError outside of the context."""
        self._require_attached("weights_from_host")
        for each, state in self._on_device.items():
            self._transformer.set_value(state, self._weights[each])

    def weights_to_host(self) -> None:
        """Copy all variables from device to host; raises ValueError outside of the context."""
        self._require_attached("weights_to_host")
        for each, state in self._on_device.items():
            self._weights[each] = self._transformer.get_value(state)

    def get_tensor_data(self, tensor: Tensor) -> Array:
        """Return a copy of the value of a variable or constant; raises TypeError for others.

        Inside the context this is the value on the device.
        """
        if isinstance(tensor, Constant):
            return np.array(tensor.data)
        self._require_variable(tensor)
        if self.is_attached and tensor in self._on_device:
            self._weights[tensor] = self._transformer.get_value(self._on_device[tensor])
        return np.array(self._weights[tensor])

    def get_tensors_data(self, tensors: Iterable[Tensor]) -> dict[Tensor, Array]:
        """Return copies of the values of several variables and constants."""
        return {each: self.get_tensor_data(each) for each in several("the tensors", tensors)}

    def write_variable_data(self, tensor: Variable, data: Any) -> None:
        """Set a variable, on the host and, inside the context, on the device.

        Raises TypeError for a tensor that is not a variable and for another dtype, ValueError for
        another shape.
        """
        self._require_variable(tensor)
        array = _as_given(repr(tensor), data, tensor.dtype, downcast=False)
        if array.shape != tensor.shape:
            refuse_value(f"{tensor!r} cannot take a value of shape {array.shape}")
        self._weights[tensor] = np.array(array)
        if self.is_attached and tensor in self._on_device:
            self._transformer.set_value(self._on_device[tensor], array)

    def write_variables_data(self, tensors: Mapping[Variable, Any]) -> None:
        """Set several variables."""
        for tensor, value in mapping("the data of variables", tensors).items():
            self.write_variable_data(tensor, value)

    def _require_variable(self, tensor: Any) -> None:
        if not isinstance(tensor, Variable):
            refuse_type(f"only variables and constants have data in a session, not {tensor!r}")
        if tensor not in self._weights:
            refuse_value(f"{tensor!r} is not a variable of this session's program")

    # Runs

    def expected_inputs(self) -> list[HostToDeviceStream]:
        """Return the input streams of a run."""
        return list(totals(self._loads))

    def create_host_outputs(self) -> dict[DeviceToHostStream, Array]:
        """Return arrays for `run_with_outputs`."""
        return {
            stream: np.zeros(self._layouts[stream].shape, stream.dtype.as_numpy())
            for stream in totals(self._stores)
        }

    def run(
        self, inputs: Mapping[HostToDeviceStream, Any] | None = None, downcast_inputs: bool = True
    ) -> dict[DeviceToHostStream, Array]:
        """Run the main graph once, and return its stored tensors by stream.

        The array of a stream has the shape of the stream, with a leading axis if the ops load or
        store it more than once. An input may have more slices, up to `ir.num_host_transfers`; they
        are ignored. `downcast_inputs` permits 64-bit data for a 32-bit stream. Raises ValueError
        outside of the context, for unexpected and missing inputs, and for wrong shapes; TypeError
        for wrong dtypes.
        """
        self._require_attached("run")
        given = self._inputs(
            mapping("the inputs of a run", inputs), flag("downcast_inputs", downcast_inputs)
        )
        results = self._computation(*given)[: len(self._stores)]
        parts = by_stream(self._stores, map(np.asarray, results))
        return {stream: self._layouts[stream].gathered(found) for stream, found in parts.items()}

    def run_with_outputs(
        self,
        inputs: Mapping[HostToDeviceStream, Any] | None = None,
        outputs: Mapping[DeviceToHostStream, Array] | None = None,
        downcast_inputs: bool = True,
    ) -> None:
        """Run the main graph once, and write its stored tensors to arrays of the caller.

        An array may have more slices than are stored, up to `ir.num_host_transfers`; they are
        unchanged. Raises ValueError for unexpected and missing outputs and for arrays of wrong
        shapes, TypeError for those of wrong dtypes, and the errors of `run`.
        """
        self._require_attached("run_with_outputs")
        wanted = dict(mapping("the outputs of a run", outputs))
        _check_streams("output", wanted, totals(self._stores))
        for stream, array in wanted.items():
            if not isinstance(array, np.ndarray) or array.dtype != stream.dtype.as_numpy():
                refuse_type(f"the output of {stream!r} must be an array of its dtype")
            self._layouts[stream].slices_of("output", array)
        for stream, result in self.run(inputs, downcast_inputs).items():
            wanted[stream].flat[: result.size] = result.ravel()

    def _inputs(self, inputs: Mapping[Any, Any], downcast: bool) -> list[Array]:
        """Return the slices of each load of the main graph."""
        _check_streams("input", inputs, totals(self._loads))
        arrays = {}
        for stream, value in inputs.items():
            array = _as_given(f"the input of {stream!r}", value, stream.dtype, downcast)
            count = self._layouts[stream].slices_of("input", array)
            arrays[stream] = array.reshape(count, *stream.shape)
        found = []
        for load, begin in offsets(self._loads):
            array, end = arrays[load.stream], begin + load.count
            fits = end <= len(array)
            found.append(
                array[begin:end] if fits else array.take(range(begin, end), axis=0, mode="wrap")
            )
        return found

    def __repr__(self) -> str:
        return f"Session[ir={self.ir} device={self.device_desc!r}]"


def _backend(device: Any) -> str | None:
    """Return the name of the backend for a device, None for the default one."""
    name = text("the device of a session", device)
    if name in DEVICES:
        return DEVICES[name]
    backends = plugins.names(plugins.BACKENDS)
    if name not in backends:
        raise UnknownDevice(
            f"there is no device {name!r}: say one of PopXL's, which are {', '.join(DEVICES)}, or "
            f"a backend, of which {', '.join(backends)} are installed"
        )
    return name


def _check_streams(what: str, given: Mapping[Any, Any], wanted: Mapping[Any, int]) -> None:
    for stream in given:
        if stream not in wanted:
            refuse_value(f"Unexpected {what}: {stream!r} is no {what} of the program")
    for stream in wanted:
        if stream not in given:
            refuse_value(f"Missing {what}: the program needs {stream!r}")


def _as_given(what: str, value: Any, dtype: Any, downcast: bool) -> Array:
    """Return a value as an array of a dtype: arrays must have it, Python numbers must fit."""
    found = as_array(value, downcast=False)
    wanted = dtype.as_numpy()
    if found.dtype == wanted:
        return found
    is_array = hasattr(value, "dtype")
    narrowing = downcast and found.dtype.itemsize == 8 and wanted.itemsize == 4
    if is_array and not (narrowing and found.dtype.kind == wanted.kind):
        refuse_type(f"{what} must have the dtype {wanted}, not {found.dtype}")
    if found.dtype.kind == "f" and wanted.kind != "f":
        refuse_type(f"{what} must have the dtype {wanted}, not floats")
    return as_array(value, dtype)
