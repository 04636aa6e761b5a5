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
    from weft.runtime.program import Program

_HEAD = '''\
"""A computation as a function, `call`, that needs NumPy alone.

States are kept between calls; a call is not safe in several threads.
"""
# Exported by weft {version}: {name}
# Takes {parameters}

from __future__ import annotations

import base64
import types

{imports}
'''

_MEMORY = '''\
class holding:
    is_pending = False


def raise_pending():
    pass


def _array(dtype, shape, text):
    """Return the array that a text in base 64 holds."""
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape).copy()


def _memory(size):
    """Return memory that begins at a cache line."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def _argument(value, dtype, shape, name):
    """Return an argument as a contiguous array."""
    array = np.asarray(value)
    fits = np.can_cast(array.dtype, dtype, "same_kind") or not hasattr(value, "dtype")
    if not fits or array.shape != shape:
        problem = f"{name} is {dtype} {shape}, and not {array.dtype} {array.shape}"
        raise ValueError(problem)
    return np.ascontiguousarray(array, dtype).reshape(shape)


class _Axes(tuple):
    """The axes of a tensor."""

    @property
    def shape(self):
        return tuple([axis.length for axis in self])

    lengths = shape


def _axes(*axes):
    return _Axes(types.SimpleNamespace(length=length, name=name) for length, name in axes)


def _view(memory, shape, dtype, strides, offset):
    return np.ndarray(shape, dtype, memory, offset, strides)
'''


def export_source(computation: Computation, path: str | os.PathLike[str]) -> None:
    """Write a computation to a file; see `NumPyComputation.export_source`."""
    program = computation.program
    try:
        text = _Writer(computation, program).text()
    except BackendError as error:
        problem = f"{computation.name} cannot be exported as source: {error.problem}"
        raise BackendError(problem) from None
    with replacing(path) as file:
        file.write(text.encode())


