"""Simulations and signal processing: weft beside loops written by hand in numba, JAX, and NumPy.

A program is written with arrays, once for the namespaces of weft, JAX and NumPy, and element by
element for numba. Results are compared with NumPy's before anything is timed. A tool that is not
installed is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import numpy as np
import simulation_kernels as kernels
from environment import cores, require_untuned
from measure import NOISE, interleaved, number
from rich.console import Console
from rich.table import Table

import weft

Array = np.ndarray[Any, Any]
Values = tuple[Any, ...]
random = np.random.default_rng(0)


@dataclass(frozen=True)
class Simulation:
    """A program.

    Attributes
    ----------
    name
        Its name in the table, with its size.
    step
        Takes a namespace and the values, and returns the results; with `steps`, the next values.
    arrays
        What it is called with.
    by_hand
        Returns loops for numba, with the same operands and results.
    steps
        How often the step is repeated; None for a program without a loop.
    goes_on
        Whether there is another step, of values: a condition instead of a number of steps.
    tolerance
        How much of the largest value a result may differ from NumPy's.
    """

    name: str
    step: Callable[..., Values]
    arrays: Sequence[Array]
    by_hand: Callable[[Any], Callable[..., Any]]
    steps: int | None = None
    goes_on: Callable[..., Any] | None = None
    tolerance: float = 1e-4


def by_numpy(each: Simulation) -> Callable[[], Values]:
    """NumPy, one function at a time."""

    def run() -> Values:
        values = tuple(each.arrays)
        if each.goes_on is not None:
            while each.goes_on(np, *values):
                values = each.step(np, *values)
            return values
        for _ in range(1 if each.steps is None else each.steps):
            values = each.step(np, *values)
        return values

    return run


def by_weft(each: Simulation) -> Callable[[], Values]:
    """The backend that the command line names."""
    given = [weft.placeholder(x.shape, dtype=x.dtype) for x in each.arrays]
    if each.steps is None and each.goes_on is None:
        results = each.step(weft, *given)
    else:
        inputs = [weft.placeholder(x.shape, dtype=x.dtype) for x in each.arrays]
        body = weft.capture(list(each.step(weft, *inputs)), inputs)
        if each.goes_on is None:
            results = weft.loop(body, each.steps or 0, *given)
        else:
            condition = weft.capture([each.goes_on(weft, *inputs)], inputs)
            results = weft.while_loop(condition, body, *given)
    computation = weft.make_transformer().computation(list(results), *given)
    return lambda: computation(*each.arrays)


def by_jax(each: Simulation) -> Callable[[], Values]:
    """JAX, jitted."""
    jax = import_module("jax")
    jnp, lax = jax.numpy, jax.lax
    held = [jnp.asarray(x) for x in each.arrays]

    def function(*values: Any) -> Values:
        if each.goes_on is not None:
            test, step = each.goes_on, each.step
            found = lax.while_loop(lambda v: test(jnp, *v), lambda v: step(jnp, *v), values)
        elif each.steps is not None:
            found = lax.fori_loop(0, each.steps, lambda _, v: each.step(jnp, *v), values)
        else:
            found = each.step(jnp, *values)
        return tuple(found)

    compiled = jax.jit(function)
    return lambda: tuple(jax.block_until_ready(compiled(*held)))


def by_numba(each: Simulation) -> Callable[[], Values]:
    """Loops written by hand, parallel where that is faster."""
    run = each.by_hand(import_module("numba"))
    if each.steps is None:
        return lambda: run(*each.arrays)
    return lambda: run(each.steps, *each.arrays)


TOOLS = {"numpy": by_numpy, "weft": by_weft, "jax": by_jax, "numba": by_numba}


def _around(xp: Any, x: Any, rank: int) -> Any:
    """Return the sum of the neighbors of each element along all axes, with zeros outside."""
    padded, total = xp.pad(x, ((1, 1),) * rank), None
    for axis in range(rank):
        for part in (slice(None, -2), slice(2, None)):
            at = [slice(1, -1)] * rank
            at[axis] = part
            total = padded[tuple(at)] if total is None else total + padded[tuple(at)]
    return total


def wave(xp: Any, before: Any, now: Any) -> Values:
    """The wave equation in two dimensions."""
    return now, 2 * now - before + 0.1 * (_around(xp, now, 2) - 4 * now)


def heat(xp: Any, now: Any) -> Values:
    """The heat equation in three dimensions."""
    return (now + 0.1 * (_around(xp, now, 3) - 6 * now),)


def life(xp: Any, now: Any) -> Values:
    """Conway's Game of Life on a torus."""
    rows = now + xp.roll(now, 1, 0) + xp.roll(now, -1, 0)
    count = rows + xp.roll(rows, 1, 1) + xp.roll(rows, -1, 1) - now
    return (xp.where(xp.equal(count, 3), 1, xp.where(xp.equal(count, 2), now, 0)),)


