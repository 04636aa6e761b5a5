"""How many defects the execution finds: single barriers left out, single comparisons changed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from mutants import Mutant, fate, mutants
from pretended import FORMS
from test_larger_shapes import LARGE, MANY, numbers, results_of

import weft
from weft.testing.cases import is_within, make_case
from weft.testing.test_ops import ROWS
from weft_c import CUDA, Processor
from weft_c.runtime.transformer import target_of

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from conftest import Maker
    from pretended import Machine

KERNELS = 100
ROWS_TOO = 40
TARGET = target_of("cupy", Processor(CUDA, is_serial=False, units=MANY))
LEAST_FOUND = 0.9


class Program(NamedTuple):
    """A program in CUDA C, and what computes with it and tells whether the results are right."""

    text: str
    run: Callable[[], bool]


def program(make: Maker, machine: Machine, units: int, results: Any, xs: Any, arrays: Any) -> Any:
    """Return the program of ops, or None if there are no kernels."""
    with weft.make_transformer("numpy") as numpy:
        wanted = numpy.computation(results, *xs)(*arrays)

    def run() -> bool:
        with np.errstate(all="ignore"):
            with make(FORMS["cuda"] | {"units": units}, cache=False) as transformer:
                got = transformer.computation(results, *xs)(*arrays)
            return all(map(_is_close, got, wanted))

    before = {*machine.emulator.compiler.texts}
    assert run()
    new = [text for text in machine.emulator.compiler.texts if text not in before]
    return Program(new[0], run) if new else None


def _is_close(x: Any, y: Any) -> bool:
    if x.dtype.kind not in "fV":
        return np.array_equal(x, y)
    wide = np.asarray(y, "f8")
    finite = np.abs(wide[np.isfinite(wide)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    return np.allclose(np.asarray(x, "f8"), wide, 1e-3, 1e-3 * scale, equal_nan=True)


def programs(make: Maker, machine: Machine, draw: random.Random) -> list[Program]:
    """Return programs of larger shapes, on few units and on many, and of rows of the kit."""
    found = []
    for build, shapes in LARGE.values():
        xs = [weft.placeholder(shape) for shape in shapes]
        arrays = [numbers(x) for x in xs]
        results = results_of(build, xs)
        found += [program(make, machine, units, results, xs, arrays) for units in (2, MANY)]
    rows = [row for row in ROWS.values() if "float32" in row.dtypes and row.case != "constant"]
    for row in draw.sample(rows, ROWS_TOO):
        case = make_case(row, row.shapes[0], "float32")
        if is_within(case, TARGET):
            results, xs = list(case.results), list(case.placeholders)
            found.append(program(make, machine, MANY, results, xs, case.arrays))
    return [each for each in found if each is not None]


@pytest.mark.long
def test_nine_of_ten_defects_are_found(
    make: Maker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    pool: dict[str, tuple[Program, list[Mutant]]] = {}
    for each in programs(make, machine, draw):
        for mutant in mutants(each.text):
            pool.setdefault(mutant.kernel, (each, []))[1].append(mutant)
    monkeypatch.setattr(machine.emulator, "seconds", 4)
    fates: Counter[str] = Counter()
    missed = []
    for name in draw.sample(sorted(pool), KERNELS):
        tried, all_of_it = pool[name]
        for mutant in chosen(all_of_it, draw):
            found = fate(machine.emulator, tried.text, mutant, tried.run)
            if found == "survives" and mutant.is_equivalent:
                found = "equivalent"
            fates[found] += 1
            if found == "survives":
                missed.append((mutant.kernel, mutant.kind, mutant.line))
    print(dict(fates), *missed, sep="\n")
    seen = fates["found"] + fates["wrong"]
    assert seen >= LEAST_FOUND * (seen + fates["survives"]), missed


def chosen(mutants_of_kernel: list[Mutant], draw: random.Random) -> list[Mutant]:
    """Return a mutant of a kernel without one of its barriers, and one with another comparison."""
    barriers = [each for each in mutants_of_kernel if each.kind == "barrier"]
    others = [each for each in mutants_of_kernel if each.kind != "barrier"]
    return [draw.choice(each) for each in (barriers, others) if each]
