r"""
Reaction and diffusion: a thousand steps in one call
====================================================

In the model of Gray and Scott two substances diffuse and react on a plane:

.. math::

    \partial_t u = D_u \nabla^2 u - u v^2 + F (1 - u), \qquad
    \partial_t v = D_v \nabla^2 v + u v^2 - (F + k) v

One step of it is a graph. :func:`weft.loop` runs that graph a given number of times inside a single
call, so no time is lost between the steps.
"""

import matplotlib.pyplot as plt
import numpy as np

import weft

SIZE = 128
STEPS = 1000
FEED, KILL = 0.035, 0.060

# %%
# A step of Euler's method on a periodic grid. ``roll`` shifts the plane by one cell, which gives
# the neighbors of every cell at once. Fusion makes a few kernels of all this.


def laplacian(field):
    """Return the five-point Laplacian of a periodic field."""
    neighbors = [weft.roll(field, shift, axis) for axis in (0, 1) for shift in (-1, 1)]
    return neighbors[0] + neighbors[1] + neighbors[2] + neighbors[3] - 4 * field


u = weft.placeholder((SIZE, SIZE), name="u")
v = weft.placeholder((SIZE, SIZE), name="v")
reaction = u * weft.square(v)
step = weft.capture(
    [
        u + 0.16 * laplacian(u) - reaction + FEED * (1 - u),
        v + 0.08 * laplacian(v) + reaction - (FEED + KILL) * v,
    ],
    [u, v],
    "step",
)

# %%
# The outputs of an iteration are the inputs of the next one. The whole loop is one op of the graph,
# and its memory is planned once: two buffers for each field.

transformer = weft.make_transformer("numpy")
simulate = transformer.computation(weft.loop(step, STEPS, u, v), u, v)

# %%
# The plane is full of `u`, but for a few drops of `v` in random places.

random = np.random.default_rng(4)
fields = [np.ones((SIZE, SIZE), np.float32), np.zeros((SIZE, SIZE), np.float32)]
for row, column in random.integers(10, SIZE - 10, size=(12, 2)):
    drop = slice(row - 3, row + 3), slice(column - 3, column + 3)
    fields[0][drop], fields[1][drop] = 0.5, 0.25

snapshots = [fields[1]]
for _ in range(5):
    fields = simulate(*fields)
    snapshots.append(fields[1].copy())

# %%
# The same equations in NumPy, for a few steps, say that the compiled ones are right.

short = transformer.computation(weft.loop(step, 20, u, v), u, v)
a, b = start = [np.ones((SIZE, SIZE), np.float32), snapshots[0]]
for _ in range(20):
    around = [sum(np.roll(f, s, x) for x in (0, 1) for s in (-1, 1)) - 4 * f for f in (a, b)]
    a, b = (
        a + np.float32(0.16) * around[0] - a * b**2 + np.float32(FEED) * (1 - a),
        b + np.float32(0.08) * around[1] + a * b**2 - np.float32(FEED + KILL) * b,
    )
for expected, found in zip((a, b), short(*start), strict=True):
    np.testing.assert_allclose(found, expected, atol=1e-5)

# %%
# The drops grow, divide, and fill the plane with a pattern.

figure, panels = plt.subplots(2, 3, figsize=(9, 6.2), layout="constrained")
for panel, snapshot, number in zip(panels.flat, snapshots, range(6), strict=True):
    picture = panel.imshow(snapshot, cmap="magma", vmin=0, vmax=0.4, interpolation="bilinear")
    panel.set_title(f"after {number * STEPS:,} steps", fontsize=10)
    panel.set_axis_off()
figure.colorbar(picture, ax=panels, label="concentration of $v$", shrink=0.8)
plt.show()
