"""Generates the function that takes the arguments of a call apart, for one structure and types.

It tests that they are those that a program was compiled for, and runs it; flattening trees in
general takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.functional.trees import Structure
from weft.ir.lengths import Length
from weft.ir.op import attribute_key
from weft.support.quoting import harmless

MISS = object()
"""What the function returns for other arguments."""

_CONTAINERS = (tuple, list, dict, type(None))


def make_call(
    structure: Structure,
    leaves: Sequence[Any],
    shapes: Sequence[Sequence[int | Length]],
    static: Mapping[int, Any],
    run: Callable[..., Any],
    unpack: Callable[[Any], Any],
    name: str,
) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that runs a program if its positional arguments fit, else returns `MISS`.

    `structure` is that of the arguments with None for the static ones, which `static` has by
    position; `leaves` are arguments that fit, and `shapes` theirs, with lengths that may vary.
    Arguments with nodes of other kinds than Python's containers never fit.
    """
    writer = _Writer(leaves, shapes, static)
    lines = [*writer.node(structure, "args", is_root=True), *writer.tests]
    writer.scope.update(
        miss=MISS, static_key=static_key, run=run, unpack=unpack, ndarray=np.ndarray
    )
    if not writer.fits:
        return missing
    body = [f"        {line}" for line in lines or ["pass"]]
    text = "\n".join([
        "def call(args):",
        "    try:",
        *body,
        "    except (KeyError, ValueError):",
        "        return miss",
        f"    return unpack(run({', '.join(writer.names)}))",
    ])  # fmt: skip
    exec(compile(text, f"<weft jit of {harmless(name)}>", "exec"), writer.scope)
    return writer.scope["call"]  # type: ignore[no-any-return]


def static_key(value: Any) -> Any:
    """Return a key that tells static arguments apart that are equal, such as 1, 1.0 and True."""
    return type(value), attribute_key(value)


def missing(args: tuple[Any, ...]) -> Any:
    """Return `MISS`, whatever the arguments."""
    return MISS


class _Writer:
    """Writes the lines for each node, and names its leaves."""

    def __init__(
        self,
        leaves: Sequence[Any],
        shapes: Sequence[Sequence[int | Length]],
        static: Mapping[int, Any],
    ) -> None:
        self.leaves = iter(zip(leaves, shapes, strict=True))
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
        leaf, shape = next(self.leaves)
        self.names.append(name)
        kind = type(leaf)
        if kind is np.ndarray:
            dtype = self._constant(leaf.dtype)
            if all(isinstance(length, int) for length in shape):
                fits = f"{name}.shape == {tuple(shape)!r}"
            else:
                known = [
                    f"{name}.shape[{axis}] == {length}"
                    for axis, length in enumerate(shape)
                    if isinstance(length, int)
                ]
                fits = " and ".join([f"{name}.ndim == {len(shape)}", *known])
            self.tests += _unless(f"type({name}) is ndarray and {name}.dtype is {dtype} and {fits}")
        elif kind in (bool, int, float, complex):
            self.tests += _unless(f"type({name}) is {kind.__name__}")
        else:
            self.fits = False


def _unless(condition: str) -> Iterator[str]:
    yield f"if not ({condition}):"
    yield "    return miss"
