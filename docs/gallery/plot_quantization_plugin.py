r"""
A plugin in a page: weights of a few bits
=========================================

How many bits does a weight need? A plugin finds out without a change to the model: its pass rounds
the constant matrix of every product to a given number of bits. In a package it would be an entry
point of the group ``weft.hooks``; here it is registered by hand.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import weft
from weft import plugins
from weft.plugins import hookimpl

# %%
# A pass takes a graph and returns an equivalent one, or here one that is nearly so. ``rewrite``
# calls a function for each op, operands first. ``with_args`` is the same op with other operands,
# and has the line of the user's program that it had.


def quantized(matrix, bits):
    """Return the nearest of ``2 ** bits - 1`` evenly spaced numbers around zero."""
    largest = 2 ** (bits - 1) - 1
    unit = np.abs(matrix).max() / largest
    return np.round(matrix / unit) * unit


class Quantize(weft.GraphPass):
    """Rounds the constant second operands of matrix products to a few bits."""

    def __init__(self, bits):
        self.bits = bits

    def do_pass(self, graph, target):
        """Return the graph with other constants."""
        return graph.rewrite(self.rounded)

    def rounded(self, op):
        """Return a product of a rounded matrix in the place of one of a constant."""
        if not isinstance(op, weft.ops.MatmulOp) or not op.args[1].is_constant:
            return op
        x, matrix = op.args
        return op.with_args((x, weft.constant(quantized(matrix.const, self.bits))))


# %%
# The hook of the plugin puts the pass in front of those that run by default. It is asked at every
# compilation.


class FewBits:
    """A plugin: every graph that is compiled has weights of a few bits."""

    def __init__(self, bits):
        self.bits = bits

    @hookimpl
    def weft_change_pipeline(self, pipeline):
        """Return the passes that run, in order."""
        return [Quantize(self.bits), *pipeline]


# %%
# The model knows nothing of that: a perceptron, trained for a moment on handwritten digits.

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.data))
pixels = (digits.data[order] / 16).astype(np.float32)
labels = digits.target[order].astype(np.int32)
known, unseen = slice(0, 1400), slice(1400, None)

n = weft.symbol("n")
images = weft.placeholder((n, 64), name="images")
targets = weft.placeholder((n,), weft.int32, name="targets")


def perceptron(first, second):
    """Return the logits of the images."""
    return weft.relu(images @ first) @ second


weights = [
    weft.variable(shape, initial_value=weft.he_normal(shape, stream=layer), name=f"weight{layer}")
    for layer, shape in enumerate([(64, 32), (32, 10)])
]
loss = weft.cross_entropy(perceptron(*weights), targets)
transformer = weft.make_transformer("numpy")
step = transformer.computation([loss, weft.adam(loss, learning_rate=0.01)], images, targets)
for _ in range(200):
    step(pixels[known], labels[known])

# %%
# For use, the weights are constants. Each computation is compiled at its first call, with the
# passes of that moment.

trained = [transformer.get_value(weight) for weight in weights]
predicted = weft.argmax(perceptron(*map(weft.constant, trained)), -1)


def accuracy():
    """Return the share of unseen digits that a newly compiled computation reads rightly."""
    read = weft.make_transformer("numpy").computation(predicted, images)
    return float(np.mean(read(pixels[unseen]) == labels[unseen]))


exact = accuracy()
by_bits = {}
for bits in range(2, 9):
    plugin = FewBits(bits)
    plugins.register(plugin)
    by_bits[bits] = accuracy()
    plugins.unregister(plugin)
print(f"float32: {exact:.1%}", *(f"{bits} bits: {share:.1%}" for bits, share in by_bits.items()))

# %%
# Without the plugin everything is as before. Eight bits lose nothing that matters, two lose a lot.

assert accuracy() == exact > 0.93
assert by_bits[8] > exact - 0.01
assert by_bits[2] < by_bits[4] < exact + 0.01

figure = plt.figure(figsize=(11, 4), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(4, 5))
panel = left.subplots()
panel.axhline(exact, color="0.6", ls=":", label="float32")
panel.plot(list(by_bits), list(by_bits.values()), "o-", label="quantized")
panel.set(title="Digits classified correctly", xlabel="bits of a weight", ylim=(0, 1.02))
panel.legend(loc="lower right")
rows = {
    "float32": trained[0],
    "3 bits": quantized(trained[0], 3),
    "2 bits": quantized(trained[0], 2),
}
for cells, (name, matrix) in zip(right.subplots(3, 6), rows.items(), strict=True):
    for unit, cell in enumerate(cells):
        cell.imshow(matrix[:, unit].reshape(8, 8), cmap="coolwarm", vmin=-1, vmax=1)
        cell.set(xticks=[], yticks=[])
    cells[0].set_ylabel(name)
right.suptitle("The weights of six units, as images")
plt.show()
