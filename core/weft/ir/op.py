"""Ops: the nodes of a graph, immutable, each with the user's line that built it.

An op class declares its attributes as annotated class fields; its arguments are positional ops.
Traversal, rebuilding, printing and hashing are generic over the two.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from weft.errors import ArgumentError, AxesError, ImmutableError, NotPicklable, WeftError
from weft.ir import scope, traversal, upcalls
from weft.ir.axes import Axes, AxesLike, make_axes
from weft.ir.dtypes import DType
from weft.plugins.contributions import base_of
from weft.plugins.entrypoints import OPS
from weft.support import source
from weft.support.locks import renewed
from weft.support.ordered_set import OrderedSet

if TYPE_CHECKING:
    from weft.ir.description import TensorDescription

T = TypeVar("T")

_serials = itertools.count()
_memo_lock = renewed(threading.RLock())
_named: weakref.WeakValueDictionary[str, Op] = weakref.WeakValueDictionary()
_naming = renewed(threading.RLock())
_put = object.__setattr__
_NO_AXES = Axes()
_SETTABLE = frozenset({"name", "metadata"})

_RESERVED = frozenset({
    "adjoint_of", "args", "axes", "dtype", "label", "location", "memo", "metadata", "name",
    "name_scope", "order", "reads", "serial",
})  # fmt: skip

AS_TEXT = "keep weft.capture(results, parameters).text(full=True), which weft.parse reads back"
"""What to do instead of pickling ops."""

op_classes: dict[str, type[Op]] = {}
"""Every op class by its name, for parsing and for listings."""


@base_of(OPS)
class Op:
    """A node of a graph.

    Parameters
    ----------
    args
        The operands.
    name, metadata
        Annotations; see the properties.
    axes
        What the axes are to be; raises AxesError unless these follow from the operands.
    fields
        The attributes that the class declares, all of them.

    Attributes
    ----------
    args
        The operands as the user wrote them.
    reads
        Parallel to `args`: for an operand that is a state, the write whose value was seen when the
        op was built, or None for the value before every write.
    axes, dtype
        What the op yields; an op that yields no tensor has no axes and the dtype None.
    label
        The name as the user gave it, before it was made unique; None without one.
    adjoint_of
        The order of the op whose gradient it is part of; None outside of gradients.
    """

    __slots__ = ("__dict__", "__weakref__", "_memo")

    args: tuple[Any, ...]
    reads: tuple[Op | None, ...]
    axes: Axes
    dtype: DType
    label: str | None = None
    adjoint_of: float | None = None
    location: source.Location
    serial: int
    _memo: dict[Any, Any]
    _name: str | None = None
    _prefix: str = ""
    _metadata: dict[str, Any] | None = None
    order: float

    fields: ClassVar[tuple[str, ...]] = ()
    _field_set: ClassVar[frozenset[str]] = frozenset()
    is_tensor: bool = False
    has_effect: ClassVar[bool] = False
    may_raise: ClassVar[bool] = False
    """Whether a call may end where it is computed; no state is written before that."""
    hands_on: ClassVar[bool] = False
    """Whether it is a step whose value is the first operand, in the same memory."""
    takes_contiguous: ClassVar[bool] = False
    """Whether its operands must be contiguous; the plan copies those that are not."""
    is_state: bool = False
    is_constant: bool = False
    graphs: ClassVar[tuple[Any, ...]] = ()
    """The graphs that it runs; those of an op that takes one as an attribute."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = (
            name
            for name, kind in inspect.get_annotations(cls).items()
            if not name.startswith("_") and "ClassVar" not in str(kind)
        )
        cls.fields = (*cls.fields, *(name for name in own if name not in cls.fields))
        taken = sorted(_RESERVED.intersection(cls.fields))
        if taken:
            raise TypeError(f"{cls.__name__}: every op has {', '.join(taken)}: rename the field")
        cls._field_set = frozenset(cls.fields)
        op_classes.setdefault(cls.__name__, cls)

    @property
    def is_exchange(self) -> bool:
        """Whether other ranks take part in it."""
        return False

    def __init__(
        self,
        *args: Op,
        name: str | None = None,
        metadata: dict[str, Any] | None = None,
        axes: AxesLike | None = None,
        **fields: Any,
    ) -> None:
        context = scope.current.get()
        if len(fields) != len(self.fields) or not fields.keys() >= self._field_set:
            raise self._refusal_of_fields(fields)
        mine = self.__dict__
        if fields:
            mine.update(fields)
        mine["args"] = args
        mine["location"] = context.location or source.user_location()
        mine["serial"] = serial = next(_serials)
        origin = context.origin
        mine["order"] = serial if origin is None else origin.order
        try:
            mine["reads"] = _versions(args, context)
        except AttributeError:
            self._require_ops()
            raise
        try:
            inferred = self.infer()
        except WeftError as error:
            raise type(error)(self.explain(error.problem)) from None
        try:
            found, dtype = inferred
            fits = found.__class__ is Axes and (dtype is None or dtype.kind)
        except (TypeError, ValueError, AttributeError):
            fits = False
        if not fits:
            raise self._refusal_of_inferred(inferred)
        if axes is not None:
            self._require_axes(found, axes)
        mine["axes"] = found
        mine["dtype"] = dtype
        if metadata is not None or context.metadata is not None:
            self.metadata = {**(context.metadata or {}), **_checked_metadata(metadata)}
        if context.prefix:
            mine["_prefix"] = context.prefix
        if context.adjoint_of is not None:
            mine["adjoint_of"] = context.adjoint_of
        if name is not None:
            self.name = name
        for recorder in context.recorders:
            recorder.append(self)

    def _refusal_of_fields(self, given: dict[str, Any]) -> ArgumentError:
        missing = [field for field in self.fields if field not in given]
        extra = [field for field in given if field not in self.fields]
        problems = []
        if missing:
            problems.append(f"misses {', '.join(missing)}")
        if extra:
            problems.append(f"has no attribute {', '.join(extra)}")
        problem, declared = " and ".join(problems), ", ".join(self.fields) or "no attributes"
        return ArgumentError(f"{type(self).__name__} {problem}: it takes {declared}")

    def _require_ops(self) -> None:
        for arg in self.args:
            if not isinstance(arg, Op):
                problem = f"operands must be ops, not {arg!r}: wrap it with weft.as_op"
                raise ArgumentError(self.explain(problem)) from None

    def _require_axes(self, found: Axes, wanted: AxesLike) -> None:
        if found != make_axes(wanted):
            problem = f"its axes are {found}, which follow from the operands, not {wanted}"
            ways = "cast_axes gives dimensions other names, axes_with_order another order"
            raise AxesError(self.explain(f"{problem}: {ways}, of the result or of an operand"))

    def _refusal_of_inferred(self, inferred: object) -> ArgumentError:
        return ArgumentError(
            self.explain(f"infer must return weft.Axes and a dtype, as a pair, not {inferred!r}")
        )

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _SETTABLE:
            raise ImmutableError(
                f"{self!r} is immutable: {name!r} cannot be set, build another op instead"
            )
        _put(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise ImmutableError(f"{self!r} is immutable: {name!r} cannot be deleted")

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value cached under a key, calling `make` on a miss.

        That is not part of the op, and copies do not have it. Of two threads that ask at once, both
        may call `make`, and both get the same result.
        """
        kept: dict[Any, T] = self._kept
        return kept[key] if key in kept else kept.setdefault(key, make())

    @property
    def _kept(self) -> dict[Any, Any]:
        if not hasattr(self, "_memo"):
            with _memo_lock:
                if not hasattr(self, "_memo"):
                    _put(self, "_memo", {})
        return self._memo

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> Any:
        raise NotPicklable(self.explain(f"{self!r} cannot be pickled: {AS_TEXT}"))

    # What a class defines

    def infer(self) -> tuple[Axes, Any]:
        """Return axes and dtype of the result from the arguments; raises if they do not fit."""
        return _NO_AXES, None

    def generate_adjoints(self, delta: Any, *args: Any) -> Iterable[Any]:
        """Return, for each argument, its share of the adjoint `delta`, or None where none flows.

        A pure function written in ops: nothing is stored on the op or its arguments.
        """
        raise NotImplementedError

    def reference(self, *args: Any) -> Any:
        """Compute the result with plain NumPy: the meaning that every backend is compared with."""
        raise NotImplementedError

    def may_overwrite(self, index: int) -> bool:
        """Whether the result may be written into the memory of the operand at an index.

        Only if each element of the result depends on that operand at the same place alone.
        """
        return False

    def view(self, operand: TensorDescription) -> TensorDescription | None:
        """Describe the result as a view of the first operand; None if it needs memory."""
        return None

    @property
    def contained(self) -> Iterable[Op]:
        """Ops that it computes inside, which the graph does not have; verified with it."""
        return ()

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        nbytes: int = self.axes.size * self.dtype.itemsize
        return nbytes

    @property
    def flops(self) -> int:
        """The arithmetic operations of one evaluation, a function such as exp counted as one.

        0 for ops that only move elements, compare them to sort, or declare nothing.
        """
        return 0

    @property
    def meaning(self) -> Op:
        """The op that this one stands for: itself, unless a schema names a composite."""
        return self

    # What the documents promise of every op

    @property
    def initializers(self) -> OrderedSet[Op]:
        """The ops that must run once before any computation that uses this op."""
        return OrderedSet()

    @property
    def other_deps(self) -> OrderedSet[Op]:
        """The writes that must come first although they are not operands; a fresh set."""
        return OrderedSet(read for read in self.reads if read is not None)

    @property
    def name(self) -> str:
        """A unique name; setting one that another living op has appends a number."""
        return self._name or f"{self._prefix}{self._default_name}_{self.serial}"

    @name.setter
    def name(self, name: str) -> None:
        if not isinstance(name, str):
            raise ArgumentError(self.explain(f"a name must be text, not {name!r}"))
        prefix = scope.current.get().prefix
        name = name if name.startswith(prefix) else prefix + name
        _put(self, "label", name)
        with _naming:
            if _named.get(name, self) is not self:
                name = f"{name}_{self.serial}"
            _named[name] = self
        _put(self, "_name", name)

    @property
    def _default_name(self) -> str:
        """What its name begins with if nobody gave it one."""
        return type(self).__name__

    def named(self, name: str) -> Self:
        """Set the name and return the op itself."""
        self.name = name
        return self

    @property
    def metadata(self) -> dict[str, Any]:
        """Entries by which ops are selected and filtered; replacements inherit them."""
        found = self._metadata
        if found is None:
            found = {}
            _put(self, "_metadata", found)
        return found

    @metadata.setter
    def metadata(self, entries: dict[str, Any]) -> None:
        _put(self, "_metadata", dict(_checked_metadata(entries)))

    @property
    def name_scope(self) -> str:
        """The names of the scopes that it was built in, with slashes between them."""
        return self._prefix[:-1]

    @property
    def filename(self) -> str:
        """The file in which the user wrote the op."""
        return source.shown(self.location[0])

    @property
    def lineno(self) -> int:
        """The line in that file."""
        return self.location[1]

    @property
    def file_info(self) -> str:
        """File and line in the form of a traceback."""
        return source.file_info(self.location)

    @property
    def is_scalar(self) -> bool:
        """Whether the op yields a tensor without axes."""
        return self.is_tensor and not self.axes

    @property
    def const(self) -> Any:
        """The value of a constant; raises ArgumentError for any other op."""
        raise ArgumentError(f"{self!r} is not a constant, it has no value before it is computed")

    def variables(self, filter: Callable[[Any], bool] | None = None) -> OrderedSet[Any]:
        """Return the variables that the op depends on, in topological order.

        Without a `filter` those that are trainable, else the states for which it is true.
        """
        if filter is not None and not callable(filter):
            raise ArgumentError(self.explain(f"filter= takes a function, not {filter!r}"))
        wanted = filter or (lambda op: op.is_trainable)
        found = (op for op in traversal.postorder([self]) if op.is_state)
        return OrderedSet(op for op in found if wanted(op))

    @staticmethod
    def ordered_ops(roots: Iterable[Op]) -> list[Op]:
        """Return every op that the roots need, each after what it depends on."""
        roots = listed("ordered_ops", roots)
        return traversal.postorder(roots, traversal.dependencies)

    saved_user_deps = staticmethod(scope.saved_user_deps)
    captured_ops = staticmethod(scope.captured_ops)
    all_ops = staticmethod(scope.all_ops)

    # Rebuilding and printing

    def attributes(self) -> dict[str, Any]:
        """Return the declared attributes by name."""
        return {name: getattr(self, name) for name in self.fields}

    @property
    def attribute_key(self) -> tuple[Hashable, ...]:
        """The declared attributes as a key that tells 1 from 1.0 and True, and 0.0 from -0.0."""
        return tuple([attribute_key(getattr(self, name)) for name in self.fields])

    def with_args(self, args: tuple[Any, ...]) -> Self:
        """Return the same op on other operands of the same axes and dtypes."""
        mine = self.__dict__.copy()
        mine["args"] = args
        mine["serial"] = next(_serials)
        mine["reads"] = (None,) * len(args)
        mine.pop("_name", None)
        new = object.__new__(type(self))
        _put(new, "__dict__", mine)
        return new

    def stand_for(self, op: Op) -> None:
        """Take the location, scope, order and metadata of an op whose place this one takes."""
        self.__dict__.update(
            location=op.location, order=op.order, adjoint_of=op.adjoint_of,
            _prefix=op._prefix, _metadata=op._metadata,
        )  # fmt: skip

    def on(self, args: tuple[Any, ...]) -> Self:
        """Return the op itself if these are its operands, else the same op on them."""
        return self if are_same(args, self.args) else self.with_args(args)

    def siblings(self, field: str, values: Iterable[tuple[Any, Axes, DType]]) -> Iterator[Self]:
        """Yield ops like this one, built right now, that differ in one attribute.

        `values` has what that is in each, with the axes and dtype that follow from it.
        """
        recorders = scope.current.get().recorders
        is_first = self.order == self.serial
        for value, axes, dtype in values:
            new = object.__new__(type(self))
            mine = new.__dict__
            mine.update(self.__dict__)
            mine[field], mine["axes"], mine["dtype"] = value, axes, dtype
            mine["serial"] = serial = next(_serials)
            if is_first:
                mine["order"] = serial
            if self._metadata is not None:
                mine["_metadata"] = dict(self._metadata)
            for recorder in recorders:
                recorder.append(new)
            yield new

    def explain(self, problem: str) -> str:
        """Return a message about this op with its line, and its operands with theirs."""
        return explain(type(self).__name__, problem, self.args, self.location)

    def __repr__(self) -> str:
        value = f": {type_of(self)}" if self.is_tensor else ""
        return f"<{type(self).__name__}({self.name}){value}, {source.short_info(self.location)}>"

    def _repr_html_(self) -> str:
        return upcalls.op_as_html(self)

    def __str__(self) -> str:
        return f"{self}: {type_of(self)}, {source.short_info(self.location)}"

    def __format__(self, form: str) -> str:
        """Return the name, as sentences have it."""
        return self.name


def next_serial() -> int:
    """Return a serial number above those of all ops so far, and below those of later ones."""
    return next(_serials)


def are_same(ops: Sequence[Op], others: Sequence[Op]) -> bool:
    """Whether two sequences hold the same ops: `==` would compare the elements of tensors."""
    return len(ops) == len(others) and all(map(is_, ops, others))


def type_of(op: Op) -> str:
    """Return the dtype and the axes of an op's value, as in ``float32(N=2, C=3)``."""
    return f"{op.dtype}{str(op.axes).removeprefix('Axes')}" if op.is_tensor else "no tensor"


def explain(
    kind: str, problem: str, args: Iterable[object], location: source.Location | None = None
) -> str:
    """Return a message with the user's line and each operand's axes, dtype and line."""
    location = location or scope.current.get().location or source.user_location()
    lines = [f"{kind}: {problem}", f"  {source.file_info(location)}"]
    for index, arg in enumerate(args):
        if isinstance(arg, Op):
            what = f"{arg.dtype} {arg.axes}" if arg.is_tensor else "no tensor"
            lines.append(f"  operand {index}: {arg} ({what}) from {arg.file_info}")
    return "\n".join(lines)


def explained(kind: str, operands: Iterable[object], function: Callable[..., T], *args: Any) -> T:
    """Call a function; an error that it raises gets the name of the op and its operands."""
    try:
        return function(*args)
    except WeftError as error:
        known = [x for x in operands if isinstance(x, Op)]
        raise type(error)(explain(kind, error.problem, known)) from None


def _versions(args: tuple[Any, ...], context: scope.BuildContext) -> tuple[Op | None, ...]:
    for arg in args:
        if arg.is_state:
            break
    else:
        return (None,) * len(args)
    pinned = context.pinned or {}
    return tuple(
        None
        if not arg.is_state
        else pinned[arg]
        if arg in pinned
        else arg.last_write(context.scope)
        for arg in args
    )


def listed(function: str, ops: Iterable[Any], may_hold: type | tuple[type, ...] = Op) -> list[Any]:
    """Return the members of a list of ops; raises ArgumentError for what is none."""
    if isinstance(ops, Op | str | bytes) or not isinstance(ops, Iterable):
        raise ArgumentError(f"{function} takes a list of ops: {function}([a, b]), not {ops!r}")
    members = list(ops)
    for op in members:
        if not isinstance(op, may_hold):
            raise ArgumentError(f"{function} takes ops, not {op!r}")
    return members


def _checked_metadata(metadata: dict[str, Any] | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise ArgumentError(f"metadata must be a dictionary, not {metadata!r}")
    return metadata


F = TypeVar("F", bound=Callable[..., Any])


def with_op_metadata(function: F) -> F:
    """Decorate a function so that the ops built in it get metadata.

    For a method of a class with a ``metadata`` dictionary, that dictionary; it may also be the
    function's own attribute of that name.

    Examples
    --------
    >>> class Layer:
    ...     metadata = {"layer": "encoder"}
    ...
    ...     @weft.with_op_metadata
    ...     def apply(self, x):
    ...         return weft.exp(x)
    >>> Layer().apply(1.0).metadata
    {'layer': 'encoder'}
    """
    if not callable(function):
        raise ArgumentError(f"with_op_metadata decorates a function, not {function!r}")

    @functools.wraps(function)
    def tagged(*args: Any, **options: Any) -> Any:
        owner = getattr(args[0], "metadata", None) if args else None
        own = getattr(tagged, "metadata", None)
        entries = own if isinstance(own, dict) else owner if isinstance(owner, dict) else {}
        with scope.metadata(**entries):
            return function(*args, **options)

    return tagged  # type: ignore[return-value]


def attribute_key(value: Any) -> Hashable:
    """Return a key that is equal for attributes of equal type and value only.

    As keys, 1, 1.0 and True are equal, and so are 0.0 and -0.0; as attributes they differ.
    """
    if type(value) is tuple:
        return tuple([attribute_key(each) for each in value])
    if isinstance(value, int | float | complex):
        return (type(value), value if isinstance(value, int) else repr(value))
    return value  # type: ignore[no-any-return]


def is_scalar(op: Op) -> bool:
    """Return whether an op yields a tensor without axes.

    Raises ArgumentError for what is not an op.

    Examples
    --------
    >>> weft.is_scalar(weft.constant(2.0)), weft.is_scalar(weft.constant([2.0]))
    (True, False)
    """
    return _checked_op("is_scalar", op).is_scalar


def is_constant(op: Op) -> bool:
    """Return whether the value of an op is known while the graph is built.

    Raises ArgumentError for what is not an op.

    Examples
    --------
    >>> weft.is_constant(weft.constant(2.0)), weft.is_constant(weft.placeholder(()))
    (True, False)
    """
    return _checked_op("is_constant", op).is_constant


def const(op: Op) -> Any:
    """Return the value of a constant as a NumPy array; raises ArgumentError for another op.

    Examples
    --------
    >>> weft.const(weft.constant([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    """
    return _checked_op("const", op).const


def _checked_op(function: str, op: object) -> Op:
    if not isinstance(op, Op):
        raise ArgumentError(f"{function} takes an op, not {op!r}")
    return op