def jacobi(xp: Any, before: Any, now: Any, source: Any) -> Values:
    """One iteration on Poisson's equation."""
    return now, 0.25 * (_around(xp, now, 2) + source), source


def is_moving(xp: Any, before: Any, now: Any, source: Any) -> Any:
    """Whether an element changes by more than 1e-3."""
    return xp.greater(xp.max(xp.abs(now - before)), 1e-3)


def black_scholes(xp: Any, spot: Any, strike: Any, years: Any) -> Values:
    """Prices of calls; the normal distribution by Zelen and Severo's formula 26.2.17."""
    rate, volatility = 0.02, 0.3
    deviation = volatility * xp.sqrt(years)
    one = (xp.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / deviation

    def normal(x: Any) -> Any:
        t = 1 / (1 + 0.2316419 * xp.abs(x))
        terms = 0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429
        tail = 0.0
        for term in reversed(terms):
            tail = (tail + term) * t
        tail = tail * xp.exp(-0.5 * x * x) * 0.3989422804
        return xp.where(xp.greater(x, 0), 1 - tail, tail)

    return (spot * normal(one) - strike * xp.exp(-rate * years) * normal(one - deviation),)


def bodies(xp: Any, place: Any, speed: Any) -> Values:
    """A step of bodies that attract each other."""
    count = len(place) if xp is np else place.shape[0]
    apart = xp.reshape(place, (1, count, 3)) - xp.reshape(place, (count, 1, 3))
    squares = xp.sum(apart * apart, -1) + 0.01
    pull = 1 / (squares * xp.sqrt(squares))
    force = xp.sum(apart * xp.reshape(pull, (count, count, 1)), 1)
    faster = speed + 1e-5 * force
    return place + 1e-2 * faster, faster


def smoothed(xp: Any, x: Any) -> Values:
    """A separable blur with seven taps."""
    taps = (0.03, 0.11, 0.22, 0.28, 0.22, 0.11, 0.03)
    rows, columns = x.shape
    padded = xp.pad(x, ((3, 3), (0, 0)))
    across = sum(tap * padded[n : n + rows] for n, tap in enumerate(taps))
    padded = xp.pad(across, ((0, 0), (3, 3)))
    return (sum(tap * padded[:, n : n + columns] for n, tap in enumerate(taps)),)


def mandelbrot(xp: Any, x: Any, y: Any, a: Any, b: Any, count: Any) -> Values:
    """An iteration for each point."""
    xx, yy = x * x, y * y
    inside = xp.less(xx + yy, 4)
    nx = xp.where(inside, xx - yy + a, x)
    ny = xp.where(inside, 2 * x * y + b, y)
    return nx, ny, a, b, xp.where(inside, count + 1, count)


def kalman(xp: Any, x: Any, p: Any, seen: Any) -> Values:
    """A step of a filter of four states for tracks that are seen in two of them."""
    f = np.eye(4, dtype="f4") + 0.1 * np.eye(4, k=2, dtype="f4")
    h = np.eye(2, 4, dtype="f4")
    x, p = x @ f.T, f @ p @ f.T + 0.01 * np.eye(4, dtype="f4")
    s = h @ p @ h.T + 0.1 * np.eye(2, dtype="f4")
    a, b, c, d = s[0, 0], s[0, 1], s[1, 0], s[1, 1]
    inverse = xp.reshape(xp.stack([d, -b, -c, a]), (2, 2)) / (a * d - b * c)
    gain = p @ h.T @ inverse
    return x + (seen - x @ h.T) @ gain.T, p - gain @ h @ p, seen


def cumulative(xp: Any, x: Any) -> Values:
    """Cumulative sums of rows."""
    return (xp.cumsum(x, 1),)


def biquad(xp: Any, x: Any, one: Any, two: Any, level: Any) -> Values:
    """A sample of a filter of second order, for many channels: an infinite impulse response."""
    y = 0.2 * x + one
    return 0.99 * x, 0.4 * x + two + 0.5 * y, 0.2 * x - 0.3 * y, level + y * y


def _simulations() -> dict[str, Simulation]:
    normal = lambda *shape: random.standard_normal(shape, "f4")  # noqa: E731
    grid = np.meshgrid(np.linspace(-2, 0.6, 512), np.linspace(-1.2, 1.2, 512))
    a, b = (each.astype("f4") for each in grid)
    zeros = np.zeros((512, 512), "f4")
    found = {
        f"wave-{n}": Simulation(
            f"wave equation, {n} x {n}, 100 steps",
            wave, 0.01 * normal(2, n, n), kernels.wave, 100,
        )
        for n in (256, 512, 1024)
    }  # fmt: skip
    source, sums = normal(128, 128), normal(64, 100_000)
    prices = [1 + random.random(1_000_000).astype("f4") for _ in range(3)]
    return found | {
        "heat": Simulation(
            "heat equation, 64 x 64 x 64, 50 steps", heat, normal(1, 64, 64, 64), kernels.heat, 50
        ),
        "life": Simulation(
            "Game of Life, 512 x 512, 50 steps", life,
            [(random.random((512, 512)) < 0.3).astype("i4")], kernels.life, 50,
        ),
        "jacobi": Simulation(
            "Jacobi, 128 x 128, until 1e-3", jacobi,
            [np.ones_like(source), np.zeros_like(source), source], kernels.jacobi,
            goes_on=is_moving, tolerance=1e-3,
        ),
        "black-scholes": Simulation(
            "Black-Scholes, 1e6 options", black_scholes, prices, kernels.black_scholes
        ),
        "bodies": Simulation(
            "512 bodies, 10 steps", bodies, [normal(512, 3), np.zeros((512, 3), "f4")],
            kernels.bodies, 10,
        ),
        "blur": Simulation("blur, 1024 x 1024", smoothed, [normal(1024, 1024)], kernels.smoothed),
        "mandelbrot": Simulation(
            "Mandelbrot, 512 x 512, 50 iterations", mandelbrot,
            [zeros, zeros, a, b, np.zeros((512, 512), "i4")], kernels.mandelbrot, 50, tolerance=50,
        ),
        "kalman": Simulation(
            "Kalman filter, 64 tracks, 1000 steps", kalman,
            [normal(64, 4), np.eye(4, dtype="f4"), normal(64, 2)], kernels.kalman, 1000,
        ),
        "cumulative": Simulation(
            "cumulative sums, 64 x 1e5", cumulative, [sums], kernels.cumulative, tolerance=1e-3
        ),
        "filter": Simulation(
            "filter of order 2, 4096 channels, 1000 samples", biquad,
            [normal(4096), *np.zeros((3, 4096), "f4")], kernels.biquad, 1000,
        ),
    }  # fmt: skip


SIMULATIONS = _simulations()


def checked(found: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    """Raise ValueError for a result that is not NumPy's."""
    for one, other in zip(found, wanted, strict=True):
        error = np.abs(np.asarray(one, "f8") - other).max() / max(np.abs(other).max(), 1e-30)
        if not error <= tolerance:
            raise ValueError(f"wrong by {error:.1e} of the largest value")


def measured(each: Simulation, rounds: int) -> tuple[Any, dict[str, str]]:
    """Check every tool against NumPy, then time them in turns."""
    calls: dict[str, str | Callable[[], Any]] = {}
    reasons: dict[str, str] = {}
    wanted: Values = ()
    for name, make in TOOLS.items():
        try:
            call = make(each)
            wanted = wanted or call()
            checked(call(), wanted, each.tolerance)
        except ImportError as error:
            reasons[name] = str(error)
        else:
            calls[name] = call
    return interleaved(calls, rounds), reasons


def table(found: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows: the time of each tool over that of weft."""
    rows = []
    means: dict[str, list[float]] = {}
    for name, samples in found.items():
        cells = [SIMULATIONS[name].name, f"{number(samples.median('weft') * 1e3)} ms"]
        for tool in TOOLS:
            if tool != "weft":
                known = tool in samples.seconds
                cells.append(f"{samples.ratio(tool, 'weft'):.3g}" if known else "")
                if known:
                    means.setdefault(tool, []).append(samples.ratio(tool, "weft"))
        noisy = max(samples.spread(tool) for tool in samples.seconds) > NOISE
        rows.append([*cells, "not quiet" if noisy else ""])
    geometric = [f"{statistics.geometric_mean(means[t]):.3g}" if t in means else ""
                 for t in TOOLS if t != "weft"]  # fmt: skip
    return [*rows, ["geometric mean", "", *geometric, ""]]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=list(SIMULATIONS))
    parser.add_argument("--rounds", type=int, default=7, help="how often tools take turns")
    parser.add_argument("--backend", default="native", help="the backend of weft to measure")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    given = parser.parse_args()
    require_untuned()
    os.environ["WEFT_BACKEND"] = given.backend
    console = Console(width=None if sys.stdout.isatty() else 150)
    found = {}
    for name in given.only or SIMULATIONS:
        with console.status(f"measuring {name}"):
            found[name], reasons = measured(SIMULATIONS[name], given.rounds)
    heads = ["program", "time of weft", *(f"{t} over weft" for t in TOOLS if t != "weft"), ""]
    where = f"{datetime.now(UTC):%Y-%m-%d}, {cores()} cores, weft's backend {given.backend}"
    if given.markdown:
        lines = [heads, ["---"] * len(heads), *table(found)]
        print(where, "", *(f"| {' | '.join(cells)} |" for cells in lines), sep="\n")
        return
    shown = Table(*heads)
    for cells in table(found):
        shown.add_row(*cells)
    console.print(where, shown)
    for tool, why in reasons.items():
        console.print(f"without {tool}: {why}")


if __name__ == "__main__":
    main()
