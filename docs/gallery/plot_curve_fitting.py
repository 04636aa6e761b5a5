r"""
Four optimizers fit a curve
===========================

A damped oscillation is fitted to noisy samples of one. An optimizer of weft is a function that
takes a loss and returns an op: the update of all variables that the loss depends on. So one model
and one training loop serve all of them.
"""

import matplotlib.pyplot as plt
import numpy as np

import weft

TRUTH = {"amplitude": 2.0, "decay": 0.5, "frequency": 4.0, "phase": 0.4}
START = {"amplitude": 1.0, "decay": 0.1, "frequency": 3.6, "phase": 0.0}

random = np.random.default_rng(0)
times = np.linspace(0, 5, 120).astype(np.float32)


def oscillation(t, amplitude, decay, frequency, phase, math=np):
    """Return the oscillation at the times t; `math` is NumPy or weft."""
    return amplitude * math.exp(-decay * t) * math.cos(frequency * t + phase)


samples = (oscillation(times, **TRUTH) + random.normal(scale=0.1, size=120)).astype(np.float32)

# %%
# Each optimizer gets variables of its own. What it keeps between steps, such as the moments of
# Adam, are states beside them.

t = weft.placeholder((120,), name="t")
observed = weft.placeholder((120,), name="observed")


def model(optimizer):
    """Return the loss, the update and the curve of a new set of variables."""
    variables = {name: weft.variable((), initial_value=START[name], name=name) for name in START}
    curve = oscillation(t, **variables, math=weft)
    loss = weft.mse_loss(curve, observed)
    return loss, optimizer(loss), curve, variables


OPTIMIZERS = {
    "gradient descent": lambda loss: weft.sgd(loss, learning_rate=0.02),
    "momentum": lambda loss: weft.sgd(loss, learning_rate=0.02, momentum=0.9),
    "RMSProp": lambda loss: weft.rmsprop(loss, learning_rate=0.01),
    "Adam": lambda loss: weft.adam(loss, learning_rate=0.05),
}

transformer = weft.make_transformer("numpy")
losses, curves, found = {}, {}, {}
for name, optimizer in OPTIMIZERS.items():
    loss, update, curve, variables = model(optimizer)
    step = transformer.computation([loss, update], t, observed)
    losses[name] = [float(step(times, samples)[0]) for _ in range(300)]
    curves[name] = transformer.computation(curve, t)(times)
    found[name] = {key: float(value) for key, value in transformer.computation(variables)().items()}

# %%
# The least loss that can be expected is the variance of the noise, 0.01. Momentum and Adam reach
# it, and their parameters are those that the samples were made with.

for name in ("momentum", "Adam"):
    assert losses[name][-1] < 0.012
    for key, value in TRUTH.items():
        assert abs(found[name][key] - value) < 0.15, (name, key)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
left.plot(times, samples, ".", color="0.6", ms=4, label="samples")
for name, width in zip(OPTIMIZERS, (2, 6, 4, 1.5), strict=True):
    left.plot(times, curves[name], lw=width, label=name)
    right.semilogy(losses[name], label=name)
left.set(title="The curves after 300 steps", xlabel="time")
left.legend(fontsize=8)
right.axhline(0.01, color="0.6", ls=":", label="variance of the noise")
right.set(title="Mean squared error", xlabel="step")
right.legend(fontsize=8)
plt.show()
