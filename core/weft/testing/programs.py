"""Programs that read and write states, with their expected results: the semantics of order in weft.

Each takes a transformer and returns numbers. Each is small and specifies one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any

import weft
from weft.errors import StateError
from weft.ir.storage import AssignableTensorOp
from weft.runtime.transformer import Transformer


def numbers(results: Iterable[Any]) -> list[float | None]:
    """Return scalar results as Python numbers, and None for ops without a value."""
    return [None if result is None else result.item() for result in results]


def _counter() -> Any:
    return weft.variable((), initial_value=0)


def _guarded(state: AssignableTensorOp) -> Any:
    with weft.saved_user_deps():
        return weft.assign(state, state + 1)


def _three_calls(computation: Any) -> list[float | None]:
    return numbers(computation() for _ in range(3))


def read_after_write(transformer: Transformer) -> Any:
    """An op built after an assignment reads the new value."""
    x = weft.placeholder((), initial_value=0)
    weft.assign(x, 5)
    return transformer.computation(x + 1)().item()


def read_before_write(transformer: Transformer) -> Any:
    """An op built before an assignment reads the old value."""
    x = weft.placeholder((), initial_value=0)
    z = x + 1
    weft.assign(x, 5)
    return transformer.computation(z)().item()


def both_versions(transformer: Transformer) -> Any:
    """Each op of a computation reads the version of the state at its construction."""
    x = weft.placeholder((), initial_value=0)
    before = x + 1
    weft.assign(x, 5)
    return numbers(transformer.computation([before, x + 1])())


def plain_assign(transformer: Transformer) -> Any:
    """A computation of a state runs the writes made so far."""
    w = _counter()
    weft.assign(w, w + 1)
    return _three_calls(transformer.computation(w))


def guarded_assign(transformer: Transformer) -> Any:
    """A write in its own scope is not part of other computations."""
    w = _counter()
    _guarded(w)
    return _three_calls(transformer.computation(w))


def named_update(transformer: Transformer) -> Any:
    """A scoped write runs if it is a result; a state among the results is read after all writes."""
    w = _counter()
    update = _guarded(w)
    computation = transformer.computation([w, update])
    return [numbers(computation()) for _ in range(3)]


def update_first(transformer: Transformer) -> Any:
    """The order of results does not matter."""
    w = _counter()
    update = _guarded(w)
    computation = transformer.computation([update, w])
    return [numbers(computation()) for _ in range(2)]


def computation_first(transformer: Transformer) -> Any:
    """A write built after the computation is not part of it."""
    w = _counter()
    computation = transformer.computation(w)
    weft.assign(w, w + 1)
    return _three_calls(computation)


def computation_in_scope(transformer: Transformer) -> Any:
    """A computation made inside a scope includes its writes; the state is shared."""
    w = _counter()
    with weft.saved_user_deps():
        weft.assign(w, w + 1)
        inner = transformer.computation(w)
    outer = transformer.computation(w)
    return numbers(call() for call in (outer, inner, outer, inner, outer))


def scope_entered_again(transformer: Transformer) -> Any:
    """A scope can be entered again, and its writes are seen there."""
    w = weft.variable((), initial_value=2)
    with weft.saved_user_deps() as inner:
        weft.assign(w, w * 5)
    with weft.saved_user_deps(inner):
        z = w + 10
    return numbers([transformer.computation(z)(), transformer.computation(w + 10)()])


def chain_of_writes(transformer: Transformer) -> Any:
    """Writes happen in the order in which they were built."""
    w = weft.variable((), initial_value=1)
    weft.assign(w, w * 2)
    weft.assign(w, w + 3)
    return transformer.computation(w * 10)().item()


def read_and_pruned(transformer: Transformer) -> Any:
    """An expression that simplifies to a read of a state is not a state, and causes no cycle."""
    w = weft.variable((), initial_value=0)
    weft.assign(w, w + 1)
    return transformer.computation(w + 0 * w)().item()


def final_and_read(transformer: Transformer) -> Any:
    """A state as a result is its final value; an expression reads its version, even if pruned."""
    w = _counter()
    update = _guarded(w)
    return numbers(transformer.computation([w, w + 0, update])())


def interleaved_updates(transformer: Transformer) -> Any:
    """A gradient reads the same version as the forward computation, regardless of later writes."""
    p, q = weft.variable((), initial_value=2), weft.variable((), initial_value=3)
    product = p * q
    weft.assign(p, p - weft.deriv(product, p))
    weft.assign(q, q - weft.deriv(product, q))
    return numbers(transformer.computation([p, q])())


def old_value_kept(transformer: Transformer) -> Any:
    """A value built after a scoped write can be combined with the state outside."""
    w = _counter()
    with weft.saved_user_deps():
        weft.assign(w, w + 1)
        z = w * 10
    computation = transformer.computation(w + z)
    return numbers(computation() for _ in range(2))


def root_scope_is_shared(transformer: Transformer) -> Any:
    """A computation made in another thread sees the plain writes."""
    w = _counter()
    weft.assign(w, w + 1)
    made: list[Any] = []
    thread = Thread(target=lambda: made.append(transformer.computation(w)))
    thread.start()
    thread.join()
    return _three_calls(made[0])


def fork_is_refused(transformer: Transformer) -> Any:
    """Two writes of one version are ambiguous."""
    w = _counter()
    weft.assign(w, w + 1)
    other = _guarded(w)
    try:
        transformer.computation([w, other])
    except StateError as error:
        return str(error).count("write:")
    return "accepted"


def swap(transformer: Transformer) -> Any:
    """Two states are swapped through a saved value."""
    a, b = weft.variable((2,), initial_value=[1, 2]), weft.variable((2,), initial_value=[3, 4])
    old = weft.value_of(a)
    weft.assign(a, b)
    weft.assign(b, old)
    computation = transformer.computation([a, b])
    computation()
    computation()
    return [array.tolist() for array in computation()]


def reversed_in_place(transformer: Transformer) -> Any:
    """A write of a state from a view of itself reads the whole view first."""
    w = weft.variable((5,), initial_value=[1, 2, 3, 4, 5])
    weft.assign(w, w[::-1])
    computation = transformer.computation(w)
    return [computation().tolist(), computation().tolist()]


def shifted_in_place(transformer: Transformer) -> Any:
    """A write of a slice from an overlapping slice reads the whole slice first."""
    w = weft.variable((5,), initial_value=[1, 2, 3, 4, 5])
    w[1:] = w[:-1]
    return transformer.computation(w)().tolist()


def transposed_in_place(transformer: Transformer) -> Any:
    """A write of a state from its transpose reads the whole transpose first."""
    w = weft.variable((2, 2), initial_value=[[1, 2], [3, 4]])
    weft.assign(w, weft.transpose(w) + w)
    return transformer.computation(w)().tolist()


def sequence(transformer: Transformer) -> Any:
    """The members of a sequence run in order; the value is the last one's."""
    w = _counter()
    with weft.saved_user_deps():
        ordered = weft.sequential([weft.assign(w, 3), weft.assign(w, w * w), w + 1])
    computation = transformer.computation(ordered)
    return [computation().item(), computation().item(), transformer.get_value(w).item()]


