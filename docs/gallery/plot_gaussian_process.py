r"""
A Gaussian process, fitted by the gradient of its likelihood
============================================================

A Gaussian process is a prior over functions: values at any points are jointly normal, with a
covariance that a kernel gives. Its hyperparameters are those under which the data are most likely:
they minimize

.. math::

    -\log p(y) = \frac{1}{2} y^\top K^{-1} y + \frac{1}{2} \log \det K + \frac{n}{2} \log 2\pi .

The Cholesky factor of *K* gives both terms, and weft differentiates the factorization.
"""

import matplotlib.pyplot as plt
import numpy as np

import weft

# %%
# Noisy observations with a gap between 0.45 and 0.7.

random = np.random.default_rng(3)
points = np.sort(np.concatenate([random.uniform(0, 0.45, 22), random.uniform(0.7, 1, 12)]))
values = np.sin(9 * points) * (1 + points) + random.normal(scale=0.15, size=points.size)
grid = np.linspace(-0.1, 1.2, 300)

# %%
# The hyperparameters are positive, so their logarithms are trained. The number of points where the
# function is wanted is a symbol: a call decides on it.

x = weft.placeholder(points.shape, weft.float64, name="x")
y = weft.placeholder(points.shape, weft.float64, name="y")
where = weft.placeholder((weft.symbol("m"),), weft.float64, name="where")

START = {"length": 0.05, "amplitude": 0.5, "noise": 0.5}
logarithms = {
    name: weft.variable((), weft.float64, initial_value=np.log(value), name=name)
    for name, value in START.items()
}
length, amplitude, noise = (weft.exp(logarithm) for logarithm in logarithms.values())


def kernel(a, b):
    """Return the squared exponential covariances of the points in two vectors."""
    distance = weft.unsqueeze(a, 1) - weft.unsqueeze(b, 0)
    return weft.square(amplitude) * weft.exp(-0.5 * weft.square(distance / length))


# %%
# With the factor :math:`K = L L^\top`, the quadratic form is that of :math:`L^{-1} y`, and the
# logarithm of the determinant is twice the sum of those on the diagonal.

identity = weft.eye(points.size, dtype=weft.float64)
factor = weft.cholesky(kernel(x, x) + weft.square(noise) * identity)
white = weft.triangular_solve(factor, weft.unsqueeze(y, 1))
loss = (
    0.5 * weft.sum(weft.square(white))
    + weft.sum(weft.log(weft.diagonal(factor)))
    + 0.5 * points.size * np.log(2 * np.pi)
)

projected = weft.triangular_solve(factor, kernel(x, where))
mean = weft.sum(projected * white, axis=0)
variance = weft.square(amplitude) - weft.sum(weft.square(projected), axis=0)
deviation = weft.sqrt(variance)

# %%
# Three computations share the hyperparameters, which are states of the transformer. The first
# evaluation needs no training, so the prediction from the starting values is kept for the picture.

transformer = weft.make_transformer("numpy")
train = transformer.computation([loss, weft.adam(loss, learning_rate=0.05)], x, y)
predict = transformer.computation([mean, deviation], x, y, where)
hyperparameters = transformer.computation(
    {"length": length, "amplitude": amplitude, "noise": noise}
)

before = predict(points, values, grid)
losses = [float(train(points, values)[0]) for _ in range(200)]
after = predict(points, values, grid)
fitted = {name: float(value) for name, value in hyperparameters().items()}
print({name: round(value, 3) for name, value in fitted.items()})

# %%
# The loss has a minimum here: the gradient vanishes. The noise of the data is found.

slopes = [weft.deriv(loss, logarithm) for logarithm in logarithms.values()]
assert np.abs(transformer.computation(slopes, x, y)(points, values)).max() < 0.5
assert losses[-1] < losses[0] - 20
assert 0.1 < fitted["noise"] < 0.2

# %%
# Where there are no data the deviation grows, up to that of the prior.

figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), width_ratios=(5, 5, 3), layout="constrained")
fits = {"hyperparameters of the start": before, "after 200 steps of Adam": after}
for panel, (title, (middle, spread)) in zip(panels, fits.items(), strict=False):
    low, high = middle - 2 * spread, middle + 2 * spread
    panel.fill_between(grid, low, high, alpha=0.2, label="±2 deviations")
    panel.plot(grid, middle, label="mean")
    panel.plot(grid, np.sin(9 * grid) * (1 + grid), "k:", lw=1, label="truth")
    panel.plot(points, values, "k.", label="observations")
    panel.set(title=title, ylim=(-3.6, 3.6), xlim=(grid[0], grid[-1]), xlabel="x")
panels[0].legend(loc="upper left", fontsize=8)
panels[2].plot(losses, color="C3")
panels[2].set(title="negative log likelihood", xlabel="step")
plt.show()
