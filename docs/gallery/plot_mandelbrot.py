r"""
The Mandelbrot set: a loop that ends by itself
==============================================

A point *c* of the plane is in the set if :math:`z \leftarrow z^2 + c`, from zero, stays bounded.
:func:`weft.while_loop` iterates a graph on its own outputs as long as another graph says so: here,
while a point is left that may still escape, and at most 400 times.
"""

import matplotlib.pyplot as plt
import numpy as np

import weft

WIDTH, HEIGHT, LIMIT = 360, 270, 400

# %%
# The body has complex numbers, a mask and a counter. A point that has left the circle of radius 4
# keeps its value, so nothing overflows.

c = weft.placeholder((HEIGHT, WIDTH), weft.complex64, name="c")
z = weft.placeholder((HEIGHT, WIDTH), weft.complex64, name="z")
count = weft.placeholder((HEIGHT, WIDTH), weft.int32, name="stay")
turn = weft.placeholder((), weft.int32, name="turn")


def is_inside(z):
    """Return where z is within the circle of radius 4."""
    return weft.square(weft.real(z)) + weft.square(weft.imag(z)) < 16


inside = is_inside(z)
body = weft.capture(
    [weft.where(inside, z * z + c, z), count + inside, turn + 1], [z, count, turn, c], "body"
)
goes_on = weft.capture(
    [weft.logical_and(turn < LIMIT, weft.any(inside))], [z, count, turn, c], "goes_on"
)

# %%
# The loop carries as many values as the body has outputs; ``c`` is an invariant. The results are
# the last point of every orbit, how long it stayed, and the number of rounds.

zeros = weft.zeros((HEIGHT, WIDTH), weft.complex64)
none = weft.zeros((HEIGHT, WIDTH), weft.int32)
start = weft.constant(0, dtype=weft.int32)
last, stayed, turns = weft.while_loop(goes_on, body, zeros, none, start, c)
escape = weft.make_transformer("numpy").computation([last, stayed, turns], c)


def plane(center, width):
    """Return the points of a rectangle of the complex plane."""
    across = np.linspace(-width / 2, width / 2, WIDTH, dtype=np.float64)
    down = np.linspace(width * 3 / 8, -width * 3 / 8, HEIGHT, dtype=np.float64)
    return (center + across + 1j * down[:, None]).astype(np.complex64)


views = {"the set": (-0.65, 3.0), "its valley of seahorses": (-0.7453 + 0.1127j, 0.012)}
outcomes = {name: escape(plane(*view)) for name, view in views.items()}

# %%
# Far outside, all points escape, and the loop ends long before its limit.

assert escape(plane(10, 1))[2] < 5
assert all(rounds == LIMIT for _, _, rounds in outcomes.values())
points, (_, stays, _) = plane(*views["the set"]), outcomes["the set"]
assert stays[abs(points + 1) < 0.2].min() == LIMIT, "the disc around -1 is in the set"
assert stays[abs(points) > 2].max() < LIMIT, "no point of the set is farther than 2 from 0"

# %%
# The count is smoothed by how far the last point got, so colors have no steps.

figure, panels = plt.subplots(1, 2, figsize=(11, 4.3), layout="constrained")
for panel, (name, (end, stays, _)) in zip(panels, outcomes.items(), strict=True):
    beyond = np.log2(np.maximum(np.log2(np.maximum(abs(end), 1.1)), 1e-3))
    smooth = np.where(stays == LIMIT, np.nan, np.log(np.maximum(stays + 1 - beyond, 1)))
    colors = plt.get_cmap("twilight_shifted").with_extremes(bad="black")
    panel.imshow(smooth, cmap=colors, interpolation="bilinear")
    panel.set_title(name)
    panel.set_axis_off()
plt.show()
