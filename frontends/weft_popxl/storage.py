"""Where the value of a tensor lies, so that what one handle changes in place the others see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import TensorOp


class Storage:
    """A value that in-place ops replace by another; two tensors may lie in the same storage.

    Attributes
    ----------
    op
        The op that yields the value now.
    version
        How often it was replaced.
    """

    def __init__(self, op: TensorOp) -> None:
        self.op = op
        self.version = 0

    @property
    def roots(self) -> tuple[Storage, ...]:
        """The storage that a write changes."""
        return (self,)

    def read(self) -> TensorOp:
        """Return the op that yields the value now."""
        return self.op

    def write(self, op: TensorOp) -> None:
        """Replace the value."""
        self.op = op
        self.version += 1


class View:
    """A value made from other places by movement alone, through which these can be changed.

    Parameters
    ----------
    bases
        What is looked at.
    show
        Makes the value from those of the bases.
    put
        Makes new values of the bases from a new value of the view and the old ones of the bases.
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
            # A view of a view is one of what that shows, so that a long chain is no deep one.
            self.steps = (*self.bases[0].steps, *self.steps)
            self.bases = self.bases[0].bases
        self._seen: tuple[int, Any] = (-1, None)

    @property
    def roots(self) -> tuple[Storage, ...]:
        """The storages that a write changes."""
        return tuple(dict.fromkeys(root for base in self.bases for root in base.roots))

    @property
    def version(self) -> int:
        """How often what it shows was replaced."""
        return sum(root.version for root in self.roots)

    def show(self, op: TensorOp) -> None:
        """Remember the value that it shows now."""
        self._seen = (self.version, op)

    def read(self) -> TensorOp:
        """Return the op that yields the value now."""
        version, op = self._seen
        if version != self.version:
            op = self._values()[-1][0]
            self.show(op)
        return op  # type: ignore[no-any-return]

    def _values(self) -> list[list[TensorOp]]:
        """Return the values of the bases, then what each step makes of those before."""
        values = [[base.read() for base in self.bases]]
        for show, _ in self.steps:
            values.append([show(*values[-1])])
        return values

    def write(self, op: TensorOp) -> None:
        """Replace the value, and what it shows."""
        new: Sequence[TensorOp] = [op]
        for (_, put), old in zip(reversed(self.steps), self._values()[-2::-1], strict=True):
            new = put(new[0], *old)
        for base, value in zip(self.bases, new, strict=True):
            base.write(value)
        if len(self.bases) == 1:
            self.show(op)


Step = tuple[Callable[..., TensorOp], Callable[..., Sequence[TensorOp]]]
Place = Storage | View
