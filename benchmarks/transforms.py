"""Fourier transforms: weft beside SciPy's pocketfft on all cores, and PyTorch.

Results are compared with NumPy's, in float64, before anything is timed. A tool that is not
installed is left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from environment import cores, require_untuned
from measure import NOISE, Samples, interleaved, number
from rich.console import Console
from rich.table import Table

import weft

Array = np.ndarray[Any, Any]
Tool = Callable[["Transform", Array], Callable[[], Any]]


class Transform(NamedTuple):
    """A transform.

    Attributes
    ----------
    function
        Its name in a namespace such as `numpy.fft`.
    shape
        The axes of the real numbers, or of the complex ones.
    dtype
        The dtype of the real numbers, or of the parts of the complex ones.
    axis
        The axis; not for a transform of two.
    """

    function: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    axis: int = -1

    def __str__(self) -> str:
        axis = f" along axis {self.axis}" if self.axis != -1 else ""
        dtype = f", {self.dtype}" if self.dtype != "float32" else ""
        return f"{self.function}, {' x '.join(map(str, self.shape))}{axis}{dtype}"

    @property
    def operand(self) -> Array:
        """What is transformed."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=self.shape)
        if self.function == "irfft":
            x = np.fft.rfft(x)
        elif self.function != "rfft":
            x = x + 1j * rng.normal(size=self.shape)
        wanted = np.dtype(self.dtype)
        return x.astype(np.result_type(wanted, "c8") if x.dtype.kind == "c" else wanted)

    def options(self, axis: str = "axis") -> dict[str, int]:
        """Return the keywords of a function whose axis has a name."""
        length = {"n": self.shape[-1]} if self.function == "irfft" else {}
        return {} if self.function == "fft2" else {axis: self.axis, **length}


LENGTHS = [
    Transform(function, (1 << bits,))
    for function in ("fft", "rfft", "irfft")
    for bits in (8, 10, 12, 14, 16, 18, 20)
]
BATCHES = [
    Transform(function, shape)
    for function in ("fft", "rfft", "irfft")
    for shape in ((1024, 256), (256, 1000), (1024, 1024), (16, 1 << 16), (1024, 360), (64, 1009))
]
TRANSFORMS = [
    *LENGTHS,
    *BATCHES,
    Transform("fft", (1009,)),
    Transform("fft2", (512, 512)),
    Transform("fft", (1024, 256), axis=0),
    Transform("fft", (1024, 256), "float64"),
    Transform("fft", (1 << 20,), "float64"),
]


def by_weft(each: Transform, x: Array, backend: str) -> Callable[[], Any]:
    """Return the call of weft."""
    transform = getattr(weft.fft, each.function)
    call = weft.jit(lambda x: transform(x, **each.options()), backend=backend)
    call(x)
    return lambda: call(x)


def by_scipy(each: Transform, x: Array) -> Callable[[], Any]:
    """Return the call of SciPy with as many workers as there are cores."""
    import scipy.fft

    transform = getattr(scipy.fft, each.function)
    return lambda: transform(x, workers=cores(), **each.options())


def by_torch(each: Transform, x: Array) -> Callable[[], Any]:
    """Return the call of PyTorch."""
    import torch

    transform, tensor = getattr(torch.fft, each.function), torch.from_numpy(x)
    return lambda: transform(tensor, **each.options("dim"))


RIVALS: dict[str, Tool] = {"scipy": by_scipy, "torch": by_torch}


def error(each: Transform, found: Any, x: Array) -> float:
    """Return the distance from what NumPy computes in float64, over the norm of that."""
    wanted = getattr(np.fft, each.function)(x.astype(np.result_type(x, "f8")), **each.options())
    return float(np.linalg.norm(np.asarray(found) - wanted) / np.linalg.norm(wanted))


def measured(each: Transform, backend: str, rounds: int) -> tuple[Samples, float, dict[str, str]]:
    """Return the samples of the tools, weft's error, and what tools are missing, and why."""
    x, missing = each.operand, {}
    calls = {"weft": by_weft(each, x, backend)}
    for name, tool in RIVALS.items():
        try:
            calls[name] = tool(each, x)
        except ImportError as why:
            missing[name] = str(why)
    off = {name: error(each, call(), x) for name, call in calls.items()}
    most = 4 * np.finfo(each.dtype).eps * (1 + np.log2(np.prod(each.shape)))
    for name, value in off.items():
        if value > most:
            raise ValueError(f"the error of {name} in {each} is {value:.1e}, above {most:.1e}")
    return interleaved(calls, rounds), off["weft"], missing


def cells(each: Transform, samples: Samples, off: float) -> list[str]:
    """Return a row of the table."""
    rivals = [
        f"{samples.ratio(name, 'weft'):.2f}" if name in samples.seconds else "" for name in RIVALS
    ]
    noise = "not quiet" if max(map(samples.spread, samples.seconds)) > NOISE else ""
    return [str(each), f"{number(samples.median('weft') * 1e6)} us", *rivals, f"{off:.1e}", noise]


def means(found: Mapping[str, Samples]) -> list[str]:
    """Return the row of geometric means."""
    of_rivals = []
    for name in RIVALS:
        ratios = [each.ratio(name, "weft") for each in found.values() if name in each.seconds]
        of_rivals.append(f"{statistics.geometric_mean(ratios):.2f}" if ratios else "")
    return ["geometric mean", "", *of_rivals, "", ""]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="measure transforms whose names contain this")
    parser.add_argument("--rounds", type=int, default=21, help="how often tools take turns")
    parser.add_argument("--backend", default="native", help="the backend of weft to measure")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    given = parser.parse_args()
    require_untuned()
    console = Console(width=None if sys.stdout.isatty() else 150)
    found, rows, missing = {}, [], {}
    for each in TRANSFORMS:
        if (given.only or "") in str(each):
            with console.status(f"measuring {each}"):
                samples, off, missing = measured(each, given.backend, given.rounds)
            found[str(each)] = samples
            rows.append(cells(each, samples, off))
    rows.append(means(found))
    heads = ["transform", "time of weft", *(f"{name} over weft" for name in RIVALS), "error", ""]
    where = f"{datetime.now(UTC):%Y-%m-%d}, {cores()} cores, weft's backend {given.backend}"
    if given.markdown:
        lines = [heads, ["---"] * len(heads), *rows]
        print(where, "", *(f"| {' | '.join(row)} |" for row in lines), sep="\n")
        return
    shown = Table(*heads)
    for row in rows:
        shown.add_row(*row)
    console.print(where, shown)
    for tool, why in missing.items():
        console.print(f"without {tool}: {why}")


if __name__ == "__main__":
    main()
