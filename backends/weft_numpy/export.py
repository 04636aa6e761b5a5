"""Export of computations as Python source that needs NumPy alone."""

from __future__ import annotations

import ast
import base64
import functools
import inspect
import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

import weft
from weft.errors import ArgumentError, BackendError
from weft.files import replacing
from weft.ir.axes import Axes
from weft.ir.description import TensorDescription
from weft.ir.op import Op
from weft.plan.plan import ARENA, CONSTANT, STATE
from weft.ranks.collectives import communications
from weft.support.quoting import harmless
from weft_numpy.blocks import Linked, ProgramCode
from weft_numpy.bundle import OWN, Bundle
from weft_numpy.emitter import SCOPE

if TYPE_CHECKING:
    from weft.runtime.computation import Computation

_HEAD = '''\
"""A computation as a function, `call`, that needs NumPy alone.

States are kept between calls; a call is not safe in several threads.
"""
# Exported by weft {version}: {name}
# Takes {parameters}

from __future__ import annotations

import base64
import functools
import types

{imports}


def _array(dtype, shape, text):
    """Return the array that a text in base 64 holds."""
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape).copy()


def _argument(value, dtype, shape, name):
    """Return an argument as a contiguous array."""
    array = np.asarray(value)
    fits = np.can_cast(array.dtype, dtype, "same_kind") or not hasattr(value, "dtype")
    if not fits or array.shape != shape:
        problem = f"{{name}} is {{dtype}} {{shape}}, and not {{array.dtype}} {{array.shape}}"
        raise ValueError(problem)
    return np.ascontiguousarray(array, dtype).reshape(shape)


class _Axes(tuple):
    shape = lengths = property(lambda self: tuple([axis.length for axis in self]))


def _axes(*axes):
    return _Axes(types.SimpleNamespace(length=length, name=name) for length, name in axes)


def _view(memory, shape, dtype, strides, offset):
    return np.ndarray(shape, dtype, memory, offset, strides)


copyto, ndarray = np.copyto, np.ndarray
holding = types.SimpleNamespace(is_pending=False)
arena = np.zeros({arena}, "u1")
'''

_TAKEN = {"holding", "call", "run", "arena", *SCOPE, "types", "base64", "functools"}
"""Names that the text gives a meaning of its own."""


def export_source(computation: Computation, path: str | os.PathLike[str]) -> None:
    """Write a computation to a file; see `NumPyComputation.export_source`."""
    if computation.program.donated:  # the caller of the file keeps its arguments
        transformer = computation.transformer
        computation = transformer.computation(computation.graph, name=computation.name)
    try:
        text = _Writer(computation).text()
    except BackendError as error:
        problem = f"{computation.name} cannot be exported as source: {error.problem}"
        raise BackendError(problem) from None
    with replacing(path) as file:
        file.write(text.encode())


