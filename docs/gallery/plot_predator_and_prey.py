r"""
Parameters of a differential equation, by the gradient through its solver
=========================================================================

Hares multiply, lynxes eat them and starve without them:

.. math::

    \frac{dh}{dt} = \alpha h - \beta h l, \qquad \frac{dl}{dt} = \delta h l - \gamma l .

The solver is a loop over Runge-Kutta steps, and :func:`weft.deriv` differentiates the loop. So the
four parameters can be fitted to a few noisy counts.
"""

import matplotlib.pyplot as plt
import numpy as np

import weft

TRUTH = np.array([1.0, 0.5, 0.25, 0.8])
GUESS = np.array([0.6, 0.35, 0.4, 1.1])
COUNTS, SUBSTEPS, INTERVAL = 24, 10, 0.6
DT = INTERVAL / SUBSTEPS

# %%
# A step of the classic method of fourth order. The population is a vector of two numbers.

population = weft.placeholder((2,), weft.float64, name="population")
parameters = weft.placeholder((4,), weft.float64, name="parameters")


def rates(state):
    """Return the growth of both populations."""
    growth, predation, gain, starvation = (parameters[k] for k in range(4))
    hares, lynxes = state[0], state[1]
    meetings = hares * lynxes
    return weft.stack(
        [growth * hares - predation * meetings, gain * meetings - starvation * lynxes]
    )


first = rates(population)
second = rates(population + 0.5 * DT * first)
third = rates(population + 0.5 * DT * second)
fourth = rates(population + DT * third)
moved = population + DT / 6 * (first + 2 * second + 2 * third + fourth)
runge_kutta = weft.capture([moved], [population, parameters], "runge_kutta")

# %%
# The orbit: from one count to the next is a loop of ten steps, and a row of the result.

rows = [weft.constant(np.array([6.0, 2.0]))]
for _ in range(COUNTS):
    rows += weft.loop(runge_kutta, SUBSTEPS, rows[-1], parameters)
orbit = weft.stack(rows[1:])

transformer = weft.make_transformer("numpy")
solve = transformer.computation(orbit, parameters)
random = np.random.default_rng(2)
counts = solve(TRUTH) * random.lognormal(sigma=0.06, size=(COUNTS, 2))

# %%
# The noise is a factor, so logarithms are compared. The gradient through 240 steps agrees with
# central differences.

observed = weft.placeholder((COUNTS, 2), weft.float64, name="observed")
loss = weft.mean(weft.square(weft.log(orbit) - weft.log(observed)))
slope = transformer.computation(weft.deriv(loss, parameters), parameters, observed)
value = transformer.computation(loss, parameters, observed)

for direction in np.eye(4) * 1e-5:
    change = value(GUESS + direction, counts) - value(GUESS - direction, counts)
    np.testing.assert_allclose(slope(GUESS, counts) @ direction, change / 2, rtol=1e-4)

# %%
# To train, the parameters are states: the graph is built again on the exponentials of four
# variables, which stay positive. :func:`weft.call` puts one graph into another.

graph = weft.capture([loss, orbit], [parameters, observed], "loss")
logarithms = weft.variable((4,), weft.float64, initial_value=np.log(GUESS), name="logarithms")
trained, _ = weft.call(graph, weft.exp(logarithms), observed)
step = transformer.computation([trained, weft.adam(trained, learning_rate=0.05)], observed)

losses = [float(step(counts)[0]) for _ in range(250)]
fitted = np.exp(transformer.get_value(logarithms))
print("fitted", fitted.round(3), "truth", TRUTH)
np.testing.assert_allclose(fitted, TRUTH, rtol=0.05)

times = INTERVAL * np.arange(1, COUNTS + 1)
figure, panels = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
for panel, (title, values) in zip(
    panels, {"the guess": GUESS, "after 250 steps": fitted}.items(), strict=False
):
    for column, (animal, color) in enumerate([("hares", "C2"), ("lynxes", "C1")]):
        panel.plot(times, solve(values)[:, column], color, label=animal)
        panel.plot(times, counts[:, column], "o", color=color, ms=4)
    panel.set(title=title, xlabel="time", ylim=(0, 12))
panels[0].legend()
panels[2].semilogy(losses, color="C3")
panels[2].axhline(0.06**2, color="0.6", ls=":", label="variance of the noise")
panels[2].set(title="mean squared error of logarithms", xlabel="step")
panels[2].legend()
plt.show()
