"""Accumulators of reductions: their declaration, updates, and the combination of vector lanes.

An accumulator is a scalar or a vector variable of a work item. Sums of floats are accumulated in
blocks: `flush_block` adds the plain sum of a block to a compensated accumulator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from weft.ir import dtypes
from weft.kernels.kernel import Instruction
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.reductions.combiners import (
    CompensatedAccumulator,
    accumulation_dtype,
    combine,
    identity_element,
    is_blocked,
    is_compensated,
)
from weft_c.source.code import Code
from weft_c.source.values import ValueEmitter, register_type


class Accumulators(ABC):
    """The accumulators of the kernel that a builder writes.

    Attributes
    ----------
    block_loop
        The position of the reduced loop that is split into blocks, and the length of a block in
        iterations; None while sums need no blocks.
    compensated
        By the name of a plain accumulator, the compensated one that its value ends up in.
    is_partial
        Whether results are accumulators of a split, which stay in the accumulation dtype.
    """

    def __init__(self, builder: ElementWiseKernel, is_partial: bool) -> None:
        self.builder = builder
        self.kernel = builder.kernel
        self.code: Code = builder.code
        self.emitter = ValueEmitter(self.code)
        self.is_partial = is_partial
        self.block_loop: tuple[int, int] | None = None
        self.compensated: dict[str, CompensatedAccumulator] = {}

    @abstractmethod
    def has_scalar_remainder(self, lanes: int) -> bool:
        """Whether single points remain beside vectors of `lanes` lanes."""

    def begin_accumulators(
        self, reductions: Sequence[int], lanes: int, vectors: int
    ) -> dict[int, list[str]]:
        """Declare the accumulators of reductions: for each one scalar, and `vectors` vectors."""
        emitters = [self.emitter, *[ValueEmitter(self.code, lanes)] * vectors]
        lines: list[str] = []
        accumulators = {
            number: [
                self._begin_accumulator(
                    self.kernel.instruction(number), emitter, lanes, index < 2, lines
                )
                for index, emitter in enumerate(emitters)
            ]
            for number in reductions
        }
        if lines:
            with self.each_accumulator():
                for line in lines:
                    self.code.line(line)
        return accumulators

    def _begin_accumulator(
        self,
        instruction: Instruction,
        emitter: ValueEmitter,
        lanes: int,
        is_first: bool,
        lines: list[str],
    ) -> str:
        """Declare an accumulator and its compensated one; append initial values to `lines`."""
        dtype = accumulation_dtype(instruction)
        kind = emitter.type(dtype)
        name = accumulator = self.declare(kind, "total")
        lines.append(f"{name} = {identity_element(instruction, emitter)};")
        is_put_aside = is_first and is_blocked(instruction) and self.block_loop is not None
        counts = emitter.is_vector or self.has_scalar_remainder(lanes)
        if counts and (is_put_aside or is_compensated(instruction)):
            if is_put_aside:
                accumulator = self.declare(kind, "compensated")
                lines.append(f"{accumulator} = {identity_element(instruction, emitter)};")
            error = self.declare(kind, "error")
            lines.append(f"{error} = {emitter.constant(0, dtype)};")
            self.compensated[name] = CompensatedAccumulator(dtype, emitter, accumulator, error)
        return name

    def declare(self, kind: str, hint: str) -> str:
        """Declare a variable for each point of a work item, and return its name."""
        name = self.code.name(hint)
        self.code.line(f"{kind} {name};")
        return name

    @contextmanager
    def each_accumulator(self) -> Iterator[None]:
        """Write a block for each point of a work item; subclasses with several points loop."""
        yield

    def accumulate(
        self,
        instruction: Instruction,
        emitter: ValueEmitter,
        accumulator: str,
        names: Mapping[int, str],
    ) -> None:
        """Write the update of an accumulator by a point, or by a vector of points."""
        dtype = self.kernel.values[instruction.args[0]].dtype
        value = emitter.converted(
            dtype, accumulation_dtype(instruction), names[instruction.args[0]]
        )
        if is_compensated(instruction):
            self.compensated[accumulator].multiply(self.code, value)
        else:
            self.code.line(f"{accumulator} = {combine(instruction, emitter, accumulator, value)};")

    def flush_block(self, accumulators: dict[int, list[str]]) -> None:
        """Add the plain sums of a block to the compensated ones, and reset them."""
        for number, (numbers, *vectors) in accumulators.items():
            instruction = self.kernel.instruction(number)
            if not is_blocked(instruction):
                continue
            with self.each_accumulator():
                for other in vectors[1:]:
                    self.code.line(f"{vectors[0]} += {other};")
                for names in ([numbers], vectors):
                    compensated = self.compensated.get(names[0]) if names else None
                    if compensated is not None:
                        compensated.add(self.code, names[0])
                        for name in names:
                            self.code.line(
                                f"{name} = {identity_element(instruction, compensated.emitter)};"
                            )

    def rounded(self, names: Sequence[str]) -> list[str]:
        """Round compensated accumulators, and return the names of those that contribute."""
        compensated = [name for name in names if name in self.compensated]
        for name in compensated:
            with self.each_accumulator():
                self.code.line(f"{name} = {self.compensated[name].rounded};")
        return (
            [names[0], *compensated]
            if compensated and names[0] not in compensated
            else compensated or list(names)
        )

    def finish_accumulator(self, number: int, names: Sequence[str], lanes: int) -> str:
        """Combine vectors and lanes, and return the scalar in the reduction's dtype."""
        instruction = self.kernel.instruction(number)
        names = self.rounded(names)
        accumulator, *vectors = names
        dtype = accumulation_dtype(instruction)
        for other in vectors[1:]:
            text = combine(instruction, ValueEmitter(self.code, lanes), vectors[0], other)
            self.code.line(f"{vectors[0]} = {text};")
        for vector in vectors[:1]:
            count = lanes // 2
            while count > 1:
                kind = register_type(dtype, count)
                half = f"LOW({vector})", f"HIGH({vector})"
                text = combine(instruction, ValueEmitter(self.code, count), *half)
                vector = self.code.define(kind, "half", text)
                count //= 2
            for part in (f"LANE({vector}, 0)", f"LANE({vector}, 1)"):
                value = f"({part} & 1)" if dtypes.is_bool(dtype) else part
                text = combine(instruction, ValueEmitter(self.code), accumulator, value)
                self.code.line(f"{accumulator} = {text};")
        if dtype == instruction.dtype or self.is_partial:
            return accumulator
        emitter = ValueEmitter(self.code)
        text = emitter.converted(dtype, instruction.dtype, accumulator)
        return self.code.define(f"const {emitter.type(instruction.dtype)}", "v", text)
