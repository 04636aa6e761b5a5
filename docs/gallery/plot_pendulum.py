r"""
A pendulum measured by its swing
================================

A film of a pendulum shows an angle in each frame, with noise. How long is it, and how strong is the
damping? Its equation of motion,

.. math:: \ddot\vartheta = -\frac{g}{\ell} \sin\vartheta - c \, \dot\vartheta ,

is integrated by :func:`weft.scan`, and :func:`weft.value_and_grad` differentiates the whole
trajectory. So an optimizer of SciPy finds both numbers, and how the pendulum was let go.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import weft

FRAMES, SUBSTEPS, RATE, GRAVITY, NOISE = 120, 4, 25.0, 9.81, 0.05
DT = 1 / RATE / SUBSTEPS
NAMES = ("length", "damping", "angle", "speed")
TRUTH = np.array([0.7, 0.25, 2.4, -1.0])
GUESS = np.array([1.0, 0.1, 2.0, 0.0])

# %%
# The body of the scan takes a state to the next one, and leaves an angle behind. Its second
# argument is a row of what the scan runs over, which is nothing here. From frame to frame there are
# some steps of the leapfrog method. The body reads `length` and `damping` from around it.


def trajectory(params):
    """Return the angle in each frame."""
    length, damping, angle, speed = params

    def acceleration(angle, speed):
        return -GRAVITY / length * weft.sin(angle) - damping * speed

    def frame(state, _):
        angle, speed = state
        for _ in range(SUBSTEPS):
            halfway = speed + 0.5 * DT * acceleration(angle, speed)
            angle = angle + DT * halfway
            speed = halfway + 0.5 * DT * acceleration(angle, halfway)
        return (angle, speed), state[0]

    return weft.scan(frame, (angle, speed), length=FRAMES)[1]


swing = weft.jit(trajectory)
film = swing(TRUTH) + NOISE * np.random.default_rng(0).normal(size=FRAMES)

# %%
# The gradient of the loss runs the scan forward, and another one backward. Here it agrees with
# central differences.


def loss(params, weights):
    """Return the weighted mean square of the residuals."""
    return weft.sum(weights * (trajectory(params) - film) ** 2) / weft.sum(weights)


slope = weft.jit(weft.value_and_grad(loss))
every = np.ones(FRAMES)
for number, step in enumerate(1e-6 * np.eye(4)):
    (above, _), (below, _) = slope(GUESS + step, every), slope(GUESS - step, every)
    np.testing.assert_allclose(slope(GUESS, every)[1][number], (above - below) / 2e-6, rtol=1e-5)

# %%
# Far from the film the loss has many minima, as the curves are out of step. So the first second is
# fitted first. Other weights are another argument, and need no new trace.

params = GUESS
for last in (25, 50, FRAMES):
    weights = (np.arange(FRAMES) < last).astype("float64")
    found = minimize(slope, params, weights, jac=True, method="BFGS")
    params = found.x
    print(f"{last} frames: {found.nfev} evaluations, loss {found.fun:.5f}")

# %%
# The matrix of second derivatives says how well the film determines each number. Its inverse, times
# twice the variance of the noise over the number of frames, is the covariance of what was found.

hessian = weft.hessian(loss)(params, every)
deviations = np.sqrt(np.diag(np.linalg.inv(hessian)) * 2 * NOISE**2 / FRAMES)
for name, value, deviation in zip(NAMES, params, deviations, strict=True):
    print(f"{name} = {value:.3f} ± {deviation:.3f}")
assert (np.abs(params - TRUTH) < 3 * deviations).all()

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
times = np.arange(FRAMES) / RATE
left.plot(times, film, ".", color="0.6", ms=4, label="film")
left.plot(times, swing(GUESS), "C1:", label="guess")
left.plot(times, swing(params), "C0", label="fitted")
left.set(title="The angle of the pendulum", xlabel="seconds", ylabel="radians")
left.legend(fontsize=8)
right.errorbar(params / TRUTH, NAMES, xerr=2 * deviations / np.abs(TRUTH), fmt="o")
right.axvline(1, color="0.6", ls=":")
right.set(title="Two standard deviations around what was found", xlabel="over the true value")
right.invert_yaxis()
plt.show()
