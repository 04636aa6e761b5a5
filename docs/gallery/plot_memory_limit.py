r"""
Less memory for more work: where every value lies
=================================================

Gradients read the values of the forward computation, so a deep network keeps them all until its
backward pass. With a limit on its memory weft drops some and computes them again. The plan of a
computation says where each value lies, and when, so both programs can be drawn.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

import weft
from weft.errors import MemoryLimitError

# %%
# A chain of 32 layers with residual connections, and the gradients of all its weights.

WIDTH, BATCH, LAYERS = 64, 256, 32

x = weft.placeholder((BATCH, WIDTH), name="x")
random = np.random.default_rng(0)
weights = [
    weft.variable((WIDTH, WIDTH), initial_value=random.normal(scale=0.1, size=(WIDTH, WIDTH)))
    for _ in range(LAYERS)
]
h = x
for weight in weights:
    h = h + weft.gelu(weft.layer_norm(h) @ weight)
loss = weft.mean(weft.square(h))
results = [loss, *(weft.deriv(loss, weight) for weight in weights)]


def compiled(limit):
    """Return the computation with at most so many bytes for the values between its steps."""
    return weft.make_transformer("numpy", memory_limit=limit).computation(results, x)


# %%
# A limit that cannot be met is an error, which says which one can. The other limits are between
# that and what the program takes if nobody limits it.

free = compiled(None)
most = free.plan.arena_size
try:
    compiled(1)(np.zeros((BATCH, WIDTH)))
except MemoryLimitError as error:
    least = error.smallest

limited = {limit: compiled(int(limit)) for limit in np.linspace(least, most, 8)}
sizes = [step.plan.arena_size / 1e6 for step in limited.values()]
steps = [len(step.plan.steps) for step in limited.values()]
print(f"{most / 1e6:.2f} MB and {steps[-1]} steps, or {sizes[0]:.2f} MB and {steps[0]} steps")

# %%
# What is computed again is computed by the same ops from the same values: every bit of the results
# is the same.

images = random.normal(size=(BATCH, WIDTH)).astype(np.float32)
tight = limited[least]
for one, other in zip(free(images), tight(images), strict=True):
    assert one.tobytes() == other.tobytes()
assert tight.plan.arena_size <= least < most / 2
assert len(free.plan.steps) < len(tight.plan.steps)

# %%
# In the pictures of the plans time goes to the right, addresses go up, and each box is a value from
# its first step to its last, the brighter the longer it lives. Without a limit the activations pile
# up until the backward pass takes them down, one after the other.


def draw(panel, plan):
    """Draw the values in the arena of a plan."""
    for buffer in plan.buffers:
        if buffer.kind == "arena":
            corner = buffer.first, buffer.offset / 1e6
            size = buffer.last - buffer.first + 1, buffer.nbytes / 1e6
            age = min(1.0, size[0] / 100)
            panel.add_patch(Rectangle(corner, *size, fc=plt.cm.viridis(age), ec="white", lw=0.2))
    panel.set(xlim=(0, len(plan.steps)), ylim=(0, most / 1e6), xlabel="step")


figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
draw(left, free.plan)
left.set(title="No limit", ylabel="address [MB]")
draw(middle, tight.plan)
middle.set(title=f"Limit of {least / 1e6:.2f} MB")
right.plot(sizes, steps, "o-")
right.set(title="What memory costs", xlabel="arena [MB]", ylabel="steps of a call")
right.set(xlim=(0, None), ylim=(0, None))
right.grid(alpha=0.3)
plt.show()
