"""Calls of computations with tensors, to which the parameters of the model are bound."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

import weft
from weft.ir.dtypes import Array
from weft.runtime.computation import Computation
from weft_torch.tensors import as_array, maker

MOST_BINDINGS = 8
"""How often parameters are bound before a call takes them as it takes other arguments."""

_address = torch.Tensor.data_ptr


class _Bound(NamedTuple):
    """A computation with parameters of a model bound, and how a call knows them again.

    Attributes
    ----------
    run
        Takes the arrays of what is free.
    free
        The tensors that it takes, by place among the arguments and order of axes in memory.
    places
        Where the parameters are among the arguments.
    ids, addresses
        Their identities, and where their elements are.
    references
        Weak ones, which end the binding when a parameter is gone.
    """

    run: Callable[..., Any]
    free: list[tuple[int, Sequence[int]]]
    places: list[int]
    ids: list[int]
    addresses: list[int]
    references: list[Any]

    def fits(self, args: Sequence[Any]) -> bool:
        """Return whether the parameters are the same, at the same addresses."""
        given = [args[place] for place in self.places]
        return list(map(id, given)) == self.ids and list(map(_address, given)) == self.addresses


class Calls:
    """A computation called with tensors.

    The parameters of the model do not cross at each call: the computation is bound to them, and
    bound anew where another model of the class, or one with replaced parameters, calls.

    Attributes
    ----------
    computation
        The computation; the last parameter is the key of random numbers, if `draws`.
    taken
        The tensors that it takes, by place among the arguments and order of axes in memory.
    draws
        Whether it takes a key, which a call makes of a number of torch's generator.
    """

    def __init__(
        self, computation: Computation, taken: Sequence[tuple[int, Sequence[int]]], draws: bool
    ) -> None:
        self.computation = computation
        self.taken = taken
        self.draws = draws
        self._makers = [maker(op.dtype) for op in computation.results]
        self._rest = MOST_BINDINGS
        self._bound: _Bound | None = None

    def __call__(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """Return the results for the arguments of a graph."""
        bound = self._bound
        if bound is None or not bound.fits(args):
            bound = self._bind(args)
        arrays = [_arranged(args[place], order) for place, order in bound.free]
        if self.draws:
            seed = torch.randint(2**63 - 1, (), dtype=torch.int64)
            arrays.append(weft.random.key(int(seed)))
        found = bound.run(*arrays)
        return [make(array) for make, array in zip(self._makers, found, strict=True)]

    def _bind(self, args: Sequence[Any]) -> _Bound:
        """Bind the parameters of the model among arguments, unless that was done too often."""
        values, places, free = {}, [], []
        for (place, order), op in zip(self.taken, self.computation.parameters, strict=False):
            given = args[place]
            if self._rest and isinstance(given, torch.nn.Parameter):
                array = _arranged(given.detach(), order)
                is_there = array.__array_interface__["data"][0] == _address(given)
                if array.flags.c_contiguous and is_there:
                    values[op] = array
                    places.append(place)
                    continue
            free.append((place, order))
        parameters = [args[place] for place in places]
        self._bound = found = _Bound(
            self.computation.bind(values) if values else self.computation,
            free,
            places,
            list(map(id, parameters)),
            list(map(_address, parameters)),
            [weakref.ref(each, self._release) for each in parameters],
        )
        self._rest -= bool(values)
        return found

    def _release(self, _: Any) -> None:
        """Let go of the memory of a model that is gone, which does not count as a binding."""
        self._bound = None
        self._rest += 1


def _arranged(tensor: torch.Tensor, order: Sequence[int]) -> Array:
    """Return the array of a tensor with its axes in another order."""
    return as_array(tensor.permute(order) if order else tensor)
