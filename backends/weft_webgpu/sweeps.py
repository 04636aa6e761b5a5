"""Fused kernels, and elementwise ops and reductions by themselves, as sweeps over a domain."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft import ElementwiseOp, Op, ops
from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.kernels import VIEWS, Kernel, PiecewiseOp
from weft.ops.reductions.reduction import ArgExtremumOp
from weft_c.processor import Processor
from weft_tiling.sharing import GROUPS_PER_UNIT, count_splits
from weft_webgpu import wgsl
from weft_webgpu.shader import Lowering, Shader, Stores

Places = tuple[int | None, ...]

ROW_GROUP = 128
"""Invocations that share a row."""
SHORT_ROW = 32
"""The longest row that one invocation reduces alone."""

MIN_COLUMNS, MAX_COLUMNS = 8, 32
"""The fewest and the most columns that a work group reduces side by side."""

REDUCTIONS = (ops.SumOp, ops.ProdOp, ops.MaxOp, ops.MinOp, ops.ArgmaxOp, ops.ArgminOp)

COMBINERS = {ops.SumOp: "add", ops.ProdOp: "mul", ops.MaxOp: "max", ops.MinOp: "min"}


@dataclass(frozen=True)
class Value:
    """An operand (without an op) or an instruction."""

    dtype: Any
    places: Places
    op: Op | None = None
    args: tuple[int, ...] = ()
    stage: int = 0
    constant: Any = None

    @property
    def is_piecewise(self) -> bool:
        """Whether its operands are read at other places than its own."""
        return isinstance(self.op, PiecewiseOp)

    @property
    def is_reduction(self) -> bool:
        """Whether it takes a whole row."""
        return isinstance(self.op, REDUCTIONS)


@dataclass(frozen=True)
class Sweep:
    """What a kernel computes at each point of its domain, once or `count` times in a row.

    Each pair in `carried` is an operand and the value that it has in the next repetition.
    """

    domain: tuple[int, ...]
    reduced: tuple[int, ...]
    values: tuple[Value, ...]
    outputs: tuple[int, ...]
    count: int = 1
    carried: tuple[tuple[int, int], ...] = ()

    def varies(self, number: int) -> bool:
        """Whether a value varies along a row."""
        places = self.values[number].places
        return any(
            dim is not None and dim in self.reduced and self.domain[dim] != 1 for dim in places
        )

    @classmethod
    def of_kernel(cls, kernel: Kernel) -> Sweep:
        """Return that of a fused kernel."""
        operands = [
            Value(each.dtype, each.places, constant=each.constant) for each in kernel.operands
        ]
        body = [
            Value(each.op.dtype, each.places, each.op, each.args, each.stage)
            for each in kernel.body
        ]
        values, repeats = (*operands, *body), (kernel.count, kernel.carried)
        return cls(kernel.domain, kernel.reduced, values, kernel.outputs, *repeats)

    def everywhere(self, number: int) -> Sweep:
        """Return the sweep of a value whose operands have its axes, or none."""
        value = self.values[number]
        op = value.op
        assert op is not None
        whole = tuple(range(len(op.axes)))
        values = [replace(each, places=whole if each.places else ()) for each in self.values]
        return Sweep(op.axes.shape, (), tuple(values), (number,))

    @classmethod
    def of_op(cls, op: Any, shapes: Sequence[tuple[int, ...]]) -> Sweep:
        """Return that of an elementwise op or a reduction."""
        if isinstance(op, REDUCTIONS):
            domain, reduced = shapes[0], tuple(op.positions)
        else:
            domain, reduced = op.axes.shape, ()
        operands = [
            Value(each.dtype, tuple(range(len(shape))))
            for each, shape in zip(op.args, shapes, strict=True)
        ]
        kept = tuple(dim for dim in range(len(domain)) if dim not in reduced)
        result = Value(op.dtype, kept, op, tuple(range(len(operands))))
        return cls(tuple(domain), reduced, (*operands, result), (len(operands),))


def has_sweep(op: Op) -> bool:
    """Whether an op can be a part of a sweep."""
    if isinstance(op, VIEWS):
        return True
    values = [op, *op.args]
    if any(each.dtype.name not in wgsl.COMPUTED for each in values):
        return False
    if isinstance(op, (*REDUCTIONS, ops.PadOp, ops.ConcatOp)):
        return True
    return isinstance(op, ElementwiseOp) and wgsl.find_expression(op) is not None


def count_parts(sweep: Sweep, processor: Processor) -> int:
    """Return the number of parts that each row is reduced in; 1 for a row as a whole.

    A row is split where all of its results are complete after one reduction of it.
    """
    reductions = [each for each in sweep.values if each.is_reduction]
    if not reductions or any(
        each.stage or isinstance(each.op, ArgExtremumOp) for each in reductions
    ):
        return 1
    if any(map(sweep.varies, sweep.outputs)):
        return 1
    reduced = math.prod(sweep.domain[dim] for dim in sweep.reduced)
    rows = math.prod(n for dim, n in enumerate(sweep.domain) if dim not in sweep.reduced)
    return count_splits(rows, reduced, processor)


def scratch_of_parts(sweep: Sweep, processor: Processor) -> int:
    """Return the bytes for the totals of all parts."""
    splits = count_parts(sweep, processor)
    if splits == 1:
        return 0
    rows = math.prod(n for dim, n in enumerate(sweep.domain) if dim not in sweep.reduced)
    totals = [Total(0, each.op) for each in sweep.values if each.is_reduction]
    return sum(-(-rows * splits * each.dtype.itemsize // 256) * 256 for each in totals)


class Values:
    """The values of a sweep as lines of shaders: `v3` is number 3.

    Attributes
    ----------
    sweep, args
        The sweep, and the layouts of its operands.
    """

    def __init__(self, sweep: Sweep, args: Sequence[TensorDescription]) -> None:
        self.sweep, self.args = sweep, args
        self._read = {arg for each in sweep.values if not each.is_piecewise for arg in each.args}

    def coordinates(self, number: int, at: Sequence[str]) -> list[str]:
        """Return the place of an element of a value at a point of the domain."""
        domain, places = self.sweep.domain, self.sweep.values[number].places
        return ["0" if dim is None or domain[dim] == 1 else at[dim] for dim in places]

    def required(self, targets: Sequence[int], known: Collection[int]) -> list[int]:
        """Return the values that targets need, in order, but for those that are known."""
        found: set[int] = set()
        waiting = list(targets)
        while waiting:
            number = waiting.pop()
            if number not in found and number not in known:
                found.add(number)
                value = self.sweep.values[number]
                waiting += () if value.is_piecewise else value.args
        return sorted(found)

    def compute(
        self, shader: Shader, numbers: Sequence[int], known: set[int], at: Sequence[str]
    ) -> None:
        """Add lines for those values, in order, whose operands are known, but for reductions."""
        for number in numbers:
            value = self.sweep.values[number]
            if number in known or value.is_reduction:
                continue
            if value.is_piecewise:
                self._write_pieces(shader, number, at)
            elif value.op is None and number not in self._read:
                continue
            elif all(arg in known for arg in value.args):
                shader.line(f"let v{number} = {self._expression(shader, number, at)};")
            else:
                continue
            known.add(number)

    def _write_pieces(self, shader: Shader, number: int, at: Sequence[str]) -> None:
        """Add the lines that load the element of the operand that has a point, or a constant."""
        value = self.sweep.values[number]
        op: Any = value.op
        shader.line(f"var v{number} = {wgsl.literal(op.fill or 0, value.dtype)};")
        for operand, box, origin in op.pieces:
            tests = [
                f"{name} >= {low} && {name} < {high}"
                for name, (low, high), length in zip(at, box, op.axes.shape, strict=True)
                if (low, high) != (0, length)
            ]
            where = [f"{name} - ({first})" for name, first in zip(at, origin, strict=True)]
            found = shader.element(self.args[value.args[operand]], where).value
            shader.line(f"if ({' && '.join(tests) or 'true'}) {{ v{number} = {found}; }}")

    def _expression(self, shader: Shader, number: int, at: Sequence[str]) -> str:
        value = self.sweep.values[number]
        if value.op is None:
            if value.constant is not None:
                return wgsl.literal(value.constant, value.dtype)
            return shader.element(self.args[number], self.coordinates(number, at)).value
        args = [f"v{arg}" for arg in value.args]
        if isinstance(value.op, VIEWS):
            return args[0]
        write = wgsl.find_expression(value.op)
        assert write is not None
        return write(value.op, args)


class Writer:
    """Writes the shader of a sweep."""

    def __init__(self, lowering: Lowering, sweep: Sweep, title: str) -> None:
        self.sweep, self.step, self.lowering = sweep, lowering.step, lowering
        self.values = Values(sweep, lowering.step.args)
        self.point = [f"d{dim}" for dim in range(len(sweep.domain))]
        self.kept = [dim for dim in range(len(sweep.domain)) if dim not in sweep.reduced]
        self.rows = math.prod(sweep.domain[dim] for dim in self.kept)
        self.length = math.prod(sweep.domain[dim] for dim in sweep.reduced)
        self.has_rows = any(value.is_reduction for value in sweep.values)
        self.row_outs = [n for n, value in enumerate(sweep.outputs) if not self._in_loop(value)]
        self.point_outs = [n for n, value in enumerate(sweep.outputs) if self._in_loop(value)]
        self.shares_rows = self.has_rows and self.length > SHORT_ROW
        self.splits = count_parts(sweep, lowering.processor)
        self.side_by_side = self._count_columns() if self.shares_rows else 1
        self.shader = Shader(lowering, title, ROW_GROUP if self.shares_rows else 64)
        self.line = self.shader.line

    def _in_loop(self, number: int) -> bool:
        return self.has_rows and self.sweep.varies(number)

    def _count_columns(self) -> int:
        """Return how many rows a work group reduces side by side, where they are columns in memory.

        Then neighboring lanes read neighbors; fewer where there would be too few work groups.
        """
        if not self.kept:
            return 1
        column, row = self.kept[-1], self.sweep.reduced[-1]
        if self.sweep.domain[column] < MIN_COLUMNS or not self._has_neighbors(column):
            return 1
        count = 1 if self._has_neighbors(row) else MAX_COLUMNS
        processor = self.lowering.processor
        while count > MIN_COLUMNS and (
            -(-self.rows // count) * self.splits < processor.units * GROUPS_PER_UNIT
        ):
            count //= 2
        return count

    def _has_neighbors(self, dim: int) -> bool:
        """Whether elements of an operand are next to each other along a dimension."""
        operands = zip(self.sweep.values, self.step.args, strict=False)
        return self.sweep.domain[dim] > 1 and any(
            dim in value.places and layout.strides[value.places.index(dim)] == layout.dtype.itemsize
            for value, layout in operands
        )

    def write(self) -> None:
        """Append the launch, or those of parts, if there is anything to compute."""
        if not self.rows or not any(math.prod(out.shape) for out in self.step.outs):
            return
        if self.splits > 1:
            self._write_split(self.splits)
            return
        places = [self.step.outs[n] for n in self.row_outs]
        stores = Stores(self.shader, places, self.rows)
        if self.shares_rows:
            self._begin_group(1)
        else:
            stores.begin()
        known = self._row_head()
        if self.has_rows:
            self._stages(known)
        self._rows_end(known, stores)
        self.shader.launch(self._tiles if self.shares_rows else stores.groups)

    @property
    def _tiles(self) -> int:
        """The work groups that all rows take."""
        return -(-self.rows // self.side_by_side)

    def _begin_group(self, splits: int) -> None:
        """Add lines that name the row of a lane, and the part of it."""
        count = self.side_by_side
        self.line(f"let tile = group_number / {splits};")
        self.line(f"let part = group_number % {splits};")
        self.line(f"if (tile >= {self._tiles}) {{ return; }}")
        self.line(f"let is_row = tile * {count} + lane % {count} < {self.rows};")
        self.line(f"let i = min(tile * {count} + lane % {count}, {self.rows - 1});")

    def _row_head(self) -> set[int]:
        """Name the coordinates of a row, and load and compute what it has from the beginning."""
        self.shader.coordinates(
            "i", [self.sweep.domain[dim] for dim in self.kept], [f"d{dim}" for dim in self.kept]
        )
        known: set[int] = set()
        numbers = [n for n in range(len(self.sweep.values)) if not self._in_loop(n)]
        if self.sweep.count == 1:
            self._compute(numbers, known)
            return known
        self._compute([n for n in numbers if self.sweep.values[n].op is None], known)
        self._repeat(numbers, known)
        return known

    def _repeat(self, numbers: Sequence[int], known: set[int]) -> None:
        """Add the loop that computes values again and again; `w3` is `v3` of the last time."""
        sweep = self.sweep
        for number in (operand for operand, _ in sweep.carried):
            self.line(f"var w{number} = v{number};")
        for number in sweep.outputs:
            self.line(f"var w{number} = {wgsl.literal(0, sweep.values[number].dtype)};")
        self.line(f"for (var turn = 0; turn < {sweep.count}; turn++) {{")
        for number in (operand for operand, _ in sweep.carried):
            self.line(f"let v{number} = w{number};")
        self._compute(numbers, set(known))
        for name, number in (*sweep.carried, *((each, each) for each in sweep.outputs)):
            self.line(f"w{name} = v{number};")
        self.line("}")
        for number in sweep.outputs:
            self.line(f"let v{number} = w{number};")
        known.update(sweep.outputs)

    def _compute(self, numbers: Sequence[int], known: set[int]) -> None:
        """Compute those values, in order, whose operands are known; reductions are not computed."""
        self.values.compute(self.shader, numbers, known, self.point)

    def _write_split(self, splits: int) -> None:
        """Append the launch that reduces parts of each row, and the one that combines them."""
        values, title = self.sweep.values, self.shader.title
        totals = {n: Total(n, each.op) for n, each in enumerate(values) if each.is_reduction}
        partial = {
            n: self.lowering.scratch((self.rows, splits), total.dtype)
            for n, total in totals.items()
        }
        chunk = -(-self.length // splits)
        known = self._begin_row(f"{title}_of_parts", splits)
        self._begin_totals(totals)
        self.line(f"let last = min((part + 1) * {chunk}, {self.length});")
        self._loop(
            [values[n].args[0] for n in totals], known, (f"part * {chunk} + {self._first}", "last")
        )
        for n, total in totals.items():
            self.line(total.add(f"v{values[n].args[0]}", values[values[n].args[0]].dtype))
        self.line("}")
        self._end_totals(totals)
        self.line(f"if (lane < {self.side_by_side} && is_row) {{")
        for n, total in totals.items():
            element = self.shader.element(partial[n], ["i", "part"], written=True)
            self.line(element.store(total.name))
        self.line("}")
        self.shader.launch(self._tiles * splits)
        self.side_by_side = 1
        known = self._begin_row(f"{title}_of_all", 1)
        self._begin_totals(totals)
        self.line(f"for (var j = lane; j < {splits}; j += {ROW_GROUP}) {{")
        for n, total in totals.items():
            self.line(total.add(self.shader.element(partial[n], ["i", "j"]).value, total.dtype))
        self.line("}")
        self._end_totals(totals)
        known.update(totals)
        self._compute([n for n in range(len(values)) if not self._in_loop(n)], known)
        self._rows_end(known, Stores(self.shader, [self.step.outs[n] for n in self.row_outs], 1))
        self.shader.launch(self.rows)

    def _begin_row(self, title: str, splits: int) -> set[int]:
        """Begin a shader with a work group for each part of each row; return what is known."""
        self.shader = Shader(self.lowering, title, ROW_GROUP)
        self.line = self.shader.line
        self._begin_group(splits)
        return self._row_head()

    @property
    def _first(self) -> str:
        """The first element of a row that a lane reads."""
        return f"lane / {self.side_by_side}" if self.shares_rows else "0"

    def _begin_totals(self, totals: Mapping[int, Total]) -> None:
        for total in totals.values():
            for text in total.begin():
                self.line(text)

    def _end_totals(self, totals: Mapping[int, Total]) -> None:
        for total in totals.values():
            for text in total.end(self.shader if self.shares_rows else None, self.side_by_side):
                self.line(text)

    def _loop(
        self, targets: Sequence[int], known: set[int], span: tuple[str, str] | None = None
    ) -> set[int]:
        """Begin a loop over a row and compute what targets need; return what is known inside."""
        step = ROW_GROUP // self.side_by_side if self.shares_rows else 1
        start, end = span or (self._first, str(self.length))
        self.line(f"for (var j = {start}; j < {end}; j += {step}) {{")
        reduced = self.sweep.reduced
        lengths = [self.sweep.domain[dim] for dim in reduced]
        self.shader.coordinates("j", lengths, [f"d{dim}" for dim in reduced])
        inside = set(known)
        self._compute(self.values.required(targets, known), inside)
        return inside

    def _stages(self, known: set[int]) -> None:
        """Add a loop for each stage of reductions, and one that stores what varies."""
        values = self.sweep.values
        reductions = [n for n, value in enumerate(values) if value.is_reduction]
        for stage in sorted({values[n].stage for n in reductions}):
            totals = {n: Total(n, values[n].op) for n in reductions if values[n].stage == stage}
            self._begin_totals(totals)
            args = [values[n].args[0] for n in totals]
            inside = self._loop(args, known)
            assert inside.issuperset(args)
            for n, total in totals.items():
                arg = values[n].args[0]
                self.line(total.add(f"v{arg}", values[arg].dtype))
            self.line("}")
            self._end_totals(totals)
            known.update(totals)
            self._compute([n for n in range(len(values)) if not self._in_loop(n)], known)
        if self.point_outs:
            self._loop([self.sweep.outputs[n] for n in self.point_outs], known)
            for n in self.point_outs:
                number = self.sweep.outputs[n]
                where = self.values.coordinates(number, self.point)
                element = self.shader.element(self.step.outs[n], where, written=True)
                store = element.store(f"v{number}")
                self.line(f"if (is_row) {{ {store} }}" if self.side_by_side > 1 else store)
            self.line("}")

    def _rows_end(self, known: set[int], stores: Stores) -> None:
        """Store what there is once for each row."""
        if self.shares_rows:
            self.line("storageBarrier();")
            self.line(f"if (lane < {self.side_by_side} && is_row) {{")
        for slot, n in enumerate(self.row_outs):
            number = self.sweep.outputs[n]
            assert number in known
            at = self.values.coordinates(number, self.point)
            if self.shares_rows or self._is_permuted(number):
                element = self.shader.element(self.step.outs[n], at, written=True)
                self.line(element.store(f"v{number}"))
            else:
                stores.store(slot, at, f"v{number}")
        self.line("}")

    def _is_permuted(self, number: int) -> bool:
        """Whether a result's elements are not in the order of the rows."""
        return [dim for dim in self.sweep.values[number].places if dim is not None] != self.kept


