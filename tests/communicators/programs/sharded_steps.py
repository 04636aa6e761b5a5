"""Trains with every optimizer, with and without shards: the same weights, and less state.

Arguments: the backend, and how the step is run: ``step``, ``call`` or ``loop``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import weft
from weft.communicators import connected

backend, control = sys.argv[1:]
ranks = connected()
STEPS = 6
SHAPES: dict[str, Any] = {
    "matrix": (5, 3),
    "bias": (4,),
    "scale": (),
    "none": (0, 2),
    "named": [weft.make_axis(3, "H"), weft.make_axis(4, "C")],
}
"""Of sizes that are multiples of the number of ranks, and of others."""

OPTIMIZERS: list[tuple[str, dict[str, Any], int]] = [
    ("sgd", {"weight_decay": 0.01}, 0),
    ("sgd", {"momentum": 0.9, "nesterov": True}, 1),
    ("adam", {"weight_decay": 0.01}, 2),
    ("adamw", {}, 2),
    ("lamb", {}, 2),
    ("rmsprop", {"centered": True, "momentum": 0.5}, 3),
    ("adagrad", {}, 1),
    ("adadelta", {}, 2),
    ("lion", {"weight_decay": 0.01}, 1),
]
"""Optimizers, their options, and how many numbers they keep for each parameter."""


def step_of(optimizer: str, options: dict[str, Any], sharded: bool, clips: bool) -> Any:
    """Return a training step, its variables, and the transformer."""
    numbers = np.random.default_rng(3)
    variables = {
        name: weft.variable(
            axes, initial_value=numbers.normal(size=weft.make_axes(axes).lengths), name=name
        )
        for name, axes in SHAPES.items()
    }
    x = weft.placeholder((6, 5), name="x")
    hidden = weft.tanh(x @ variables["matrix"]) @ weft.cast_axes(variables["named"], (3, 4))
    loss = weft.mean(weft.square(hidden + variables["bias"]) * variables["scale"])
    loss = loss + weft.sum(variables["none"])
    taken = weft.persistent_tensor((), "int32", 0, name="taken")
    with weft.saved_user_deps():
        rate = weft.warm_up(taken, 0.05, 4)
        gradients, chosen = weft.data_parallel(
            loss, list(variables.values()), bucket_bytes=64, sharded=sharded
        )
        if clips:
            scaled = [gradient * 0.5 for gradient in gradients]
            gradients = [*weft.clip_by_global_norm(scaled[:3], 0.05), *scaled[3:]]
            gradients[-1] = weft.clip_by_norm(gradients[-1], 0.01)
        update = getattr(weft, optimizer)(gradients, chosen, learning_rate=rate, **options)
        everything = weft.doall([update, weft.assign(taken, taken + 1)])
    transformer = weft.make_transformer(backend)
    if control == "step":
        step = transformer.computation([loss, everything], x)
    else:
        before, outer = weft.placeholder((), name="before"), weft.placeholder((6, 5))
        body = weft.capture([loss + before * 0, everything], [before, x], "body")
        run = weft.loop(body, 2, 0.0, outer) if control == "loop" else weft.call(body, 0.0, outer)
        step = transformer.computation(run[0], outer)
    return step, list(variables.values()), transformer


def trained(*how: Any) -> tuple[list[Any], int]:
    """Return the weights after some steps, and the bytes of the optimizer's state on this rank."""
    step, variables, transformer = step_of(*how)
    before = transformer.get_value(variables[0])
    data = np.random.default_rng(ranks.rank)
    for _ in range(STEPS):
        step(data.normal(size=(6, 5)).astype("float32"))
    assert (transformer.get_value(variables[0]) != before).all(), "nothing was learnt"
    kept = [state for state in transformer.states() if state not in {*variables}]
    sizes = sum(transformer.get_value(state).nbytes for state in kept if state.dtype == "float32")
    return [transformer.get_value(variable) for variable in variables], sizes


elements = [weft.make_axes(axes).size for axes in SHAPES.values()]
shards = [-(-count // ranks.size) for count in elements]
for optimizer, options, slots in OPTIMIZERS:
    for clips in (False, True) if optimizer == "adam" else (False,):
        case = f"{optimizer} {options} {'clipped' if clips else ''}"
        whole, bytes_of_whole = trained(optimizer, options, False, clips)
        found, bytes_of_shards = trained(optimizer, options, True, clips)
        assert bytes_of_whole == 4 * slots * sum(elements), case
        assert bytes_of_shards == 4 * slots * sum(shards), case
        # Norms are added up in another order, as are sums of more than two ranks. Compilers of C
        # contract other products and sums.
        is_same = backend == "numpy" and ranks.size <= 2 and optimizer != "lamb" and not clips
        for one, other in zip(found, whole, strict=True):
            if is_same:
                np.testing.assert_array_equal(one, other, err_msg=case)
            else:
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6, err_msg=case)
        texts = ranks.gather_text(str([value.tobytes() for value in found]), "the weights")
        assert len(set(texts)) == 1, f"{case}: ranks have different weights"
