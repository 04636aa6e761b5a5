"""Layers one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.errors import ArgumentError
from weft.ir.tensor import TensorOp
from weft.layers.initial import Shape
from weft.layers.layer import Layer, Mode, Tree
from weft.support.backports import override


@dataclass(frozen=True)
class _Function(Layer):
    """A function of one tensor as a layer."""

    function: Callable[[Any], Any]

    @override
    def apply(self, params: Tree, x: TensorOp, **options: Any) -> TensorOp:
        return self.function(x)  # type: ignore[no-any-return]


@dataclass(frozen=True, init=False)
class Sequential(Layer):
    """Layers, or functions of one tensor, each of which takes the output of the one before.

    Parameters and state are dicts by the number of a layer as text, without layers that have none.

    Parameters
    ----------
    *members
        The layers and functions in order.

    Raises
    ------
    ArgumentError
        If a member is neither.

    Examples
    --------
    >>> model = weft.nn.Sequential(weft.nn.Conv(8, 3), weft.relu, weft.nn.Conv(1, 1))
    >>> model.output_shape((1, 3, 32, 32))
    (1, 1, 30, 30)
    >>> sorted(model.init(weft.random.key(0), (1, 3, 32, 32)))
    ['0', '2']
    """

    members: tuple[Layer, ...]

    def __init__(self, *members: Layer | Callable[[Any], Any]) -> None:
        for number, each in enumerate(members):
            if not callable(each) or isinstance(each, type):
                problem = f"member {number} must be a layer or a function, not {each!r:.80}"
                if isinstance(each, list | tuple):
                    problem = f"{problem}: write Sequential(*layers)"
                raise ArgumentError(f"Sequential: {problem}")
        found = [each if isinstance(each, Layer) else _Function(each) for each in members]
        object.__setattr__(self, "members", tuple(found))

    @override
    def layers(self, shape: Shape) -> dict[str, Layer]:
        return {str(number): layer for number, layer in enumerate(self.members)}

    @override
    def input_shapes(self, shape: Shape) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {}
        for name, layer in self.layers(shape).items():
            shapes[name] = shape
            shape = layer.output_shape(shape)
        return shapes

    @override
    def run(
        self, params: Tree, x: TensorOp, state: Tree | None, mode: Mode, **options: Any
    ) -> tuple[TensorOp, Tree]:
        after: dict[str, Tree] = {}
        modes = mode.keys(len(self.members))
        for (name, layer), each in zip(self.layers(x.axes.lengths).items(), modes, strict=True):
            x, new = self.inside(name, layer, params, x, state, each)
            if new:
                after[name] = new
        return x, after
