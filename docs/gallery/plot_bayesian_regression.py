r"""
Bayesian linear regression by QR and Cholesky
=============================================

A curve is a polynomial with unknown weights, seen through noise: :math:`y = \Phi w + \varepsilon`.
The noise has the variance :math:`1 / \beta`. Before there are data the weights are normal with the
variance :math:`1 / \alpha`, and then they are normal again (Bishop: Pattern recognition and machine
learning, 2006, section 3.3):

.. math::

    w \mid y \sim \mathcal N(\beta A^{-1} \Phi^\top y,\; A^{-1}),
    \qquad A = \alpha I + \beta \Phi^\top \Phi .

All that is wanted follows from a triangle R with :math:`A = R^\top R`. Two factorizations give it.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats
from scipy.optimize import minimize

import weft

TERMS, POINTS, NOISE = 12, 45, 0.15
where, noise, chance = weft.random.split(weft.random.key(6), 3)


def curve(x):
    """Return the curve that is to be found."""
    return np.sin(6 * x) + x


def powers(x):
    """Return the matrix of the powers of x from 0 on."""
    return np.vander(x, TERMS, increasing=True)


# %%
# The observations leave a gap in the middle. Samples follow from their keys.

draw = weft.jit(lambda key, kind: kind(key, (POINTS,), "float64"), static_argnames="kind")
x = 2 * draw(where, weft.random.uniform) - 1
x = np.where(np.abs(x) < 0.3, x + 0.6 * np.sign(x), x)
phi, y = powers(x), curve(x) + NOISE * draw(noise, weft.random.normal)

# %%
# Cholesky factorizes *A*. QR does not need *A*: the rows of the data and of the prior, on top of
# each other, are a matrix of which it is the square.


def by_cholesky(phi, y, alpha, beta):
    """Return the mean of the weights and the triangle R."""
    r = weft.linalg.cholesky(alpha * np.eye(TERMS) + beta * phi.T @ phi, upper=True)
    return weft.cholesky_solve(r, beta * phi.T @ y, lower=False), r


def by_qr(phi, y, alpha, beta):
    """Return the same, where the diagonal of R may be negative."""
    rows = weft.concat([weft.sqrt(beta) * phi, weft.sqrt(alpha) * np.eye(TERMS)], 0)
    q, r = weft.linalg.qr(rows)
    return weft.linalg.solve_triangular(r, q[:POINTS].T @ (weft.sqrt(beta) * y)), r


# %%
# How much noise is there, and how large are the weights? Under the best :math:`\alpha` and
# :math:`\beta` the data are least surprising. Their joint distribution is normal, so SciPy can say
# how surprising they are. Its matrix has a row for each observation, but R has one for each weight.


def surprise(logarithms, posterior):
    """Return the negative logarithm of the probability density of the data."""
    alpha, beta = weft.exp(logarithms[0]), weft.exp(logarithms[1])
    mean, r = posterior(phi, y, alpha, beta)
    misfit = beta * weft.sum((y - phi @ mean) ** 2) + alpha * weft.sum(mean**2)
    width = 2 * weft.sum(weft.log(weft.abs(weft.diagonal(r))))
    return 0.5 * (
        misfit + width - TERMS * logarithms[0] - POINTS * (logarithms[1] - np.log(2 * np.pi))
    )


evidence = weft.jit(weft.value_and_grad(surprise), static_argnames="posterior")
fits = [minimize(evidence, np.zeros(2), each, jac=True) for each in (by_cholesky, by_qr)]
np.testing.assert_allclose(fits[0].x, fits[1].x, atol=1e-4)
alpha, beta = np.exp(fits[1].x)
joint = stats.multivariate_normal(cov=np.eye(POINTS) / beta + phi @ phi.T / alpha)
np.testing.assert_allclose(fits[1].fun, -joint.logpdf(y), rtol=1e-9)
assert abs(beta**-0.5 - NOISE) < 0.05
print(f"deviation of the noise {beta**-0.5:.3f}, of the weights {alpha**-0.5:.2f}")

# %%
# A prediction is normal too. Its variance is that of the noise and
# :math:`\lvert R^{-\top} \varphi \rvert^2`, for the powers :math:`\varphi` of a point. And
# :math:`R^{-1} z` is a sample of the weights around their mean, for normal numbers z.


@weft.jit
def predict(points, key):
    """Return means, deviations and six samples of the curve."""
    mean, r = by_qr(phi, y, alpha, beta)
    variance = weft.sum(weft.linalg.solve_triangular(r, points.T, trans=1) ** 2, 0)
    spread = weft.linalg.solve_triangular(r, weft.random.normal(key, (TERMS, 6), "float64"))
    return (
        points @ mean,
        weft.sqrt(variance + 1 / beta),
        points @ (weft.unsqueeze(mean, 1) + spread),
    )


grid = np.linspace(-1, 1, 200)
mean, deviation, samples = predict(powers(grid), chance)
assert np.mean(np.abs(curve(grid) - mean) < 2 * deviation) > 0.95
assert deviation[100] > 1.2 * deviation[30]

# %%
# The two differ in what rounding does to them. The error of QR grows with the condition of the
# rows, that of Cholesky with its square, until *A* is no longer positive definite and the factor is
# NaN. So in float32 a weak prior is for QR.

weakness = np.logspace(1, -5, 13)
errors = {"Cholesky": [], "QR": []}
for name, posterior in zip(errors, (by_cholesky, by_qr), strict=True):
    mean_of = weft.jit(lambda *args, posterior=posterior: phi @ posterior(*args)[0])
    for each in weakness:
        wanted = mean_of(phi, y, each, beta)
        found = mean_of(*(np.float32(value) for value in (phi, y, each, beta)))
        errors[name].append(np.abs(found - wanted).max())
assert errors["Cholesky"][9] > 300 * errors["QR"][9]
assert np.isfinite(errors["QR"]).all()

figure, (left, right) = plt.subplots(
    1, 2, figsize=(12, 4), width_ratios=(3, 2), layout="constrained"
)
left.fill_between(
    grid, mean - 2 * deviation, mean + 2 * deviation, alpha=0.2, label="±2 deviations"
)
left.plot(grid, samples, "C0", lw=0.5)
left.plot(grid, mean, "C0", lw=2, label="mean")
left.plot(grid, curve(grid), "k:", label="curve")
left.plot(x, y, "k.", label="observations")
left.set(title="Predictions, and six samples of the curve", xlabel="x", ylim=(-2.2, 2.2))
left.legend(fontsize=8)
for name, values in errors.items():
    right.loglog(weakness, values, "o-", label=name)
right.set(title="Error of the mean in float32", xlabel=r"$\alpha$, the strength of the prior")
right.invert_xaxis()
right.legend()
plt.show()
