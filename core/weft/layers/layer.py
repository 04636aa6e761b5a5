"""The base of layers: initial values, checks of parameters, and how state and keys pass through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

import numpy as np

from weft.errors import ArgumentError, AxesError
from weft.functional.jit import builds_ops, run_arrays
from weft.ir import dtypes, scope
from weft.ir.axes import Axes
from weft.ir.dtypes import DTypeLike
from weft.ir.op import explain
from weft.ir.storage import as_op, placeholder
from weft.ir.tensor import TensorLike, TensorOp
from weft.layers.initial import Parameter, Shape, split
from weft.ops.random.philox import checked_key
from weft.support.spelling import UnknownAttribute, closest, instead_of

Tree = Mapping[str, Any]


class Mode(NamedTuple):
    """How a layer is called.

    Attributes
    ----------
    train
        Whether in training, where dropout drops and batch normalization uses the batch.
    key
        A key of `weft.random`, or None.
    """

    train: bool = False
    key: Any = None

    def keys(self, count: int) -> list[Mode]:
        """Return this mode with as many independent keys."""
        if self.key is None:
            return [self] * count
        parts = split(self.key, count)
        return [Mode(self.train, parts[number]) for number in range(count)]


class Layer:
    """A layer: an immutable value that makes parameters and is a function of them.

    Parameters are a dict of arrays, and of such dicts for the layers inside of it, with the names
    and layouts that they have in the ``state_dict`` of PyTorch. A layer holds none of them.

    Examples
    --------
    >>> layer, x = weft.nn.Dense(1), np.ones((8, 3), "float32")
    >>> params = layer.init(weft.random.key(0), x.shape)
    >>> loss = weft.jit(lambda params: weft.mean(weft.square(layer(params, x))))
    >>> gradients = weft.grad(loss)(params)
    >>> gradients["weight"].shape
    (1, 3)
    """

    input_dtype: DTypeLike = dtypes.DEFAULT
    is_structure: ClassVar[bool] = True
    """Whether a tree that holds it has no leaves in it."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            problem = f"{type(self).__name__} has no attribute {name!r}"
            raise UnknownAttribute(problem, lambda: instead_of(name, dir(self)))

    # What a layer defines

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        """Return its own parameters, for the shape of an input."""
        return {}

    def statistics(self, shape: Shape) -> dict[str, Parameter]:
        """Return the state that training updates besides the gradients' way."""
        return {}

    def layers(self, shape: Shape) -> dict[str, Layer]:
        """Return the layers inside of it by name."""
        return {}

    def input_shapes(self, shape: Shape) -> dict[str, Shape]:
        """Return the shape of the input of each layer inside of it."""
        return dict.fromkeys(self.layers(shape), shape)

    def apply(self, params: Tree, x: TensorOp, **options: Any) -> TensorOp:
        """Return the output of a layer that has neither state nor dropout."""
        raise NotImplementedError

    def run(
        self, params: Tree, x: TensorOp, state: Tree | None, mode: Mode, **options: Any
    ) -> tuple[TensorOp, Tree]:
        """Return the output and the new state."""
        return self.apply(params, x, **options), {}

    # What a user calls

    def init(self, key: Any, shape: Shape, dtype: DTypeLike = dtypes.DEFAULT) -> dict[str, Any]:
        """Return initial parameters for inputs of a shape.

        The distributions are those of PyTorch's layers, but biases of the result of attention are
        not zero.

        Parameters
        ----------
        key
            A key of `weft.random`, or a `numpy.random.Generator`.
        shape
            The shape of an input, with the batch axis.
        dtype
            The dtype of the parameters.

        Returns
        -------
        dict
            The parameters, arrays by name; ops if the key is traced.

        Raises
        ------
        AxesError
            If the layer does not take inputs of that shape.
        """
        if not isinstance(shape, tuple | list | Axes):
            problem = f"shape is that of an input, as in init(key, x.shape), not {shape!r:.80}"
            raise self.refusal(AxesError, problem)
        if not isinstance(key, np.random.Generator | None):
            checked_key("init", key)

        def made(key: Any) -> dict[str, Any]:
            return self._made(key, shape, dtype, lambda layer: layer.parameters)

        if isinstance(key, np.random.Generator) or builds_ops(key):
            return made(key)
        return run_arrays(made, key)  # type: ignore[no-any-return]

    def init_state(self, shape: Shape, dtype: DTypeLike = dtypes.DEFAULT) -> dict[str, Any]:
        """Return the state before training, for inputs of a shape: running statistics.

        It is an empty dict for layers without any, which are all but `BatchNorm` and those that
        contain one.

        Parameters
        ----------
        shape
            The shape of an input, with the batch axis.
        dtype
            The dtype of the state.

        Returns
        -------
        dict
            The state, arrays by name.
        """
        return self._made(None, shape, dtype, lambda layer: layer.statistics)

    def __call__(
        self,
        params: Any,
        x: TensorLike,
        state: Any = None,
        *,
        train: bool = False,
        key: Any = None,
        **options: Any,
    ) -> Any:
        """Return the output for parameters and an input; with a state, a pair with the new one.

        Parameters
        ----------
        params
            The parameters, as from `init`.
        x
            The input.
        state
            The state, as from `init_state`, or None.
        train
            Whether batch normalization uses the statistics of the batch, and dropout drops
            elements.
        key
            A key of `weft.random` for dropout in training.
        **options
            What the layer takes besides, such as the ``mask=`` of attention.

        Returns
        -------
        TensorOp or tuple
            The output, and with a state the new state.

        Raises
        ------
        ArgumentError
            If parameters have other names, a state is missing, or dropout has no key in training.
        AxesError
            If the shapes of parameters do not fit the input.
        """
        op = as_op(x)
        if not isinstance(train, bool):
            raise self.refusal(ArgumentError, f"train must be True or False, not {train!r}", op)
        with scope.numbered_scope(type(self).__name__):
            self.check(params, op)
            given = {name: _as_ops(value) for name, value in params.items()}
            y, new = self.run(given, op, state, Mode(train, key), **options)
        return y if state is None else (y, new)

    # What they share

    def _made(
        self,
        key: Any,
        shape: Shape,
        dtype: DTypeLike,
        wanted: Callable[[Layer], Callable[[Shape], dict[str, Parameter]]],
    ) -> dict[str, Any]:
        """Return a tree of initial values: those of a layer, and of the layers inside of it."""
        shape = tuple(shape)
        own, inside = wanted(self)(shape), self.layers(shape)
        names = [*own, *inside]
        parts = [None] * len(names) if key is None else split(key, len(names))
        keys = {name: parts[number] for number, name in enumerate(names)}
        kind = dtypes.as_dtype(dtype)
        made = {name: each.initial(keys[name], each.shape, kind) for name, each in own.items()}
        shapes = self.input_shapes(shape) if inside else {}
        for name, layer in inside.items():
            tree = layer._made(keys[name], shapes[name], dtype, wanted)
            if tree:
                made[name] = tree
        return made

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape of the output for the shape of an input."""
        with scope.saved_user_deps(), scope.captured_ops():
            x = placeholder(shape, self.input_dtype)
            params, state = (
                self._made(None, shape, dtypes.DEFAULT, _placeholders(each))
                for each in ("parameters", "statistics")
            )
            lengths: Shape = self.run(params, x, state, Mode())[0].axes.lengths
        return lengths

    def check(self, params: Any, x: TensorOp, where: str = "") -> None:
        """Raise ArgumentError or AxesError unless parameters fit the layer and an input."""
        shape = x.axes.lengths
        own, inside = self.parameters(shape), self.layers(shape)
        given = set(params) if isinstance(params, Mapping) else None
        if given is None or not set(own) <= given <= {*own, *inside}:
            shown = f"those named {', '.join(sorted(given))}" if given else "none"
            names = [*own, *inside]
            unknown = sorted((given or set()) - {*names}, key=str)
            close = [(each, closest(str(each), names)) for each in unknown]
            meant = [f"{each} in the place of {name}" for each, name in close if name]
            hint = f" ({', '.join(meant)})" if meant else ""
            problem = (
                f"its parameters are {', '.join(names) or 'none'}, not {shown}{where}{hint}: take "
                "those that its init made"
            )
            raise self.refusal(ArgumentError, problem, x)
        for name, each in own.items():
            found = as_op(params[name]).axes.lengths
            if found != each.shape:
                problem = f"an input of shape {shape} needs {name} of shape {each.shape}"
                raise self.refusal(AxesError, f"{problem}, but it has {found}", x)

    def refusal(self, kind: type[Exception], problem: str, *ops: TensorOp) -> Exception:
        """Return an error that names the layer and the user's line."""
        return kind(explain(repr(self), problem, ops))

    def features(self, shape: Shape, least: int = 1) -> int:
        """Return the length of the last axis; raises AxesError for too few axes, or if unknown."""
        if len(shape) < least or not isinstance(shape[-1], int):
            axes = "an axis" if least == 1 else f"{least} axes"
            problem = f"takes inputs with {axes} or more, the last of known length, not {shape}"
            raise self.refusal(AxesError, problem)
        return shape[-1]

    def inside(
        self,
        name: str,
        layer: Layer,
        params: Tree,
        x: TensorOp,
        state: Tree | None = None,
        mode: Mode | None = None,
        **options: Any,
    ) -> tuple[TensorOp, Tree]:
        """Return the output and the new state of a layer inside of it."""
        mine, own = (None if tree is None else tree.get(name, {}) for tree in (params, state))
        with scope.name_scope(name):
            layer.check(mine, x, f" in params[{name!r}]")
            return layer.run(mine or {}, x, own, mode or Mode(), **options)


def _as_ops(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_ops(each) for name, each in value.items()}
    return as_op(value)


def _placeholders(
    kind: str,
) -> Callable[[Layer], Callable[[Shape], dict[str, Parameter]]]:
    """Return what replaces the initial values of a layer by placeholders."""

    def made(layer: Layer) -> Callable[[Shape], dict[str, Parameter]]:
        def parameters(shape: Shape) -> dict[str, Parameter]:
            found: dict[str, Parameter] = getattr(layer, kind)(shape)
            return {name: Parameter(each.shape, _placeholder) for name, each in found.items()}

        return parameters

    return made


def _placeholder(source: Any, shape: Shape, dtype: Any) -> Any:
    return placeholder(shape, dtype)