class _Writer:
    def __init__(self, computation: Computation) -> None:
        self.computation, self.program = computation, computation.program
        self.bundle = Bundle()
        self.bundle.taken |= _TAKEN
        self.buffers: dict[Any, str] = {}
        self.objects: dict[int, tuple[Any, str]] = {}
        self.data: list[str] = []

    def text(self) -> str:
        code: ProgramCode = self.program.code
        graph = self.program.captured
        self.computation.transformer.require_values(self.computation.name, graph)
        exchange = next(communications(graph), None)
        if exchange is not None:
            raise BackendError(exchange.explain("NumPy alone has no ranks to exchange with"))
        takes = [f"{harmless(_name(op))}: {op.dtype} {op.axes.shape}" for op in graph.inputs]
        call = self.call()
        blocks = [
            "\n".join(line for line, _ in code.annotated(call)).replace("bind", f"bind{number}", 1)
            for number, call in enumerate(code.first_calls())
        ]
        bound = [
            f"bind{call.block}([{', '.join(map(self.view, call.tensors))}], "
            f"[{', '.join(map(self.value, call.values))}])"
            for call in code.calls
        ]
        linked = Linked(code, SCOPE, self.program.name)
        if linked.join is None:
            run = f"run = {bound[0]}"
        else:
            listing = "".join(f"    {each},\n" for each in bound)
            run = f"{linked.text}\n\n\nrun = join([\n{listing}])"
        head = _HEAD.format(
            name=harmless(self.computation.name),
            version=weft.__version__,
            parameters=", ".join(takes) or "nothing",
            imports="\n".join(self.bundle.imports),
            arena=self.program.arena_size,
        )
        data = "\n".join(self.data)
        whole = "\n\n".join([head, *self.bundle.texts, data, *blocks, run, call]) + "\n"
        ast.parse(whole)
        return whole

    def call(self) -> str:
        """Return the function that users call."""
        graph = self.program.captured
        names = [f"a{number}" for number in range(len(graph.inputs))]
        results = [f"r{number}" for number in range(len(graph.outputs))]
        lines = [f"def call({', '.join(names)}):"]
        for name, op in zip(names, graph.inputs, strict=True):
            form = f"{self.dtype(op.dtype)}, {op.axes.shape}, {_name(op)!r}"
            lines.append(f"    {name} = _argument({name}, {form})")
        for name, out in zip(results, graph.outputs, strict=True):
            lines.append(f"    {name} = np.empty({out.axes.shape}, {self.dtype(out.dtype)})")
        lines.append('    with np.errstate(all="ignore"):')
        lines.append(f"        run({', '.join([*names, *results])})")
        rest = iter(results)
        ops = self.computation.results
        packed = self.computation.pack([next(rest) if op.is_tensor else "None" for op in ops])
        return "\n".join([*lines, f"    return {_structure(packed)}"])

    def view(self, tensor: TensorDescription) -> str:
        memory = "arena" if tensor.base.kind == ARENA else self.buffer(tensor.base)
        dtype = self.dtype(tensor.dtype)
        return f"_view({memory}, {tensor.shape}, {dtype}, {tensor.strides}, {tensor.offset})"

    def buffer(self, base: Any) -> str:
        """Return the name of the memory of a constant, or of a state with its present value."""
        if base.owner not in self.buffers:
            if base.kind not in (STATE, CONSTANT):
                raise BackendError("a block is bound to memory of the caller")
            is_state = base.kind == STATE
            get = self.computation.transformer.memory_of
            value = get(base.owner) if is_state else base.owner.const
            name = self.buffers[base.owner] = f"{base.kind}{len(self.buffers)}"
            raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            self.data.append(f"{name} = {_packed(raw)}")
        return self.buffers[base.owner]

    def dtype(self, dtype: Any) -> str:
        if dtype.kind == "V":
            raise BackendError(f"NumPy alone does not have {dtype}: cast to another dtype")
        return f"np.dtype({dtype.name!r})"

    def value(self, value: Any) -> str:
        """Return the expression of a value that the program is bound to."""
        if isinstance(value, np.generic | np.ndarray):
            self.dtype(value.dtype)
            return _packed(np.asarray(value)) + ("[()]" if isinstance(value, np.generic) else "")
        if isinstance(value, float | complex) and not np.isfinite(value):
            return f"{type(value).__name__}({str(value)!r})"
        if value is None or type(value) in (bool, int, float, complex, str, type(...)):
            return repr(value)
        if type(value) in (tuple, list):
            inner = "".join(f"{self.value(each)}, " for each in value)
            return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
        if isinstance(value, slice):
            return f"slice{self.value((value.start, value.stop, value.step))}"
        if isinstance(value, np.dtype):
            return self.dtype(value)
        if isinstance(value, functools.partial):
            parts = map(self.value, (value.func, *value.args))
            words = [f"{name}={self.value(each)}" for name, each in value.keywords.items()]
            return f"functools.partial({', '.join([*parts, *words])})"
        if isinstance(value, Axes):
            return f"_axes({', '.join(repr((axis.length, axis.name)) for axis in value)})"
        if isinstance(value, Op):
            return self.object(value, [])
        owner = getattr(value, "__self__", None)
        if isinstance(owner, Op):
            return f"{self.object(owner, [value.__name__])}.{value.__name__}"
        if isinstance(value, tuple):
            return f"{self.function(type(value))}{self.value(tuple(value))}"
        return self.function(value)

    def function(self, value: Any) -> str:
        """Return the name of a function or class."""
        module = str(getattr(value, "__module__", None) or "numpy")
        name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
        if isinstance(value, np.ufunc):
            module, name = "numpy", value.__name__
        top = module.partition(".")[0]
        if top in OWN and "." not in name and name:
            return self.bundle.named(module, name)
        resolved: Any = sys.modules.get(module)
        for part in name.split("."):
            resolved = getattr(resolved, part, None)
        if resolved is value and (top == "numpy" or top in sys.stdlib_module_names):
            self.bundle.imports[f"import {module}"] = None
            return f"{module}.{name}"
        raise BackendError(f"it computes with {value!r:.100}, which has no source of its own")

    def object(self, op: Op, methods: list[str]) -> str:
        """Return the name of an object with what some methods of an op use of it."""
        if id(op) not in self.objects:
            name = f"op{len(self.objects)}"
            self.objects[id(op)] = (op, name)
            where = repr(f"\n  {op.file_info}")
            self.data.append(f"{name} = types.SimpleNamespace()")
            self.data.append(f"{name}.explain = lambda problem: problem + {where}")
        name = self.objects[id(op)][1]
        done, waiting = {"explain"}, methods
        while waiting:
            attribute = waiting.pop()
            if attribute in done:
                continue
            done.add(attribute)
            method = inspect.getattr_static(type(op), attribute, None)
            if inspect.isfunction(method):
                text = f"functools.partial({self.bundle.method(type(op), attribute)}, {name})"
                waiting += _attributes_of_self(method)
            elif attribute == "args":
                parts = [f"axes={self.value(a.axes)}, dtype={self.dtype(a.dtype)}" for a in op.args]
                text = f"[{''.join(f'types.SimpleNamespace({part}), ' for part in parts)}]"
            else:
                text = self.value(getattr(op, attribute))
            self.data.append(f"{name}.{attribute} = {text}")
        return name


def _name(parameter: Any) -> str:
    return str(parameter.source.label or parameter.source.name)


def _attributes_of_self(method: Any) -> list[str]:
    """Return the attributes of ``self`` that a method uses."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return [each.attr for each in attributes if ast.unparse(each.value) == "self"]


def _packed(array: np.ndarray[Any, Any]) -> str:
    text = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return f"_array({array.dtype.name!r}, {array.shape}, {text!r})"


def _structure(packed: Any) -> str:
    """Return the expression of results in the structure of the computation's."""
    if packed is None or isinstance(packed, str):
        return str(packed)
    if isinstance(packed, dict):
        for key in packed:
            if not isinstance(key, str | int):
                raise ArgumentError(f"a result has the key {key!r}: give the results in a list")
        return f"{{{', '.join(f'{key!r}: {name}' for key, name in packed.items())}}}"
    return f"({', '.join(packed)}{',' if len(packed) == 1 else ''})"
