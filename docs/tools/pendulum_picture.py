"""Draws the picture of a fitted pendulum on the home page, by the program of the gallery."""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot

DOCS = Path(__file__).parents[1]


def draw(path: Path = DOCS / "images" / "pendulum.svg") -> None:
    """Write the picture."""
    with mpl.rc_context({"svg.hashsalt": "weft", "svg.fonttype": "none"}):
        runpy.run_path(str(DOCS / "gallery" / "plot_pendulum.py"))
        pyplot.gcf().savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw()
