"""Generates the function that takes the arguments of a call apart, for one structure and types.

It tests that they are those that a program was compiled for, and runs it; flattening trees in
general takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from weft.functional.trees import Structure
from weft.ir.lengths import Length
from weft.ir.op import attribute_key
from weft.runtime.call_path import FEW, running
from weft.runtime.computation import Computation
from weft.runtime.device_arrays import HOST, DeviceArrays
from weft.support.quoting import harmless

MISS = object()
"""What the function returns for other arguments."""

_CONTAINERS = (tuple, list, dict, type(None))


SMALLEST_ORDERED = 2**18
"""The bytes from which a copy takes long enough to compile for the order of axes in memory."""


class LeafType(NamedTuple):
    """The type of a leaf, with dtype and shape of an array; unknown lengths may vary.

    The shape is that of the axes in the order of memory, if that is another one; see `order_of`.
    Where the order is None, arrays are copied if they are not C-contiguous.
    """

    kind: type[Any]
    dtype: Any
    shape: Sequence[int | Length]
    order: Order | None


Order = tuple[int, ...]
"""The axes of an array from the outermost in memory; nothing for row-major ones."""


def order_of(array: Any) -> Order:
    """Return the order of axes of a large array that is contiguous in another one; else nothing.

    Nothing for other arrays that are not C-contiguous, which are copied.
    """
    if type(array) is not np.ndarray or array.nbytes < SMALLEST_ORDERED:
        return ()
    if array.flags.c_contiguous:
        return ()
    order = sorted(range(array.ndim), key=array.strides.__getitem__, reverse=True)
    return tuple(order) if array.transpose(order).flags.c_contiguous else ()


def make_call(
    structure: Structure,
    types: Sequence[LeafType],
    static: Mapping[int, Any],
    computation: Computation,
    result: Structure,
) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that runs a program if its positional arguments fit, else returns `MISS`.

    `structure` is that of the arguments with None for the static ones, which `static` has by
    position, and `result` that of the results. Arguments with nodes of other kinds than Python's
    containers never fit. Where all lengths are known, the function does what the executor of the
    computation does, which has run before; else it calls the computation.
    """
    arrays = computation.arrays
    writer = _Writer(types, static, arrays.kind)
    lines = [*writer.node(structure, "args", is_root=True), *writer.tests]
    if not writer.fits:
        return always_miss
    scope, names, inputs = writer.scope, writer.names, computation.graph.inputs
    scope.update(miss=MISS, static_key=static_key)
    scope.update(order_of=order_of, ascontiguousarray=np.ascontiguousarray)
    lines += _row_major(types, names)
    is_plain = all(
        each.dtype is None or each.dtype == op.dtype for each, op in zip(types, inputs, strict=True)
    )
    if computation.is_static and computation.exchange is None and is_plain:
        program = computation.program
        lines += _plain(types, inputs, names, arrays, scope)
        run = computation.ready_to_run(program)
        ran, results = running(computation, program, names, run, scope)
    else:
        scope["run"] = computation
        values = f"run({', '.join(names)})"
        ran = [f"    results = {f'({values},)' if result.is_leaf() else values}"]
        results = [f"results[{number}]" for number in range(len(computation.results))]
    body = [f"        {line}" for line in lines or ["pass"]]
    text = "\n".join([
        "def call(args):",
        "    try:",
        *body,
        "    except (KeyError, OverflowError, ValueError):",
        "        return miss",
        *ran,
        f"    return {_tree(result, results, scope)}",
    ])  # fmt: skip
    exec(compile(text, f"<weft jit of {harmless(computation.name)}>", "exec"), scope)
    computation.calls.add(scope["call"])
    return scope["call"]  # type: ignore[no-any-return]


def _row_major(types: Sequence[LeafType], names: Sequence[str]) -> Iterator[str]:
    """Yield lines that copy arrays which are not contiguous, or miss for one that has an order."""
    arrays = [
        (name, each)
        for name, each in zip(names, types, strict=True)
        if each.kind is np.ndarray and each.shape and not each.order
    ]
    if not arrays:
        return
    yield f"if not ({' and '.join(f'{name}.flags.c_contiguous' for name, _ in arrays)}):"
    if seen := "".join(f"{name}, " for name, each in arrays if each.order is not None):
        yield f"    if any(map(order_of, ({seen}))):"
        yield "        return miss"
    copied = "".join(f"{name}, " for name, _ in arrays)
    yield f"    {copied}= map(ascontiguousarray, ({copied}))"


def _plain(
    types: Sequence[LeafType],
    inputs: Sequence[Any],
    names: Sequence[str],
    arrays: DeviceArrays,
    scope: dict[str, Any],
) -> Iterator[str]:
    """Yield lines that make numbers arrays, and put arrays where the program takes them."""
    scope.update(asarray=np.asarray, of=arrays.of, from_host=arrays.from_host)
    for each, op, name in zip(types, inputs, names, strict=True):
        if each.dtype is None:
            scope[f"{name}_dtype"] = op.dtype
            array = f"asarray({name}, {name}_dtype)"
            yield f"{name} = {array if arrays is HOST else f'from_host({array})'}"
        elif each.kind is not np.ndarray:
            yield f"{name} = of({name})"
        elif arrays is not HOST:
            yield f"{name} = from_host({name})"


