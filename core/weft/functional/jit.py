"""`jit`: compiles a function of trees of arrays, once for each structure, dtype and shape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError
from weft.functional import trees
from weft.functional.arguments import Arguments, Dynamic, DynamicLengths
from weft.functional.call import (
    MISS,
    LeafType,
    Order,
    always_miss,
    make_call,
    order_of,
    static_key,
)
from weft.functional.retraces import count_trace
from weft.functional.tracing import (
    Function,
    array_of,
    holds_ops,
    is_tracing,
    location_of,
    name_of,
    parameters_for,
    trace,
)
from weft.functional.trees import Structure
from weft.ir.graph import Graph
from weft.ops.shape.movement import transpose
from weft.runtime.computation import Computation
from weft.runtime.device_arrays import HOST
from weft.runtime.factory import Chosen, make_transformer
from weft.runtime.transformer import Transformer
from weft.support import source
from weft.support.spelling import closest
from weft.transforms.computation_op import ComputationOp

if TYPE_CHECKING:
    from asyncio import Future

_USUAL = frozenset(map(np.dtype, ("float32", "float64", "int32", "int64", "bool")))
"""Dtypes of NumPy that need no second look."""


class _Compiled(NamedTuple):
    """A function for one structure of arguments.

    Attributes
    ----------
    computation
        The computation of their leaves.
    result
        The structure of the results.
    calls
        The functions that take arguments apart, by the classes of leaves.
    """

    computation: Computation
    result: Structure
    calls: dict[tuple[type[Any], ...], Callable[[tuple[Any, ...]], Any]]

    def packed(self, results: Any) -> Any:
        """Return the results of the computation in their structure."""
        return results if self.result.is_leaf() else trees.unflatten(self.result, results)


class JittedFunction:
    """A function that `jit` has wrapped: called like the original, it runs compiled.

    Attributes
    ----------
    transformer
        The transformer that compiles it; made at the first call, unless one was given.
    """

    def __init__(
        self,
        function: Function,
        backend: Chosen | Transformer | None,
        static_argnums: int | Iterable[int],
        static_argnames: str | Iterable[str],
        dynamic: Dynamic,
        donate_argnums: int | str | Iterable[int | str],
        device: bool | int | str,
        options: Mapping[str, Any],
    ) -> None:
        update_wrapper(self, function)
        self._function = function
        self._name = name_of(function)
        self._arguments = Arguments(function)
        self._static = self._arguments.named("static_argnums", static_argnums)
        self._static |= self._arguments.named("static_argnames", static_argnames)
        self._dynamic = None if dynamic is None else DynamicLengths(self._arguments, dynamic)
        self._donated = self._arguments.named("donate_argnums", donate_argnums)
        both = ", ".join(sorted(self._static & self._donated))
        if both:
            problem = f"{both} is static, and has no memory to donate"
            raise ArgumentError(f"jit of {self._name}: {problem}")
        self._on_device = device is True
        if not isinstance(device, bool):
            options = {"device": device, **options}
        self._given = backend if isinstance(backend, Transformer) else None
        if isinstance(backend, Transformer):
            if options:
                problem = f"{', '.join(options)} are options of a backend by its name"
                raise ArgumentError(f"jit of {self._name}: {problem}")
            self._make: Callable[[], Transformer] = lambda: backend
        else:
            self._make = partial(make_transformer, backend, **options)
        self._compiled: dict[Any, _Compiled] = {}
        self._latest: Callable[[tuple[Any, ...]], Any] = always_miss

    @cached_property
    def transformer(self) -> Transformer:
        """The transformer that compiles it."""
        return self._make()

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run the function, compiled for the structure, dtypes and shapes of these arguments.

        Results are arrays in the structure that the function returned. Where an argument is
        an op, or in a function that is being traced, the function builds ops. Raises ArgumentError
        for an argument that is not a tree of arrays, and whatever the function raises in its trace.
        """
        if is_tracing():
            return self._function(*args, **options)
        if not options:
            result = self._latest(args)
            if result is not MISS:
                return result
        leaves, structure, static = self._flattened(args, options)
        if holds_ops(leaves):
            return self._function(*args, **options)
        compiled, arrays, orders = self._prepared(leaves, structure, static)
        results = compiled.computation(*arrays)
        if not options:
            kinds = tuple(map(type, leaves))
            if kinds not in compiled.calls:
                compiled.calls[kinds] = self._call_of(compiled, leaves, orders, structure, static)
            self._latest = compiled.calls[kinds]
        return compiled.packed(results)

    def call_async(self, *args: Any, **options: Any) -> Future[Any]:
        """Start a call, and return its future, which a coroutine awaits for the results.

        The function is traced, if need be, before this returns; compilation and the call follow as
        in `Computation.call_async`. Raises ArgumentError where a call would build ops.
        """
        leaves, structure, static = self._flattened(args, options)
        if is_tracing() or holds_ops(leaves):
            problem = "takes ops or is traced here, and ops have no values to wait for"
            raise ArgumentError(f"{self._name} {problem}: make an ordinary call")
        compiled, arrays, _ = self._prepared(leaves, structure, static)
        return compiled.computation.start(lambda: compiled.packed(compiled.computation(*arrays)))

    def lower(self, *args: Any, **options: Any) -> Computation:
        """Return the computation that a call with these arguments runs, compiled.

        It has the graph, the plan and the source; its `report` writes them to a page, its
        `profile` says where time goes; its `save` writes an artifact. It takes the leaves of the
        arguments one by one, as C-contiguous arrays, and returns an array, or a tuple of the leaves
        of another result.
        """
        leaves, structure, static = self._flattened(args, options)
        arrays = self._arrays(leaves, structure)
        orders = [None] * len(arrays)
        computation = self._compiled_for(arrays, orders, structure, static).computation
        computation.program_for(*arrays)
        return computation

    def _flattened(
        self, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> tuple[list[Any], Structure, tuple[Any, ...]]:
        """Return the leaves of arguments that are traced, their structure, and the static ones."""
        if not self._static:
            return *trees.flatten((args, options)), ()
        static: list[Any] = []
        traced: list[Any] = []
        for index, arg in enumerate(args):
            name = self._arguments.at(index)
            is_static = name in self._static
            traced.append(None if is_static else arg)
            if is_static:
                static.append((index, self._hashable(name, arg)))
        named = {name: arg for name, arg in options.items() if name not in self._static}
        static += [
            (name, self._hashable(name, options[name])) for name in options if name in self._static
        ]
        return *trees.flatten((tuple(traced), named)), tuple(static)

    def _hashable(self, name: str, value: Any) -> tuple[Any, Any]:
        """Return a static argument with what tells it from equal ones, such as 1 and True."""
        try:
            hash(value)
        except TypeError:
            problem = f"the static argument {name} must be hashable, not {value!r:.80}"
            way = "give a tuple for a list"
            if hasattr(value, "__array__"):
                way = "an array is traced, so do not make it static"
            raise ArgumentError(f"{self._name}: {problem}: {way}") from None
        return static_key(value), value

    def _arrays(self, leaves: Sequence[Any], structure: Structure) -> list[Any]:
        if all(type(leaf) is np.ndarray and leaf.dtype in _USUAL for leaf in leaves):
            return list(leaves)
        way = "make {0} static, as in jit(f, static_argnames=({0!r},)), or bring it by a lambda"
        return [
            self._array(leaf, f"{self._name}: the argument {name}", way.format(root))
            for leaf, (root, name) in zip(leaves, self._paths(structure), strict=True)
        ]

    def _array(self, leaf: Any, what: str, way: str) -> Any:
        """Return a leaf as an array of the host, or of the device if it is there and may be."""
        found = self.transformer.device_arrays.of(leaf) if self._on_device else None
        if found is not None:
            return found
        try:
            return array_of(leaf, what, way)
        except ArgumentError:
            arrays = self.transformer.device_arrays
            if arrays is HOST or not isinstance(leaf, arrays.kind):
                raise
            problem = "is an array on the device, which jit(f, device=True) takes"
            raise ArgumentError(f"{what} {problem}; or copy it to the host") from None

    def _paths(self, structure: Structure) -> list[tuple[str, str]]:
        """Return the argument of each leaf, and how the leaf is written: ``params['w']``."""
        return [self._arguments.path(accessor) for accessor in structure.accessors()]

    def _prepared(
        self, leaves: Sequence[Any], structure: Structure, static: tuple[Any, ...]
    ) -> tuple[_Compiled, list[Any], list[Order | None]]:
        """Return what is compiled for leaves, the arrays that it takes, and their orders."""
        arrays = self._arrays(leaves, structure)
        orders = [None if self._donated else order_of(array) for array in arrays]
        compiled = self._compiled_for(arrays, orders, structure, static)
        return compiled, list(map(_arranged, arrays, orders)), orders

    def _compiled_for(
        self,
        arrays: Sequence[Any],
        orders: Sequence[Order | None],
        structure: Structure,
        static: tuple[Any, ...],
    ) -> _Compiled:
        """Return what is compiled for arguments whose axes lie in these orders in memory."""
        shapes: list[Any] = [array.shape for array in arrays]
        if self._dynamic is not None:
            each = zip(self._paths(structure), shapes, strict=True)
            shapes = [self._dynamic.within(root, name, shape) for (root, name), shape in each]
        lie = tuple([(shape, order or ()) for shape, order in zip(shapes, orders, strict=True)])
        key = structure, static, tuple([array.dtype for array in arrays]), lie
        compiled = self._compiled.get(key)
        if compiled is None:
            count_trace(self._function, self._name, key, self._compiled)
            types = [
                ([shape[axis] for axis in order] if order else shape, array.dtype)
                for (shape, order), array in zip(lie, arrays, strict=True)
            ]
            computation, result = self._trace(types, orders, structure, static)
            compiled = self._compiled[key] = _Compiled(computation, result, {})
        return compiled

    def _call_of(
        self,
        compiled: _Compiled,
        leaves: Sequence[Any],
        orders: Sequence[Order | None],
        structure: Structure,
        static: Iterable[tuple[Any, Any]],
    ) -> Callable[[tuple[Any, ...]], Any]:
        """Return the function that takes positional arguments like these apart."""
        by_position = {where: value for where, (_, value) in static if isinstance(where, int)}
        types = [
            LeafType(type(leaf), getattr(leaf, "dtype", None), op.axes.lengths, order)
            for leaf, op, order in zip(
                leaves, compiled.computation.graph.inputs, orders, strict=True
            )
        ]
        positional = trees.children(structure)[0]
        return make_call(positional, types, by_position, compiled.computation, compiled.result)

    def _trace(
        self,
        types: Sequence[tuple[Any, Any]],
        orders: Sequence[Order | None],
        structure: Structure,
        static: Iterable[tuple[Any, Any]],
    ) -> tuple[Computation, Structure]:
        paths = self._paths(structure)
        names = [name for _, name in paths]
        static_too = {name for root, name in paths if root == name}
        parameters = parameters_for(self._function, names, types, static_too)
        traced, options = trees.unflatten(structure, list(map(_original, parameters, orders)))
        args = list(traced)
        for where, (_, value) in static:
            if isinstance(where, int):
                args[where] = value
            else:
                options[where] = value
        found = trace(
            partial(self._function, *args, **options),
            parameters,
            self._name,
            may_write=self._given is not None,
        )
        is_one = found.structure.is_leaf()
        op = ComputationOp(
            results=found.graph.outputs[0] if is_one else found.graph.outputs,
            parameters=tuple(parameters),
            graph=found.graph,
        )
        computation = self.transformer.computation(op, name=self._name)
        if self._on_device:
            computation.keep_on_device()
        if self._donated:
            roots = [root for root, _ in self._paths(structure)]
            given = [number for number, root in enumerate(roots) if root in self._donated]
            computation.donate(_takers(found.graph, given))
        return computation, found.structure

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __repr__(self) -> str:
        location = location_of(self._function)
        where = f", {source.short_info(location)}" if location else ""
        return f"<jit of {self._name}{where}>"


def jit(
    function: Function | None = None,
    *,
    backend: Chosen | Transformer | None = None,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    dynamic: Dynamic = None,
    donate_argnums: int | str | Iterable[int | str] = (),
    device: bool | int | str = False,
    **options: Any,
) -> Any:
    """Return a function that compiles another one for the arguments of each call, and runs it.

    Also a decorator, with or without arguments. The function takes and returns trees of arrays:
    tuples, lists, dicts, named tuples, dataclasses and None, nested in any way. At the first call
    for a structure, dtypes and shapes it is traced: called once, with ops in place of arrays. Later
    calls run the compiled program. What the function does besides building ops happens at the trace
    only.

    Parameters
    ----------
    function
        The function; without it `jit` returns a decorator.
    backend, **options
        The backend by name, with its options, as in `make_transformer`; or a transformer, whose
        states the function may then use.
    static_argnums, static_argnames
        Arguments that the function sees as they are, by position or by name: hashable values, such
        as strings, shapes or numbers that decide what is built. Each value is traced by itself.
    dynamic
        Lengths that vary from call to call without a new trace. A name is the length of the leading
        axis of every array; a dict says it by argument, with a name for the leading axis or a dict
        from axis to name: ``dynamic={"x": "batch", "mask": {1: "time"}}``. A `weft.symbol` serves
        as a name, too.
    donate_argnums
        Arguments that nobody needs after the call, by position or by name, such as parameters that
        are updated. Results of the same shapes and dtypes are computed in their memory, so the
        arrays that were given hold results afterwards, or anything if the call raises: do not use
        them. Read-only arrays, and those that share memory with others, are copied first. Results
        have memory of their own on the backend ``array``.
    device
        With True results stay on the device of the backend, as arrays of its library, which are
        arguments as they are: those of CuPy on ``cupy``, those of PyOpenCL on ``opencl``. Other
        arguments are copied there. On backends of the host these are NumPy's arrays in any case. A
        number or a name is the device itself, an option of the backend.

    Returns
    -------
    JittedFunction
        A function that returns NumPy arrays in the structure of the results. Where an argument is
        an op, or in a function that is being traced, it builds ops.

    Raises
    ------
    ArgumentError
        If what is given is not a function, or an argument that is named does not exist; at a call
        if an argument is not a tree of arrays, or a result is none.

    Examples
    --------
    >>> @weft.jit
    ... def normalized(batch):
    ...     return {"x": batch["x"] / weft.sum(batch["x"]), "n": batch["n"] + 1}
    >>> normalized({"x": np.ones(4), "n": 1})
    {'x': array([0.25, 0.25, 0.25, 0.25]), 'n': array(2)}
    >>> power = weft.jit(lambda x, n: x**n, static_argnames="n")
    >>> power(np.array([1.0, 2.0, 3.0]), n=2)
    array([1., 4., 9.])
    """
    if function is None:
        return partial(
            jit,
            backend=backend,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            dynamic=dynamic,
            donate_argnums=donate_argnums,
            device=device,
            **options,
        )
    for option in options:
        close = closest(option, inspect.signature(jit).parameters, cutoff=0.8)
        if close:
            raise ArgumentError(f"jit has no {option}=. Did you mean {close!r}?")
    if not callable(function):
        raise ArgumentError(f"jit takes a function, not {function!r:.80}")
    return JittedFunction(
        function, backend, static_argnums, static_argnames, dynamic, donate_argnums, device, options
    )


def _arranged(array: Any, order: Order | None) -> Any:
    """Return an array with its axes in the order of memory."""
    return array.transpose(order) if order else array


def _original(parameter: Any, order: Order | None) -> Any:
    """Return a parameter, whose axes are in the order of memory, with those of the argument."""
    if not order:
        return parameter
    return transpose(parameter, [order.index(axis) for axis in range(len(order))])


def _takers(graph: Graph, given: Iterable[int]) -> dict[int, int]:
    """Return the results that take over the memory of some arguments, each by number.

    Results and arguments of one shape and dtype are paired in their order.
    """
    free: dict[Any, list[int]] = {}
    for number in given:
        op = graph.inputs[number]
        free.setdefault((op.axes.lengths, op.dtype), []).append(number)
    found: dict[int, int] = {}
    for result, output in enumerate(graph.outputs):
        alike = free.get((output.axes.lengths, output.dtype))
        if alike:
            found[result] = alike.pop(0)
    return found


def builds_ops(tree: Any) -> bool:
    """Whether a function of such arguments is to build ops: one is an op, or it is traced."""
    return bool(is_tracing()) or holds_ops(trees.flatten(tree)[0])


def run_arrays(function: Function, *args: Any, **options: Any) -> Any:
    """Trace a function for these arguments, and run what it built once."""
    compiled = JittedFunction(function, None, (), (), None, (), False, {})
    with compiled.transformer:
        return compiled(*args, **options)


def running_arrays(transformed: Function, function: Function, transform: str) -> Function:
    """Return a transformed function that takes arrays too, and then runs what it builds."""
    if not callable(function):
        raise ArgumentError(f"{transform} takes a function, not {function!r:.80}")

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if builds_ops((args, options)):
            return transformed(*args, **options)
        return run_arrays(wraps(function)(transformed), *args, **options)

    return called
