"""Ranks whose constants and initial values are the same or not, one case after the other.

Argument: the folder to write to what each rank says of each case, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.communicators import connected
from weft.errors import CommunicationError

ranks = connected()
mine = ranks.rank
LARGE = 100  # elements; values of constants that are small are looked at in another place


def total(x: Any) -> Any:
    """Return a result in which all ranks take part."""
    return weft.all_reduce(weft.sum(x))


def array(size: int = LARGE) -> Any:
    """Return an array of this rank, which differs in the last element only."""
    values = np.zeros(size, "float32")
    values[-1] = mine
    return values


def weights(initial_value: Any = None, size: int = LARGE) -> Any:
    """Return a state with an initial value."""
    return weft.variable((size,), initial_value=initial_value, name="weights")


def of_another(value: Any) -> Any:
    """Return a state whose initial value is computed from that of another one."""
    return weights(weft.square(weft.variable((LARGE,), initial_value=value, name="other")))


def called(value: Any) -> Any:
    """Return a result of a graph that is called, and has a constant."""
    x = weft.placeholder((LARGE,))
    graph = weft.capture([x + weft.constant(value)], [x])
    return total(*weft.call(graph, weights(1.0)))


CASES: dict[str, Callable[[], Any]] = {
    "same array": lambda: total(weights(np.ones(LARGE) / 2)),
    "same seed": lambda: total(weights(weft.uniform((LARGE,), seed=3, stream=1))),
    "by rank": lambda: total(
        weights(weft.ones((LARGE,)) * weft.cast(weft.rank_index(), "float32"))
    ),
    "broadcast": lambda: total(weights(weft.broadcast_from(array() + 1))),
    "broadcast from the last": lambda: total(weights(weft.broadcast_from(array() + 1, 1))),
    "cast and broadcast": lambda: total(
        weights(weft.broadcast_from(weft.cast(weft.constant(array(), dtype="float64"), "float32")))
    ),
    "broadcast of a constant": lambda: total(weft.broadcast_from(array())),
    "set": lambda: total(weights(array())),
    "not shared": lambda: weft.sum(weights(array())),
    "array": lambda: total(weights(array())),
    "small array": lambda: total(weights(array(2), 2)),
    "number": lambda: total(weights(float(mine))),
    "seed": lambda: total(weights(weft.uniform((LARGE,), seed=mine, stream=1))),
    "order": lambda: total(
        weights(
            weft.subtract(*[weft.uniform((LARGE,), stream=1), weft.ones((LARGE,))][:: 2 * mine - 1])
        )
    ),
    "missing": lambda: total(weights(1.0 if mine else None)),
    "another": lambda: total(of_another(array())),
    "written only": lambda: [weft.assign(weights(array()), 2.0), total(1.0)],
    "constant": lambda: total(weft.constant(array())),
    "result": lambda: [weft.constant(array()), total(1.0)],
    "assigned": lambda: [weft.assign(weights(1.0), array()), total(1.0)],
    "called": lambda: called(array()),
    "broadcast and used": lambda: total(weft.broadcast_from(c := weft.constant(array())) + c),
}
heard = {}
for name, build in CASES.items():
    with weft.make_transformer("numpy") as transformer:
        try:
            result = build()
            if name == "set":
                (state,) = result.variables()
                transformer.set_value(state, array())
            heard[name] = str(np.asarray(transformer.computation(result)()).tolist())
        except CommunicationError as error:
            heard[name] = str(error)
Path(sys.argv[1], f"rank{mine}.json").write_text(json.dumps(heard))
