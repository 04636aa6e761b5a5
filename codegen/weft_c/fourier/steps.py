"""The steps of a transform: its stages, and what precedes and follows them."""

from __future__ import annotations

from contextlib import AbstractContextManager

from weft.ir.description import TensorDescription
from weft_c.fourier.butterflies import Butterfly, Complex
from weft_c.fourier.mixed_radix import MixedRadixOp, Stage, first_real_root, stages_of
from weft_c.fourier.places import Place, Swapped
from weft_c.fourier.vectors import Vectors
from weft_c.lowering import Array, Lowering
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import literal


class Transform:
    """Builds the kernel of a transform of rows.

    Attributes
    ----------
    row
        While a loop is written, the number of the first row that it works on.
    rows_in_vectors
        Whether the lanes of a vector belong to neighboring rows, not to neighboring elements.
    """

    row: str
    rows_in_vectors = False

    def __init__(
        self, op: MixedRadixOp, lowering: Lowering, x: TensorDescription, out: TensorDescription
    ) -> None:
        """Take the layouts of pairs [..., rows, elements, 2]."""
        self.op = op
        self.lowering = lowering
        self.processor = lowering.processor
        self.builder = lowering.kernel("fft")
        self.code = self.builder.code
        self.n, self.stages = op.length, stages_of(op.length)
        *self.outer, self.count = x.shape[:-2]
        self.x = self.builder.array("x", x)
        self.roots = self.builder.array("roots", lowering.args[1])
        numbers = [self.builder.array("numbers", each) for each in lowering.args[2:]]
        self.factors = numbers.pop(0) if op.has_factors else None
        self.turns = numbers.pop() if numbers else None
        self.out = self.builder.array("out", out, written=True)
        self.kind = index_type(is_wide(x, out))

    def elements(self, count: int, source: Place) -> AbstractContextManager[tuple[Vectors, str]]:
        """Write a loop over the elements of rows; yields vectors and the number of an element."""
        raise NotImplementedError

    def write_stage(self, stage: Stage, source: Place, target: Place) -> None:
        """Write a stage."""
        raise NotImplementedError

    def spare(self, place: Place) -> Place:
        """Return memory for intermediate results that is not the given one."""
        raise NotImplementedError

    def write_steps(self, source: Place, target: Place | None) -> Place:
        """Write the steps; without a target, results stay in the memory that is returned.

        Of results that stay there, all are kept. An inverse loads and stores swapped parts.
        """
        op, is_inverse = self.op, self.op.sign > 0
        here = source
        if op.has_factors or (op.is_real and is_inverse):
            here = self.spare(source)
            if op.is_real:
                self._write_folded(source, Swapped(here))
            else:
                self._write_padded(source, here)
        contracts = op.kept != op.length
        for stage in self.stages:
            is_last = stage.rest == 1 and not contracts and target is not None
            there = target if is_last and target is not None else self.spare(here)
            self.write_stage(stage, here, there)
            here = there
        if contracts and op.is_real:
            there = self.spare(here) if target is None else target
            self._write_unfolded(here, there)
            return there
        if contracts and target is not None:
            with self.elements(op.kept, here) as (vectors, e):
                target.store(vectors, e, here.load(vectors, e))
        return here

    def finished(self, vectors: Vectors, value: Complex, e: str) -> Complex:
        """Return a result of the stages times what results are multiplied with."""
        butterfly = self.butterfly(vectors)
        if self.turns is not None:
            value = butterfly.product(value, self._number(vectors, self.turns, e))
        if self.op.scale == 1:
            return value
        scale = literal(self.op.scale, self.op.dtype)
        return butterfly.define(*[f"{scale} * {part}" for part in value])

    def root(self, vectors: Vectors, first: int, count: int, p: str) -> Complex:
        """Return roots from the table, whose imaginary parts follow `count` real ones."""
        return Complex(*[
            vectors.define(vectors.load(str(self.roots.at(f"{first + part * count} + {p}"))))
            for part in range(2)
        ])  # fmt: skip

    def butterfly(self, vectors: Vectors) -> Butterfly:
        """Return what writes arithmetic with vectors."""
        return Butterfly(self.code, self.op.dtype, vectors.type)

    def _number(self, vectors: Vectors, array: Array, e: str) -> Complex:
        """Return the numbers for an element of rows, each with its own or all with the same."""
        has_rows = array.layout.shape[1] > 1
        if self.rows_in_vectors and not has_rows:
            vectors = Vectors(self.code, self.op.dtype, 1)
        return vectors.load_pairs(f"({array.at(f'({e})', self.row if has_rows else '0', '0')})")

    def _write_padded(self, source: Place, target: Place) -> None:
        """Write the products of pairs and factors, and zeros behind them."""
        assert self.factors is not None, "there are some where there are fewer pairs"
        given = self.op.given
        with self.elements(given, source) as (vectors, e):
            factor = self._number(vectors, self.factors, e)
            value = self.butterfly(vectors).product(source.load(vectors, e), factor)
            target.store(vectors, e, value)
        with self.elements(self.n - given, source) as (vectors, e):
            zero = vectors.define(vectors.gathered(["0"] * vectors.lanes))
            target.store(vectors, f"{given} + {e}", Complex(zero, zero))

    def _write_folded(self, source: Place, target: Place) -> None:
        """Write the spectrum of pairs of real numbers, whose own spectrum is given by half.

        The first element and the last one count as real.
        """
        self._write_both_ends(source, target, self.n)
        with self.elements(1, source) as (vectors, _):
            first, last = source.load(vectors, "0"), source.load(vectors, str(self.n))
            ends = [f"{first.real} {sign} {last.real}" for sign in "+-"]
            target.store(vectors, "0", self.butterfly(vectors).define(*ends))

    def _write_unfolded(self, source: Place, target: Place) -> None:
        """Write half of the spectrum of real numbers, from that of pairs of them.

        The first element occurs at both ends.
        """
        with self.elements(1, source) as (vectors, _):
            source.store(vectors, str(self.n), source.load(vectors, "0"))
        self._write_both_ends(source, target, self.n + 1)

    def _write_both_ends(self, source: Place, target: Place, count: int) -> None:
        """Write sums of elements and of the conjugates of those as far from the end."""
        with self.elements(count, source) as (vectors, e):
            butterfly = self.butterfly(vectors)
            step = 1 if self.rows_in_vectors else vectors.lanes
            x = source.load(vectors, e)
            y = source.load(vectors, f"{self.n - step + 1} - {e}")
            if step > 1:
                order = [(0, lane) for lane in reversed(range(step))]
                y = butterfly.define(*[vectors.shuffled("reversed", order, part) for part in y])
            even = butterfly.define(f"{x.real} + {y.real}", f"{x.imag} - {y.imag}")
            odd = butterfly.define(f"{x.real} - {y.real}", f"{x.imag} + {y.imag}")
            roots = Vectors(self.code, self.op.dtype, step)
            root = self.root(roots, first_real_root(self.n), count, e)
            if self.op.sign < 0:
                half = literal(0.5, self.op.dtype)
                even = butterfly.define(*[f"{half} * {part}" for part in even])
            target.store(vectors, e, butterfly.sum(even, butterfly.product(odd, root)))
