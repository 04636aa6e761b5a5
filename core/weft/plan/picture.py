"""Draws a plan as SVG: time in steps as x, arena bytes as y, a box for each tensor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from weft.files import replacing
from weft.ir.description import TensorDescription
from weft.ir.op import Op
from weft.kernels import FusedOp
from weft.nn.spatial.convolutions import BilinearConvolutionOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft.ops.shape.movement import BroadcastOp, ContiguousOp, IotaOp, ReshapeOp, TransposeOp
from weft.plan.buffers import ARENA, STATE, Buffer
from weft.support.html import escaped
from weft.support.source import quoted_line

if TYPE_CHECKING:
    from weft.plan.plan import Plan, Step

LEFT, TOP, RIGHT, WIDTH, HEIGHT = 84, 64, 16, 900, 400
"""The margins, and the size of the part that shows the arena, in pixels."""

ROW = 12
"""The height of a state's row in pixels."""

MOST_LINES = 8
"""The lines of the user's that a box shows at most."""

_KINDS: tuple[tuple[str, str, tuple[type[Op], ...]], ...] = (
    ("matrix product, convolution", "#d1495b", (MatmulOp, BilinearConvolutionOp)),
    ("fused", "#3d7ea6", (FusedOp,)),
    ("reduction", "#edae49", (ReductionOp,)),
    ("elementwise", "#66a182", (ElementwiseOp,)),
    ("movement", "#9d8ec7", (BroadcastOp, ContiguousOp, IotaOp, ReshapeOp, TransposeOp)),
    ("other", "#8d99ae", (Op,)),
)
_WORKSPACE = ("workspace", "#c9c5bd")
_LIMIT = "#b00020"


class BufferBox(NamedTuple):
    """A box of the picture: a tensor in the arena, or the workspace of a step."""

    step: Step
    tensor: TensorDescription
    first: int
    last: int

    @property
    def kind(self) -> tuple[str, str]:
        """The kind of its producer, and the kind's color."""
        if self.tensor is self.step.workspace:
            return _WORKSPACE
        return kind_of(self.step.op)


def kind_of(op: Op) -> tuple[str, str]:
    """Return the kind of an op in pictures, and its color."""
    return next((name, color) for name, color, classes in _KINDS if isinstance(op, classes))


def boxes(plan: Plan) -> list[BufferBox]:
    """Return a box for each tensor in the arena, in the order in which they are made.

    A tensor that is overwritten ends where its successor in the same memory begins.
    """
    result = []
    writes: dict[Buffer, list[tuple[int, Step, TensorDescription]]] = {}
    for position, step in enumerate(plan.steps):
        if step.workspace is not None:
            result.append(BufferBox(step, step.workspace, position, position))
        for out in () if step.op.hands_on else step.outs:
            if out.base.kind == ARENA and out.base.nbytes:
                writes.setdefault(out.base, []).append((position, step, out))
    for buffer, versions in writes.items():
        ends = [*(position - 1 for position, *_ in versions[1:]), buffer.last]
        result += [
            BufferBox(s, t, position, end)
            for (position, s, t), end in zip(versions, ends, strict=True)
        ]
    return sorted(result, key=lambda box: (box.first, box.tensor.base.offset))


