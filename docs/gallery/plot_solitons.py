r"""
Solitons by transforms and by a stencil
=======================================

Waves in a shallow channel follow the equation of Korteweg and de Vries,

.. math:: \partial_t u = -6 u \, \partial_x u - \partial_x^3 u .

Its solitons keep their form, and overtake each other unchanged. Derivatives are computed in two
ways: by a stencil of neighbors, whose error falls with the square of the distance of points, and by
the Fourier transform, whose error falls faster than any power of it.
"""

import matplotlib.pyplot as plt
import numpy as np

import weft

LENGTH, TIME, FRAMES = 40.0, 4.0, 80
WAVES, OFFSETS = np.array([2.0, 1.2]), np.array([-12.0, -6.0])

# %%
# Two solitons have an exact solution (Hirota, 1971): twice the second derivative of the logarithm
# of a sum of exponentials. :func:`weft.grad` derives it.


def log_tau(x, t):
    """Return the logarithm of Hirota's function of two solitons."""
    first, second = (k * (x - place) - k**3 * t for k, place in zip(WAVES, OFFSETS, strict=True))
    shift = ((WAVES[0] - WAVES[1]) / (WAVES[0] + WAVES[1])) ** 2
    return weft.log(1 + weft.exp(first) + weft.exp(second) + shift * weft.exp(first + second))


@weft.jit
def exact(x, t):
    """Return the solution at points x and a time t."""
    return 2 * weft.vmap(weft.grad(weft.grad(log_tau)), in_axes=(0, None))(x, t)


# %%
# One function has the equation, and takes the derivatives from another. The classic method of Runge
# and Kutta takes a step, and :func:`weft.scan` many of them in a call.


def by_stencil(u):
    """Return the first and third derivatives by central differences."""
    h = LENGTH / len(u)
    far, near, after, beyond = (weft.roll(u, shift) for shift in (2, 1, -1, -2))
    return (after - near) / (2 * h), (beyond - 2 * after + 2 * near - far) / (2 * h**3)


def by_transforms(u):
    """Return the first and third derivatives by the Fourier transform."""
    waves = 2j * np.pi * np.fft.rfftfreq(len(u), LENGTH / len(u))
    spectrum = weft.fft.rfft(u)
    return [weft.fft.irfft(waves**order * spectrum, len(u)) for order in (1, 3)]


def simulated(u, derivatives, steps):
    """Return the solution after each frame, of so many steps."""
    dt = TIME / FRAMES / steps

    def rate(u):
        first, third = derivatives(u)
        return -6 * u * first - third

    def step(u, _):
        k1 = rate(u)
        k2 = rate(u + dt / 2 * k1)
        k3 = rate(u + dt / 2 * k2)
        k4 = rate(u + dt * k3)
        return u + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    def frame(u, _):
        u, _ = weft.scan(step, u, length=steps)
        return u, u

    return weft.scan(frame, u, length=FRAMES)[1]


# %%
# The step of time is limited by the shortest waves, whose speed is the third power of 1 over the
# distance of points. A stencil gives them less than that speed, and so permits longer steps.

simulate = weft.jit(simulated, static_argnames=("derivatives", "steps"))
STEPS = {by_stencil: 0.9, by_transforms: 0.08}
SIZES = {by_stencil: (128, 256, 512, 1024), by_transforms: (64, 96, 128, 192)}
errors = {}
for derivatives, sizes in SIZES.items():
    for size in sizes:
        x = np.linspace(-LENGTH / 2, LENGTH / 2, size, endpoint=False)
        steps = int(TIME / FRAMES / (STEPS[derivatives] * (LENGTH / size) ** 3)) + 1
        film = simulate(exact(x, 0.0), derivatives, steps)
        errors[derivatives, size] = abs(film[-1] - exact(x, TIME)).max()
        print(f"{derivatives.__name__}, {size} points: error {errors[derivatives, size]:.1e}")

# %%
# Twice the points divide the error of the stencil by four. Transforms of 96 points are better than
# a stencil of 1024.

assert 3.5 < errors[by_stencil, 512] / errors[by_stencil, 1024] < 4.5
assert errors[by_transforms, 96] < errors[by_stencil, 1024]
assert errors[by_transforms, 192] < 1e-6

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
times = TIME / FRAMES * np.arange(1, FRAMES + 1)
picture = left.pcolormesh(x, times, film, cmap="magma", shading="gouraud")
left.set(title="One wave overtakes another", xlabel="$x$", ylabel="$t$")
figure.colorbar(picture, ax=left, label="$u$")
for derivatives, sizes in SIZES.items():
    found = [errors[derivatives, size] for size in sizes]
    right.loglog(sizes, found, "o-", label=derivatives.__name__.replace("_", " "))
right.set(title="The error at the end", xlabel="points", ylabel="largest difference")
right.legend()
plt.show()
