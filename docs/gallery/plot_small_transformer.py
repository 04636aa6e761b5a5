r"""
A transformer that learns to sort
=================================

Parameters are a tree, layers are functions of it, and a training step is a compiled function that
writes new parameters over old ones.
"""

import matplotlib.pyplot as plt
import numpy as np

import weft
from weft import nn

# %%
# A model is a tree of layers as well. Each layer makes its parameters from a source of random
# numbers and the shape of its input, and is called with them. The parameters of the model are a
# dict of those of its layers, with one more array for the places of the digits.

DIGITS, LENGTH, WIDTH = 10, 8, 48
embed = nn.Embedding(DIGITS, WIDTH)
body = nn.Sequential(
    nn.TransformerBlock(heads=4, hidden=96),
    nn.TransformerBlock(heads=4, hidden=96),
    nn.LayerNorm(),
    nn.Dense(DIGITS),
)


def init(rng):
    """Return the first parameters."""
    return {
        "embed": embed.init(rng, (1, LENGTH)),
        "places": 0.1 * rng.normal(size=(LENGTH, WIDTH)).astype("float32"),
        "body": body.init(rng, (1, LENGTH, WIDTH)),
    }


def logits(params, digits):
    """Return scores of the ten digits for each place of the sorted row."""
    return body(params["body"], embed(params["embed"], digits) + params["places"])


def loss(params, digits):
    """Return the cross entropy of the sorted digits."""
    wanted = weft.sort(digits, axis=-1)
    return weft.mean(weft.cross_entropy(logits(params, digits), wanted, axis=-1))


# %%
# ``weft.optim.adam`` is a pair of functions: one makes a state, the other takes gradients, state
# and parameters to new parameters and a new state. The parameters and the state are donated, so a
# step computes in their memory.

STEPS = 300
optimizer = weft.optim.adamw(
    lambda step: weft.warm_up(step, weft.cosine_decay(step, 3e-3, STEPS), 50)
)


@weft.jit(donate_argnums=("params", "state"))
def step(params, state, digits):
    """Return the loss, and parameters and state after a step."""
    value, gradients = weft.value_and_grad(loss)(params, digits)
    gradients = weft.optim.clip_by_global_norm(gradients, 1.0)
    return value, *optimizer.update(gradients, state, params)


rng = np.random.default_rng(0)
params = init(rng)
state = optimizer.init(params)
losses = []
for _ in range(STEPS):
    digits = rng.integers(0, DIGITS, (64, LENGTH), dtype="int32")
    value, params, state = step(params, state, digits)
    losses.append(value.item())
print(f"loss {losses[0]:.2f} at first, {losses[-1]:.3f} after {STEPS} steps")

# %%
# It sorts rows that it has not seen.

digits = rng.integers(0, DIGITS, (1000, LENGTH), dtype="int32")
found = weft.jit(lambda params, digits: weft.argmax(logits(params, digits), -1))(params, digits)
right = (found == np.sort(digits)).all(axis=-1)
print(f"{right.mean():.1%} of rows sorted; {digits[0]} becomes {found[0]}")
assert right.mean() > 0.9

figure, axes = plt.subplots(figsize=(6, 3))
axes.semilogy(losses)
axes.set(xlabel="step", ylabel="cross entropy")
figure.tight_layout()
plt.show()