def write_picture(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the picture of a plan to an SVG file, atomically."""
    with replacing(path) as file:
        file.writelines(f"{line}\n".encode() for line in _Picture(plan).lines())


class _Picture:
    """The scales and the layout of the picture."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.states = _states(plan)
        self.across = WIDTH / max(len(plan.steps), 1)
        self.top = max(plan.arena_size, plan.memory_limit or 0, 1)
        self.up = HEIGHT / self.top
        self.floor = TOP + HEIGHT
        self.bottom = self.floor + 40 + ROW * len(self.states)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        width, height = LEFT + WIDTH + RIGHT, self.bottom + 12
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">'
        )
        yield '<rect width="100%" height="100%" fill="white"/>'
        yield _text(LEFT, 18, self._heading(), size=13)
        yield from self._legend()
        yield from self._axes()
        for box in boxes(self.plan):
            yield self._box(box)
        yield from self._live()
        yield from self._levels()
        yield from self._states()
        yield "</svg>"

    def _heading(self) -> str:
        plan = self.plan
        return (
            f"{plan.graph.name}: arena {_bytes(plan.arena_size)}, at most {_bytes(plan.peak_live)} "
            f"live, {_bytes(plan.peak_as_written)} in the order as written"
        )

    def _legend(self) -> Iterator[str]:
        kinds = dict.fromkeys(box.kind for box in boxes(self.plan))
        x = float(LEFT)
        for name, color in kinds:
            yield _rectangle(x, 32, 10, 10, color)
            yield _text(x + 14, 41, name)
            x += 28 + 6 * len(name)

    def _axes(self) -> Iterator[str]:
        for level in _ticks(self.top, 6):
            y = self._y(level)
            yield _line(LEFT, y, LEFT + WIDTH, y, "#e4e4e4")
            yield _text(LEFT - 6, y + 4, _bytes(level), anchor="end")
        for step in _ticks(len(self.plan.steps), 10):
            yield _text(self._x(step), self.floor + 14, f"{step}")
        yield _text(LEFT - 6, self.floor + 14, "step", anchor="end")

    def _x(self, step: float) -> float:
        return LEFT + step * self.across

    def _y(self, offset: float) -> float:
        return self.floor - offset * self.up

    def _box(self, box: BufferBox) -> str:
        base = box.tensor.base
        return _rectangle(
            self._x(box.first),
            self._y(base.offset + base.nbytes),
            (box.last + 1 - box.first) * self.across,
            base.nbytes * self.up,
            box.kind[1],
            "\n".join(_label(box)),
        )

    def _live(self) -> Iterator[str]:
        """Draw the live bytes over time."""
        corners = []
        for step, live in enumerate(self.plan.live_bytes):
            y = self._y(live)
            corners += [f"{self._x(step):.1f},{y:.1f}", f"{self._x(step + 1):.1f},{y:.1f}"]
        if corners:
            yield f'<polyline points="{" ".join(corners)}" fill="none" stroke="#222"/>'

    def _levels(self) -> Iterator[str]:
        levels = [(self.plan.peak_live, "most live", "#222")]
        if self.plan.memory_limit is not None:
            levels.append((self.plan.memory_limit, "memory limit", _LIMIT))
        for level, name, color in levels:
            y = self._y(level)
            yield _line(LEFT, y, LEFT + WIDTH, y, color, dashed=True)
            yield _text(LEFT + WIDTH, y - 3, f"{name} {_bytes(level)}", anchor="end")

    def _states(self) -> Iterator[str]:
        """Draw a row for each state, with marks where it is written."""
        if self.states:
            yield _text(LEFT - 6, self.floor + 40, "states", anchor="end")
        for row, (buffer, writes) in enumerate(self.states.items()):
            y = self.floor + 32 + row * ROW
            state = buffer.owner
            label = f"{state}\n{state.dtype} {state.axes}, {_bytes(buffer.nbytes)}\n{_where(state)}"
            yield _rectangle(LEFT, y, WIDTH, ROW - 3, "#dde3e8", label)
            for position, step in writes:
                box = BufferBox(step, step.out, position, position)
                label = "\n".join([f"writes {state}", *_label(box)[:2], _where(step.op)])
                yield _rectangle(self._x(position), y, self.across, ROW - 3, box.kind[1], label)


def _states(plan: Plan) -> dict[Buffer, list[tuple[int, Step]]]:
    writes: dict[Buffer, list[tuple[int, Step]]] = {}
    for buffer in plan.buffers:
        if buffer.kind == STATE:
            writes[buffer] = []
    for position, step in enumerate(plan.steps):
        for out in () if step.op.hands_on else step.outs:
            if out.base in writes:
                writes[out.base].append((position, step))
    return writes


def _label(box: BufferBox) -> list[str]:
    """Return the tooltip of a box."""
    op, tensor = box.step.op, box.tensor
    name = op.kernel.title if isinstance(op, FusedOp) else op.label
    what = f"{type(op).__name__} {name}" if name else type(op).__name__
    if tensor is box.step.workspace:
        what = f"workspace of {what}"
    base = tensor.base
    return [
        what,
        f"{tensor.dtype}{list(tensor.shape)}, {base.nbytes} bytes",
        f"steps {box.first} to {box.last}, bytes {base.offset} to {base.offset + base.nbytes}",
        *_places(op),
    ]


def _places(op: Op) -> list[str]:
    """Return the first of the user's lines behind an op."""
    locations = op.kernel.locations if isinstance(op, FusedOp) else (op.location,)
    found = [quoted_line(location) for location in locations]
    more = [f"and {len(found) - MOST_LINES} more"] if len(found) > MOST_LINES else []
    return found[:MOST_LINES] + more


def _where(op: Op) -> str:
    return _places(op)[0]


def _ticks(most: int, count: int) -> Iterable[int]:
    """Return round tick values from 0 to `most`."""
    step = 1
    while most // step > count:
        step = _rounder(step)
    return range(0, most + 1, step)


def _rounder(step: int) -> int:
    """Return the next larger of 1, 2, 5, 10, 20, 50 and so on."""
    first = int(str(step)[0])
    return step * 5 // 2 if first == 2 else step * 2


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 11) -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {attributes}>{escaped(text)}</text>"


def _line(x1: float, y1: float, x2: float, y2: float, color: str, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="6 4"' if dashed else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{color}"{dashes}/>'


def _rectangle(x: float, y: float, width: float, height: float, color: str, label: str = "") -> str:
    attributes = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    title = f"<title>{escaped(label)}</title>" if label else ""
    border = ' stroke="white" stroke-width="0.4"' if label else ""
    return f'<rect {attributes} fill="{color}"{border}>{title}</rect>'