class _Writer:
    def __init__(self, computation: Computation, program: Program) -> None:
        self.computation, self.program = computation, program
        self.bundle = Bundle()
        self.bundle.taken |= {"holding", "raise_pending", "call", "arena", "types", "base64"}
        self.buffers: dict[Any, str] = {}
        self.objects: dict[int, tuple[Any, str]] = {}
        self.data: list[str] = []

    def text(self) -> str:
        code: ProgramCode = self.program.code
        graph = self.program.captured
        exchange = next(communications(graph), None)
        if exchange is not None:
            raise BackendError(exchange.explain("NumPy alone has no ranks to exchange with"))
        for op in (*graph.inputs, *graph.outputs):
            self.dtype(op.dtype)
        linked = Linked(code, SCOPE, self.program.name)
        names = {**SCOPE, **code.names}
        listed = [
            f"{name} = {self.value(value)}" for name, value in names.items() if name != "__name__"
        ]
        blocks = [
            code.block_text(call)[0].replace("def bind(", f"def bind{number}(", 1)
            for number, call in enumerate(code.first_calls())
        ]
        bound = [
            f"bind{call.block}([{', '.join(map(self.view, call.tensors))}], "
            f"[{', '.join(map(self.value, call.values))}])"
            for call in code.calls
        ]
        if linked.join is None:
            run = f"run = {bound[0]}"
        else:
            rows = [
                f"{'    ' * rendered.depth}{rendered.text}" for rendered in linked.rendered_lines
            ]
            listing = "".join(f"    {each},\n" for each in bound)
            run = "\n".join([*rows, "", "", f"run = join([\n{listing}])"])
        head = _HEAD.format(
            name=harmless(self.computation.name),
            version=weft.__version__,
            parameters=", ".join(
                f"{harmless(_name(op))}: {op.dtype} {op.axes.shape}" for op in graph.inputs
            )
            or "nothing",
            imports="\n".join(self.bundle.imports),
        )
        memory = f"arena = _memory({self.program.arena_size})"
        parts = [head, _MEMORY, *self.bundle.texts, "\n".join([memory, *self.data])]
        whole = "\n\n".join([*parts, "\n".join(listed), *blocks, run, self.call()]) + "\n"
        ast.parse(whole)
        return whole

    def call(self) -> str:
        """Return the function that users call."""
        graph = self.program.captured
        names = [f"a{number}" for number in range(len(graph.inputs))]
        lines = [f"def call({', '.join(names)}):"]
        lines += [
            f"    {name} = _argument({name}, {self.dtype(op.dtype)}, {op.axes.shape}, "
            f"{_name(op)!r})"
            for name, op in zip(names, graph.inputs, strict=True)
        ]
        results = []
        for number, op in enumerate(graph.outputs):
            results.append(f"r{number}")
            lines.append(f"    r{number} = np.empty({op.axes.shape}, {self.dtype(op.dtype)})")
        lines.append('    with np.errstate(all="ignore"):')
        lines.append(f"        run({', '.join([*names, *results])})")
        rest = iter(results)
        ops = self.computation.results
        packed = self.computation.pack([next(rest) if op.is_tensor else "None" for op in ops])
        return "\n".join([*lines, f"    return {_structure(packed)}"])

    def view(self, tensor: TensorDescription) -> str:
        base = tensor.base
        memory = "arena" if base.kind == ARENA else self.buffer(base)
        dtype = self.dtype(tensor.dtype)
        return f"_view({memory}, {tensor.shape}, {dtype}, {tensor.strides}, {tensor.offset})"

    def buffer(self, base: Any) -> str:
        """Return the name of the memory of a constant, or of a state with its present value."""
        name = self.buffers.get(base.owner)
        if name is None:
            if base.kind == STATE:
                value = self.computation.transformer.get_value(base.owner)
            elif base.kind == CONSTANT:
                value = base.owner.const
            else:
                raise BackendError("a block is bound to memory of the caller")
            name = self.buffers[base.owner] = f"{base.kind}{len(self.buffers)}"
            raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            self.data += [f"{name} = _memory({raw.size})", f"{name}[...] = {_packed(raw)}"]
        return name

    def dtype(self, dtype: Any) -> str:
        if dtype.kind == "V":
            raise BackendError(f"NumPy alone does not have {dtype}: cast to another dtype")
        return f"np.dtype({dtype.name!r})"

    def value(self, value: Any) -> str:
        """Return the expression of a value that the program is bound to."""
        if value is None or type(value) in (bool, int, float, complex, str, type(...)):
            special = isinstance(value, float | complex) and not np.isfinite(value)
            return f"{type(value).__name__}({str(value)!r})" if special else repr(value)
        if isinstance(value, tuple | list) and type(value) in (tuple, list):
            inner = ", ".join(map(self.value, value))
            return (
                f"({inner}{',' if len(value) == 1 else ''})"
                if isinstance(value, tuple)
                else f"[{inner}]"
            )
        if isinstance(value, slice):
            return f"slice{self.value((value.start, value.stop, value.step))}"
        if isinstance(value, np.dtype):
            return self.dtype(value)
        if isinstance(value, np.generic | np.ndarray):
            self.dtype(value.dtype)
            text = _packed(np.asarray(value))
            return f"{text}[()]" if isinstance(value, np.generic) else text
        if isinstance(value, functools.partial):
            self.bundle.imports["import functools"] = None
            parts = map(self.value, (value.func, *value.args))
            words = [f"{name}={self.value(each)}" for name, each in value.keywords.items()]
            return f"functools.partial({', '.join([*parts, *words])})"
        if isinstance(value, Axes):
            return f"_axes({', '.join(repr((axis.length, axis.name)) for axis in value)})"
        if isinstance(value, Op):
            return self.object(value, set())
        owner = getattr(value, "__self__", None)
        if isinstance(owner, Op):
            return f"{self.object(owner, {value.__name__})}.{value.__name__}"
        if hasattr(value, "_fields") and isinstance(value, tuple):
            kind = type(value)
            return f"{self.bundle.named(kind.__module__, kind.__name__)}{self.value(tuple(value))}"
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

    def object(self, op: Op, methods: set[str]) -> str:
        """Return the name of an object with what some methods of an op use of it."""
        known = self.objects.get(id(op))
        if known is None:
            name = f"op{len(self.objects)}"
            known = self.objects[id(op)] = (op, name)
            line = f"{op.file_info}"
            problem = (
                f"def {name}_explain(problem):\n    return problem + {chr(10) + '  ' + line!r}"
            )
            self.data += [f"{name} = types.SimpleNamespace()", problem]
            self.data.append(f"{name}.explain = {name}_explain")
        name = known[1]
        done: set[str] = {"explain"}
        waiting = list(methods)
        while waiting:
            attribute = waiting.pop()
            if attribute in done:
                continue
            done.add(attribute)
            method = inspect.getattr_static(type(op), attribute, None)
            if inspect.isfunction(method):
                self.bundle.imports["import functools"] = None
                function = self.bundle.method(type(op), attribute)
                text = f"functools.partial({function}, {name})"
                waiting += _attributes_of_self(type(op), attribute)
            elif attribute == "args":
                parts = [
                    f"types.SimpleNamespace(axes={self.value(arg.axes)}, "
                    f"dtype={self.dtype(arg.dtype)})"
                    for arg in op.args
                ]
                text = f"[{', '.join(parts)}]"
            else:
                text = self.value(getattr(op, attribute))
            self.data.append(f"{name}.{attribute} = {text}")
        return name


def _name(parameter: Any) -> str:
    return str(parameter.source.label or parameter.source.name)


def _attributes_of_self(kind: type, method: str) -> list[str]:
    """Return the attributes of ``self`` that a method, and those of the same name above, use."""
    attributes = []
    for owner in kind.__mro__:
        function = vars(owner).get(method)
        if inspect.isfunction(function):
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            attributes += [
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ]
            if "super()" not in ast.unparse(tree):
                break
    return attributes


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
