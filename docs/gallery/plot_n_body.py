r"""
Bodies that attract: forces are a gradient
==========================================

The force on a body is the negative gradient of the potential energy. So it need not be written:
:func:`weft.deriv` gives it as a graph, which the step of the integrator contains like any other op.
The potential is softened,

.. math:: V = -\sum_{i < j} \frac{m_i m_j}{\sqrt{|x_i - x_j|^2 + \varepsilon^2}} .
"""

import matplotlib.pyplot as plt
import numpy as np

import weft

BODIES, STEPS, DT = 40, 10, 0.005

# %%
# A pair counts once: the strict lower triangle masks the matrix of distances.

position = weft.placeholder((BODIES, 2), weft.float64, name="position")
velocity = weft.placeholder((BODIES, 2), weft.float64, name="velocity")
mass = weft.placeholder((BODIES,), weft.float64, name="mass")

difference = weft.unsqueeze(position, 1) - weft.unsqueeze(position, 0)
distance = weft.sqrt(weft.sum(weft.square(difference), axis=-1) + 0.05**2)
pairs = weft.outer(mass, mass) * weft.tri(BODIES, k=-1, dtype=weft.float64)
potential = -weft.sum(pairs / distance)
kinetic = 0.5 * weft.sum(weft.unsqueeze(mass, 1) * weft.square(velocity))

force = weft.capture([-weft.deriv(potential, position)], [position, mass], "force")

# %%
# The leapfrog method takes half a kick, a drift and half a kick. It keeps the energy over any time,
# but for small oscillations. The graph of the force is called twice.


def kick(velocity, position):
    """Return the velocity after half a step in the forces at a position."""
    (forces,) = weft.call(force, position, mass)
    return velocity + 0.5 * DT * forces / weft.unsqueeze(mass, 1)


halfway = kick(velocity, position)
moved = position + DT * halfway
leapfrog = weft.capture([moved, kick(halfway, moved)], [position, velocity, mass], "leapfrog")

transformer = weft.make_transformer("numpy")
advance = transformer.computation(
    weft.loop(leapfrog, STEPS, position, velocity, mass), position, velocity, mass
)
energy = transformer.computation(potential + kinetic, position, velocity, mass)

# %%
# A heavy body in the middle of a disc of light ones, on nearly circular orbits.

random = np.random.default_rng(1)
radius = random.uniform(0.4, 1.6, BODIES)
angle = random.uniform(0, 2 * np.pi, BODIES)
masses = np.full(BODIES, 0.002)
masses[0], radius[0] = 1.0, 0.0
where = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
speed = radius / (radius**2 + 0.05**2) ** 0.75
speeds = speed[:, None] * np.stack([-np.sin(angle), np.cos(angle)], 1)
speeds[0] = -(masses[1:, None] * speeds[1:]).sum(0)  # the sum of the momenta is zero

path, energies = [where], [float(energy(where, speeds, masses))]
for _ in range(300):
    where, speeds = advance(where, speeds, masses)
    path.append(where.copy())
    energies.append(float(energy(where, speeds, masses)))

# %%
# Neither energy nor momentum is lost.

drift = np.abs(np.array(energies) / energies[0] - 1)
assert drift.max() < 1e-3
assert np.abs((masses[:, None] * speeds).sum(0)).max() < 1e-12

figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.8), width_ratios=(5, 4), layout="constrained"
)
tracks = np.array(path)
for body in range(1, BODIES):
    left.plot(*tracks[-60:, body].T, lw=0.8, color=plt.cm.viridis(radius[body] / 1.6))
left.plot(*tracks[-1, 1:].T, "k.", ms=4)
left.plot(*tracks[-1, 0], "o", color="C1", ms=10)
left.set(title="The last 600 steps", aspect="equal", xlim=(-2, 2), ylim=(-2, 2))
time = np.arange(len(energies)) * STEPS * DT
right.semilogy(time[1:], drift[1:], color="C3")
right.set(title="Relative error of the energy", xlabel="time", ylim=(1e-8, 1e-3))
right.grid(alpha=0.3)
plt.show()