class Total:
    """A reduction of a row: the lines that begin it, add an element, and end it."""

    def __init__(self, number: int, op: Any) -> None:
        self.op, self.name = op, f"t{number}"
        self.number = number
        self.is_place = isinstance(op, ArgExtremumOp)
        self.dtype = op.args[0].dtype if self.is_place else op.dtype
        self.kind = wgsl.type_of(self.dtype)
        self.is_compensated = isinstance(op, (ops.SumOp, ops.ProdOp)) and self.kind == "f32"

    def begin(self) -> list[str]:
        """Return the declaration of the total."""
        lines = [f"var {self.name} = {self._identity()};"]
        if self.is_place:
            lines.append(f"var {self.name}_at = -1;")
        if self.is_compensated:
            lines.append(f"var {self.name}_error = 0.0;")
        return lines

    def _identity(self) -> str:
        if isinstance(self.op, ops.SumOp | ops.ProdOp):
            return wgsl.literal(int(isinstance(self.op, ops.ProdOp)), self.dtype)
        bound = dtypes.greatest if isinstance(self.op, ops.MinOp) else dtypes.least
        return wgsl.literal(bound(self.dtype), self.dtype)

    def _is_better(self, x: str, y: str) -> str:
        """Whether a value is better than another, wherever it is; NaN is the best."""
        if isinstance(self.op, ops.ArgmaxOp):
            return wgsl.larger(self.dtype, x, y)
        if self.kind == "f32":
            return wgsl.larger(self.dtype, f"(-{x})", f"(-{y})")
        return wgsl.larger(self.dtype, y, x)

    def add(self, value: str, dtype: Any) -> str:
        """Return the statement that adds an element."""
        name = self.name
        if self.is_place:
            better = f"{name}_at < 0 || {self._is_better(value, name)}"
            return f"if ({better}) {{ {name} = {value}; {name}_at = j; }}"
        value = wgsl.cast(value, dtype, self.dtype)
        if self.is_compensated:
            return f"{{ let x = {value}; {self._compensated()} }}"
        return f"{name} = {self._combined(name, value)};"

    def _compensated(self) -> str:
        """Return statements that add or multiply x and keep the rounding error."""
        name = self.name
        if isinstance(self.op, ops.ProdOp):
            return (
                f"let t = opaque({name} * x); "
                f"{name}_error = {name}_error * x + product_error({name}, x, t); {name} = t;"
            )
        return two_sum(name)

    def _combined(self, x: str, y: str) -> str:
        name = next(name for kind, name in COMBINERS.items() if isinstance(self.op, kind))
        return wgsl.combined(name, self.dtype, x, y)

    def end(self, shared: Shader | None, columns: int = 1) -> list[str]:
        """Return the lines that make the value; lanes that share a row combine theirs."""
        name, lines = self.name, []
        if self.is_compensated:
            lines.append(add_error(name))
        if shared is not None:
            lines += self._combine(shared, columns)
        value = f"{wgsl.type_of(self.op.dtype)}({name}_at)" if self.is_place else name
        return [*lines, f"let v{self.number} = {value};"]

    def _combine(self, shader: Shader, columns: int) -> list[str]:
        """Combine the totals of the lanes in shared memory, as a tree."""
        name, memory, at = self.name, f"s{self.number}", f"s{self.number}_at"
        shader.declarations.append(f"var<workgroup> {memory}: array<{self.kind}, {ROW_GROUP}>;")
        own, other = f"{memory}[lane]", f"{memory}[lane + half]"
        put, got = f"{own} = {name};", f"{name} = {memory}[lane % {columns}];"
        if not self.is_place:
            join = f"{own} = {self._combined(own, other)};"
        else:
            shader.declarations.append(f"var<workgroup> {at}: array<i32, {ROW_GROUP}>;")
            own_at, other_at = f"{at}[lane]", f"{at}[lane + half]"
            put += f" {own_at} = {name}_at;"
            got += f" {name}_at = {at}[lane % {columns}];"
            tie = f"(!{self._is_better(own, other)} & ({other_at} < {own_at}))"
            better = f"{own_at} < 0 || {self._is_better(other, own)} || {tie}"
            join = (
                f"if ({other_at} >= 0 && ({better})) {{ {own} = {other}; {own_at} = {other_at}; }}"
            )
        return [put, *tree(join, columns), got, "workgroupBarrier();"]


def two_sum(name: str) -> str:
    """Return statements that add x to a variable, and the rounding error to another.

    What is opaque is not simplified: WGSL lets compilers take (a + b) - a for b.
    """
    return (
        f"let t = opaque({name} + x); let z = opaque(t - {name}); "
        f"{name}_error += ({name} - (t - z)) + (x - z); {name} = t;"
    )


def add_error(name: str) -> str:
    """Return the statement that adds its rounding error to a variable, if that is finite."""
    return f"if (!is_nan({name}_error) & !is_inf({name}_error)) {{ {name} += {name}_error; }}"


def tree(join: str, columns: int = 1) -> list[str]:
    """Return lines that combine what the lanes put into shared memory, by what joins two of it.

    The first lanes, one for each of the columns side by side, have the results.
    """
    return [
        "workgroupBarrier();",
        f"for (var half = {ROW_GROUP // 2}; half >= {columns}; half = half / 2) {{",
        f"if (lane < half) {{ {join} }}",
        "workgroupBarrier();",
        "}",
    ]
