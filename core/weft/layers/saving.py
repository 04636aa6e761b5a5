"""Trees of parameters as arrays by name, as in a ``state_dict`` of PyTorch, and files of them.

>>> import numpy as np, weft
>>> model = weft.nn.Sequential(weft.nn.Dense(4), weft.relu, weft.nn.Dense(1))
>>> params = model.init(np.random.default_rng(0), (8, 3))
>>> names = weft.nn.state_dict(params)
>>> sorted(names)
['0.bias', '0.weight', '2.bias', '2.weight']
>>> params = weft.nn.load_state_dict({**names, "2.bias": np.ones(1)}, params)
>>> params["2"]["bias"]
array([1.], dtype=float32)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from weft.errors import ArgumentError, CheckpointError
from weft.files import replacing
from weft.functional import trees
from weft.functional.tracing import array_of
from weft.ir.dtypes import Array, DType, converted, is_float, is_integer
from weft.runtime.checkpoints import COUNTER, read_values
from weft.runtime.safetensors_content import content_of
from weft.support.spelling import did_you_mean

_STATISTICS = ("running_mean", "running_var")

_LISTED = 20
"""How many names of a kind a message lists."""


def state_dict(params: Any, state: Any = None) -> dict[str, Array]:
    """Return the arrays of a tree by name, and those of the state of the same model.

    A name has the keys, numbers and fields that lead to the array, joined by dots, such as
    ``layers.3.self_attn.in_proj_weight``. The arrays are those of the tree, not copies. Raises
    ArgumentError for a leaf that is not an array, and where two have the same name.
    """
    found: dict[str, Array] = {}
    for tree in (params, state):
        leaves, structure = trees.flatten(tree)
        for name, leaf in zip(trees.dotted_names(structure), leaves, strict=True):
            if name in found or not name:
                problem = f"two arrays are named {name}" if name else "an array alone has no name"
                raise ArgumentError(f"state_dict: {problem}: give a dict, whose keys are names")
            found[name] = array_of(leaf, f"state_dict: {name}")
    return found


def save_state_dict(path: str | os.PathLike[str], params: Any, state: Any = None) -> None:
    """Write a tree, and the state of the same model, to a file in the safetensors format.

    Names are those of `state_dict`, so PyTorch loads the file into a module of the same layers. The
    file takes the place of another one when it is written in full. Raises MissingPackage without
    the safetensors package, and ArgumentError for a path that cannot be written.
    """
    content = content_of(state_dict(params, state))
    with replacing(path) as file:
        file.write(content)


def load_state_dict(
    source: str | os.PathLike[str] | Mapping[str, Any],
    params: Any,
    state: Any = None,
    *,
    strict: bool = True,
    cast: bool = True,
) -> Any:
    """Return a tree like `params` with the arrays of a file; with a state, a pair of both trees.

    The trees that are given have the names and shapes, and are not changed: what `Layer.init` and
    `Layer.init_state` return, or any tree that `save_state_dict` has written.

    Parameters
    ----------
    source
        A file in the safetensors format; an index, which names several such files, as
        ``model.safetensors.index.json`` does; or arrays by name, of NumPy or of a library that
        exports them by DLPack, such as those that ``torch.load(path, weights_only=True)`` returns.
        They are copied.
    params
        Parameters, with arrays of the shapes that are wanted.
    state
        The state of the same model. Without it the running statistics in a file are unexpected.
    strict
        Whether every array must be in `source`, and nothing else in it. Otherwise arrays that are
        missing are those of `params` and `state`, and others are ignored. ``num_batches_tracked``
        always is.
    cast
        Whether arrays get the dtypes of those in `params` and `state`; a float becomes no integer,
        nor the other way. Otherwise they keep their own.

    Raises
    ------
    CheckpointError
        If names are missing or unexpected, with those that are most like them, or shapes differ:
        all of them are listed. If the file cannot be read.
    MissingPackage
        For a file, without the safetensors package.
    """
    wanted = state_dict(params, state)
    what, values = _read(source)
    lines = _problems(wanted, values, strict, cast)
    if lines and state is None and any(name.endswith(_STATISTICS) for name in values):
        lines.append("running statistics are a state: give that of init_state, too")
    if lines:
        problem = f"{what} does not fit the parameters"
        raise CheckpointError("\n  ".join([f"load_state_dict: {problem}:", *lines]))
    found = [(values.get(name, here), here) for name, here in wanted.items()]
    arrays = [converted(array, here.dtype) if cast else array.copy() for array, here in found]
    tree, statistics = trees.unflatten(trees.flatten((params, state))[1], arrays)
    return tree if state is None else (tree, statistics)


def _read(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, dict[str, Array]]:
    """Return what messages call a source, and its arrays."""
    if isinstance(source, Mapping):
        what = "the dict"
        values = {name: array_of(each, f"load_state_dict: {name}") for name, each in source.items()}
    else:
        what, values = os.fspath(source), read_values(Path(source))
    return what, {name: each for name, each in values.items() if name.rpartition(".")[2] != COUNTER}


def _problems(
    wanted: Mapping[str, Array], values: Mapping[str, Array], strict: bool, cast: bool
) -> list[str]:
    """Describe what does not fit: names that are missing or unexpected, shapes, kinds of dtypes."""
    lines: list[str] = []
    if strict:
        missing = [name for name in wanted if name not in values]
        unexpected = [name for name in values if name not in wanted]
        lines += _listed("missing", missing, unexpected)
        lines += _listed("unexpected", unexpected, missing)
    shared = [(name, values[name], want) for name, want in wanted.items() if name in values]
    for name, have, want in shared:
        if have.shape != want.shape:
            lines.append(f"{name} has the shape {have.shape}, not {want.shape}")
        elif cast and not _are_alike(have.dtype, want.dtype):
            lines.append(f"{name} is {have.dtype}, not {want.dtype}")
    return lines


def _are_alike(one: DType, other: DType) -> bool:
    """Whether both are floats, integers, complex or bool, of any width."""
    return one.kind == other.kind or any(
        kind(one) and kind(other) for kind in (is_float, is_integer)
    )


def _listed(problem: str, names: list[str], others: Iterable[str]) -> list[str]:
    """Return a line for each of the first names, and how many there are besides."""
    lines = [f"{name} is {problem}.{did_you_mean(name, others)}" for name in names[:_LISTED]]
    rest = len(names) - _LISTED
    return [*lines, f"{rest} more are {problem}"] if rest > 0 else lines