def _tree(structure: Structure, leaves: Sequence[str], scope: dict[str, Any]) -> str:
    """Return the expression for a tree of leaves, which are expressions."""
    if len(leaves) <= FEW:
        with suppress(_Unwritten):
            return _written(structure.unflatten(range(len(leaves))), leaves, scope)
    scope["unpack"] = structure.unflatten
    return f"unpack(({''.join(f'{leaf}, ' for leaf in leaves)}))"


def _written(tree: Any, leaves: Sequence[str], scope: dict[str, Any]) -> str:
    """Return the expression for a tree of the numbers of leaves, or raise `_Unwritten`."""
    kind = type(tree)
    if kind is int:
        return str(leaves[tree])
    if kind is dict:
        pairs = []
        for key, value in tree.items():
            name = f"k{len(scope)}"
            scope[name] = key
            pairs.append(f"{name}: {_written(value, leaves, scope)}")
        return f"{{{', '.join(pairs)}}}"
    if kind not in _CONTAINERS:
        raise _Unwritten
    if tree is None:
        return "None"
    inner = "".join(f"{_written(each, leaves, scope)}, " for each in tree)
    return f"[{inner}]" if kind is list else f"({inner})"


class _Unwritten(Exception):
    """A node that no expression makes."""


def static_key(value: Any) -> Any:
    """Return a key that tells static arguments apart that are equal, such as 1, 1.0 and True.

    So it does inside of tuples, frozen sets and frozen dataclasses.
    """
    if isinstance(value, tuple):
        return type(value), tuple(map(static_key, value))
    if isinstance(value, frozenset):
        return type(value), frozenset(map(static_key, value))
    if hasattr(type(value), "__dataclass_fields__") and type(value).__hash__ is not None:
        compared = (getattr(value, each.name) for each in fields(value) if each.compare)
        return type(value), value, tuple(map(static_key, compared))
    return type(value), attribute_key(value)


def always_miss(args: tuple[Any, ...]) -> Any:
    """Return `MISS`, whatever the arguments."""
    return MISS


class _Writer:
    """Writes the lines for each node, and names its leaves."""

    def __init__(
        self, types: Sequence[LeafType], static: Mapping[int, Any], arrays: type[Any]
    ) -> None:
        self.types = iter(types)
        self.arrays = arrays
        self.static = static
        self.scope: dict[str, Any] = {"__name__": "weft.generated"}
        self.names: list[str] = []
        self.tests: list[str] = []
        self.fits = True
        self.count = 0

    def node(self, structure: Structure, name: str, is_root: bool = False) -> Iterator[str]:
        """Yield lines that test a node and assign its children; other nodes do not fit."""
        if structure.is_leaf():
            self._leaf(name)
            return
        kind = structure.type
        if kind not in _CONTAINERS:
            self.fits = False
            return
        if kind is type(None):
            yield from _unless(f"{name} is None")
            return
        children = [self._new() for _ in structure.children()]
        if not is_root:
            self.scope.setdefault(kind.__name__, kind)
            yield from _unless(
                f"type({name}) is {kind.__name__} and len({name}) == {len(children)}"
            )
        if kind is dict:
            for child, key in zip(children, structure.entries(), strict=True):
                yield f"{child} = {name}[{self._constant(key)}]"
        elif children:
            yield f"{''.join(f'{child}, ' for child in children)}= {name}"
        elif is_root:
            yield from _unless(f"not {name}")
        for number, (child, below) in enumerate(zip(children, structure.children(), strict=True)):
            if is_root and number in self.static:
                value = self._constant(static_key(self.static[number]))
                yield from _unless(f"static_key({child}) == {value}")
            else:
                yield from self.node(below, child)

    def _new(self) -> str:
        self.count += 1
        return f"x{self.count}"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def _leaf(self, name: str) -> None:
        kind, given, shape, order = next(self.types)
        self.names.append(name)
        if kind in (np.ndarray, self.arrays):
            mine, dtype = self._constant(kind), self._constant(given)
            if all(isinstance(length, int) for length in shape):
                fits = f"{name}.shape == {tuple(shape)!r}"
            else:
                known = [
                    f"{name}.shape[{axis}] == {length}"
                    for axis, length in enumerate(shape)
                    if isinstance(length, int)
                ]
                fits = " and ".join([f"{name}.ndim == {len(shape)}", *known])
            self.tests += _unless(f"type({name}) is {mine} and {name}.dtype is {dtype}")
            if order:
                self.tests.append(f"{name} = {name}.transpose({order!r})")
                fits += f" and {name}.flags.c_contiguous"
            self.tests += _unless(fits)
        elif kind in (bool, int, float, complex):
            self.tests += _unless(f"type({name}) is {kind.__name__}")
        else:
            self.fits = False


def _unless(condition: str) -> Iterator[str]:
    yield f"if not ({condition}):"
    yield "    return miss"