def group(transformer: Transformer) -> Any:
    """A group runs all its writes and yields nothing."""
    v, w = _counter(), _counter()
    both = weft.doall([_guarded(v), _guarded(w)])
    computation = transformer.computation([both, v, w])
    computation()
    return numbers(computation())


def initialized_from_another(transformer: Transformer) -> Any:
    """An initial value may be an op on another state; initializers run once."""
    v = weft.variable((), initial_value=4)
    w = weft.variable((), initial_value=v * 2)
    weft.assign(w, w + 1)
    first, second = transformer.computation(w), transformer.computation([v, w])
    return [first().item(), *numbers(second())]


def unset_states(transformer: Transformer) -> Any:
    """A state is read once it has a value; a placeholder that is not a parameter is a state."""
    w, x = weft.variable((2,), initial_value=0), weft.placeholder((2,))
    computation = transformer.computation(w + x + 1)
    try:
        computation()
    except weft.errors.StateError:
        transformer.set_value(x, [2, 3])
        return computation().tolist()
    return "read without a value"


PROGRAMS: list[tuple[str, Callable[[Any], Any], Any]] = [
    (program.__name__, program, expected)
    for program, expected in (
        (read_after_write, 6),
        (read_before_write, 1),
        (both_versions, [1, 6]),
        (plain_assign, [1, 2, 3]),
        (guarded_assign, [0, 0, 0]),
        (named_update, [[1, None], [2, None], [3, None]]),
        (update_first, [[None, 1], [None, 2]]),
        (computation_first, [0, 0, 0]),
        (computation_in_scope, [0, 1, 1, 2, 2]),
        (scope_entered_again, [20, 20]),
        (chain_of_writes, 50),
        (read_and_pruned, 1),
        (final_and_read, [1, 0, None]),
        (interleaved_updates, [-1, 1]),
        (old_value_kept, [10, 21]),
        (root_scope_is_shared, [1, 2, 3]),
        (fork_is_refused, 2),
        (swap, [[3, 4], [1, 2]]),
        (reversed_in_place, [[5, 4, 3, 2, 1], [1, 2, 3, 4, 5]]),
        (shifted_in_place, [1, 1, 2, 3, 4]),
        (transposed_in_place, [[2, 5], [5, 8]]),
        (sequence, [10, 10, 9]),
        (group, [None, 2, 2]),
        (initialized_from_another, [9, 4, 10]),
        (unset_states, [3, 4]),
    )
]
"""Name, program, and expected result."""
