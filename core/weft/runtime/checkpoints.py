"""Checkpoints: the values of states by name, in safetensors files.

A checkpoint of several ranks is an index, which names the file of each state, and a file of each
rank. The index is written last and replaces the one before, so that a checkpoint is always whole.
A state that is a shard is stored whole, so a checkpoint says nothing of how states were sharded.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.communicators.choice import connected
from weft.communicators.interface import Collective
from weft.errors import ArgumentError, CheckpointError
from weft.files import replacing
from weft.ir.dlpack import from_dlpack
from weft.ir.dtypes import Array
from weft.ir.storage import AssignableTensorOp
from weft.ranks.sharding import shard_axis
from weft.runtime.safetensors_content import arrays_in, content_of
from weft.support.digest import digest_of
from weft.text.printer import labels

if TYPE_CHECKING:
    from weft.communicators.interface import Communicator
    from weft.runtime.state_store import States
    from weft.runtime.transformer import Transformer


def save_states(
    transformer: Transformer,
    path: str | os.PathLike[str],
    states: States | None,
    communicator: Communicator | None,
) -> None:
    """Write the values of states; see `Transformer.save_states`."""
    named = named_states(transformer, states)
    ranks = 1 if communicator is None else communicator.size
    for name, op in named.items():
        axis = shard_axis(op)
        if axis is not None and axis.ranks != ranks:
            problem = f"{name} is 1 of {axis.ranks} shards, and {ranks} ranks save"
            hint = "call it on all ranks, with communicator=weft.communicators.connected()"
            raise CheckpointError(op.explain(f"{problem}: {hint}"))
    if communicator is None or ranks == 1:
        content = content_of({name: transformer.get_value(op) for name, op in named.items()})
        with replacing(path) as file:
            file.write(content)
        _remove_shards(Path(path))
        return
    _Shards(communicator, Path(path), named).save(transformer)


_PICKLED = (".bin", ".ckpt", ".pt", ".pth")
"""The ends of the names of files that ``torch.save`` writes."""

COUNTER = "num_batches_tracked"
"""What batch normalization of PyTorch counts, and nothing here reads."""


def load_states(
    transformer: Transformer,
    source: str | os.PathLike[str] | Mapping[str, Any],
    states: States | None,
) -> None:
    """Set states to values of a file, or given ones; see `Transformer.load_states`."""
    named = named_states(transformer, states)
    wanted = None if states is None else set(named)
    if isinstance(source, Mapping):
        what, values = "the dict", _arrays_of(source, wanted)
    else:
        what, values = os.fspath(source), read_values(Path(source), wanted)
    values = {
        name: value
        for name, value in values.items()
        if name in named or name.rpartition(".")[2] != COUNTER
    }
    with transformer.state_lock:
        problems = _problems(transformer, named, values)
        if problems:
            lines = "\n".join(f"  {each}" for each in problems)
            raise CheckpointError(f"{what} does not fit, and no state was changed:\n{lines}")
        before: dict[Any, Array] = {}
        try:
            for name, state in named.items():
                before[state] = transformer.get_value(state)
                transformer.set_value(state, _part(state, values[name]))
        except BaseException:
            for state, value in before.items():
                transformer.set_value(state, value)
            raise


def _arrays_of(source: Mapping[str, Any], wanted: set[str] | None) -> dict[str, Array]:
    """Return arrays by name, those of other libraries as NumPy's."""
    found = {}
    for name, value in source.items():
        if wanted is not None and name not in wanted:
            continue
        try:
            is_foreign = hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
            found[name] = from_dlpack(value) if is_foreign else np.asarray(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            problem = f"{name} cannot be read as an array of the host: {error}"
            raise CheckpointError(problem) from error
    return found


def named_states(transformer: Transformer, states: States | None) -> dict[str, Any]:
    """Return states by their names in files; all of a transformer, if none are given.

    A state without a name is called by its kind, with a number in the order of creation.
    """
    if isinstance(states, Mapping):
        named = dict(states)
    elif states is None:
        named = {name: op for op, name in labels(transformer.states()).items()}
    else:
        chosen = list(states)
        unnamed = [op for op in chosen if not getattr(op, "label", None)]
        if unnamed:
            problem = f"{unnamed[0]!r} has no name of its own"
            raise ArgumentError(f"{problem}: name it, or give states={{'name': state}}")
        named = {name: op for op, name in labels(chosen).items()}
    if not all(isinstance(name, str) for name in named):
        raise ArgumentError(f"the names of states are text, not {list(named)!r:.200}")
    return named


def read_values(path: Path, wanted: set[str] | None = None) -> dict[str, Array]:
    """Return the arrays of a checkpoint by name, or those of some names that it has.

    Raises CheckpointError for a file that cannot be read, or is not a checkpoint.
    """
    content = _content(path)
    if content[8:9] == b"{":
        return _arrays(path, content, wanted)
    files = _index(path, content)
    arrays: dict[str, Array] = {}
    for file in dict.fromkeys(files.values()):
        names = {name for name, each in files.items() if each == file}
        needed = names if wanted is None else names & wanted
        if needed:
            values = _arrays(path.with_name(file), _share(path, file), needed)
            if values.keys() < needed:
                raise CheckpointError(f"{path}: {file} lacks {', '.join(needed - values.keys())}")
            arrays |= values
    return arrays


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None


def _share(path: Path, name: str) -> bytes:
    """Return the content of a file that an index names, which is a regular one beside it."""
    shard = path.with_name(name)
    if os.path.exists(shard) and not os.path.isfile(shard):  # a pipe may have no end
        raise CheckpointError(f"{path} names {name!r:.100}, which is not a file beside it")
    return _content(shard)


def _arrays(path: Path, content: bytes, wanted: set[str] | None) -> dict[str, Array]:
    try:
        arrays, _ = arrays_in(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(path, error) from None
    return {name: array for name, array in arrays.items() if wanted is None or name in wanted}


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    problem = f"{path} cannot be read as a checkpoint: {error}"
    if path.suffix in _PICKLED:
        problem += ": give what torch.load(path, weights_only=True) returns"
    return CheckpointError(problem)


def _index(path: Path, content: bytes) -> dict[str, str]:
    """Return the name of the file of each state; raises CheckpointError for anything else."""
    import json

    try:
        files = json.loads(content)["weight_map"]
        for name, file in files.items():
            is_name = isinstance(file, str) and bool(file) and "\0" not in file
            if not is_name or Path(file).name != file:
                raise ValueError(f"the file {file!r:.100} of {name!r:.100} is not beside it")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(path, error) from None
    return dict(files)


def _problems(
    transformer: Transformer, named: Mapping[str, Any], values: Mapping[str, Array]
) -> list[str]:
    """Describe the mismatches of values for states: missing, extra, of another dtype or shape."""
    problems = [f"{name} is missing" for name in named if name not in values]
    problems += [f"{name} is not a state here" for name in values if name not in named]
    for name in named.keys() & values.keys():
        value, have = values[name], _type(transformer, named[name])
        if (value.dtype, value.shape) != have:
            stored = f"{value.dtype} {value.shape}"
            problems.append(f"{name} is {stored} there, and {have[0]} {have[1]} here")
    return sorted(problems)


def _type(transformer: Transformer, state: AssignableTensorOp) -> tuple[Any, tuple[int, ...]]:
    """Return the dtype and the shape of a state in files, where a shard is stored whole."""
    tensor, axis = transformer.state_tensor(state), shard_axis(state)
    return tensor.dtype, tensor.shape if axis is None else axis.axes.shape


def _part(state: AssignableTensorOp, whole: Array) -> Array:
    """Return this rank's part of the value of a state in files."""
    axis = shard_axis(state)
    if axis is None:
        return whole
    padded = np.zeros((axis.ranks, axis.length), whole.dtype)
    padded.reshape(-1)[: whole.size] = whole.reshape(-1)
    part: Array = padded[connected(axis.communicator).rank]
    return part


class _Shards:
    """The files of a checkpoint of several ranks, each of which writes a share of the states."""

    def __init__(self, communicator: Communicator, path: Path, named: Mapping[str, Any]) -> None:
        self.communicator = communicator
        self.path = path
        self.named = named

    def save(self, transformer: Transformer) -> None:
        """Write the share of this rank, and on the first rank the index, when all shares are."""
        types = {name: _type(transformer, op) for name, op in self.named.items()}
        sizes = {name: dtype.itemsize * math.prod(shape) for name, (dtype, shape) in types.items()}
        owners = self.owners(sizes)
        description = sorted((name, dtype.name, shape) for name, (dtype, shape) in types.items())
        self.agree("the states of a checkpoint", repr(description))
        (token, *_) = self.communicator.gather_text(os.urandom(8).hex(), "the name of a checkpoint")
        shard = self.shard(token, self.communicator.rank)
        failure: Exception | None = None
        try:
            content = content_of(self.values(transformer, owners))
            with replacing(shard) as file:
                file.write(content)
        except Exception as error:
            failure = error
        self.all_succeeded("its share", failure, shard)
        if self.communicator.rank == 0:
            try:
                self.write_index(token, owners)
            except Exception as error:
                failure = error
        self.all_succeeded("the index", failure, shard)
        if self.communicator.rank == 0:
            _remove_shards(self.path, token)

    def values(self, transformer: Transformer, owners: Mapping[str, int]) -> dict[str, Array]:
        """Return the values of the states that this rank writes, gathered where they are shards."""
        arrays = {}
        for name, owner in owners.items():
            state, is_mine = self.named[name], owner == self.communicator.rank
            axis = shard_axis(state)
            if axis is None and not is_mine:
                continue
            value = transformer.get_value(state)
            if axis is not None:
                collective = Collective("all_gather", label=f"{name} of a checkpoint")
                shards = self.communicator.run(collective, value)
                value = shards[: axis.axes.size].reshape(axis.axes.shape)
            if is_mine:
                arrays[name] = value
        return arrays

    def owners(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the rank that writes each state: the largest first, to the one with the least."""
        load = [0] * self.communicator.size
        owners = {}
        for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
            owners[name] = load.index(min(load))
            load[owners[name]] += sizes[name] + 1
        return owners

    def agree(self, what: str, text: str) -> None:
        """Raise CheckpointError on all ranks if they do not say the same."""
        digests = self.communicator.gather_text(digest_of(text.encode()), what)
        other = [rank for rank, each in enumerate(digests) if each != digests[0]]
        if other:
            problem = f"{what} differ on rank {other[0]} from those on rank 0"
            raise CheckpointError(f"{self.path} was not written: {problem}")

    def all_succeeded(self, what: str, failure: Exception | None, shard: Path) -> None:
        """Raise on all ranks if one failed: its own error there, CheckpointError elsewhere.

        Only then is the share of this rank removed. After any other error, as an interrupt, there
        may be an index that names it.
        """
        message = "" if failure is None else f"{type(failure).__name__}: {failure}"
        texts = self.communicator.gather_text(message, f"{what} of a checkpoint")
        if any(texts):
            shard.unlink(missing_ok=True)
        if failure is not None:
            raise failure
        for rank, text in enumerate(texts):
            if text:
                problem = f"rank {rank} could not write {what}: {text}"
                raise CheckpointError(f"{self.path} was not written: {problem}")

    def shard(self, token: str, rank: int) -> Path:
        """Return the file of a rank, of a name that no other checkpoint has."""
        number = f"{rank + 1:05}-of-{self.communicator.size:05}"
        return self.path.with_name(f"{self.path.name}.{token}.{number}")

    def write_index(self, token: str, owners: Mapping[str, int]) -> None:
        """Replace the index."""
        import json

        files = {name: self.shard(token, rank).name for name, rank in owners.items()}
        index = {"metadata": {"ranks": self.communicator.size}, "weight_map": files}
        with replacing(self.path) as file:
            file.write(json.dumps(index, indent=1).encode())


def _remove_shards(path: Path, current: str = "") -> None:
    """Remove the shares of other checkpoints at a path: of the last one, and what kills left."""
    name = re.escape(path.name)
    shard = re.compile(rf"\.?{name}\.([0-9a-f]{{16}})\.\d{{5,}}-of-\d{{5,}}(\.\d+\.part)?")
    for file in path.parent.iterdir():
        match = shard.fullmatch(file.name)
        if match and match[1] != current:
            with suppress(OSError):  # the checkpoint is whole; the next one tries again
                file.unlink()
