"""The storage of tensors, which views share, so that all of them see in-place changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import TensorOp


class Storage:
    """A value that in-place ops replace; several tensors may share a storage.

    Attributes
    ----------
    op
        The op of the current value.
    version
        The number of replacements.
    """

    def __init__(self, op: TensorOp) -> None:
        self.op = op
        self.version = 0

    @property
    def roots(self) -> tuple[Storage, ...]:
        """The storages that a write changes."""
        return (self,)

    def read(self) -> TensorOp:
        """Return the op of the current value."""
        return self.op

    def write(self, op: TensorOp) -> None:
        """Replace the value."""
        self.op = op
        self.version += 1


class View:
    """A view: a value that is a movement of others, and writes to them.

    Parameters
    ----------
    bases
        The storages behind the view.
    show
        Computes the view from the values of the bases.
    put
        Computes new values of the bases from a new value of the view and their old values.
    """

    def __init__(
        self,
        bases: Sequence[Place],
        show: Callable[..., TensorOp],
        put: Callable[..., Sequence[TensorOp]],
    ) -> None:
        self.bases = tuple(bases)
        self.steps: tuple[Step, ...] = ((show, put),)
        if len(self.bases) == 1 and isinstance(self.bases[0], View):
            # Views of views are flattened, so that long chains are not deep.
            self.steps = (*self.bases[0].steps, *self.steps)
            self.bases = self.bases[0].bases
        self._seen: tuple[int, Any] = (-1, None)

    @property
    def roots(self) -> tuple[Storage, ...]:
        """The storages that a write changes."""
        return tuple(dict.fromkeys(root for base in self.bases for root in base.roots))

    @property
    def version(self) -> int:
        """The number of replacements in all bases."""
        return sum(root.version for root in self.roots)

    def show(self, op: TensorOp) -> None:
        """Cache the current value."""
        self._seen = (self.version, op)

    def read(self) -> TensorOp:
        """Return the op of the current value."""
        version, op = self._seen
        if version != self.version:
            op = self._values()[-1][0]
            self.show(op)
        return op  # type: ignore[no-any-return]

    def _values(self) -> list[list[TensorOp]]:
        """Return the values of the bases, then the value after each step of the view."""
        values = [[base.read() for base in self.bases]]
        for show, _ in self.steps:
            values.append([show(*values[-1])])
        return values

    def write(self, op: TensorOp) -> None:
        """Replace the value, and those of the bases."""
        new: Sequence[TensorOp] = [op]
        for (_, put), old in zip(reversed(self.steps), self._values()[-2::-1], strict=True):
            new = put(new[0], *old)
        for base, value in zip(self.bases, new, strict=True):
            base.write(value)
        if len(self.bases) == 1:
            self.show(op)


Step = tuple[Callable[..., TensorOp], Callable[..., Sequence[TensorOp]]]
Place = Storage | View
