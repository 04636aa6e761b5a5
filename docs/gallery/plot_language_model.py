r"""
A language model that learns the Zen of Python
==============================================

A recurrent network reads a text one character at a time and says which one comes next. It learns
from the poem that comes with Python as the module ``this``, and then recites it. Training and
reciting are two computations over the same variables.
"""

import codecs
import contextlib
import io
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np

import weft

with contextlib.redirect_stdout(io.StringIO()):
    import this  # it prints itself when it is imported

poem = codecs.decode(this.s, "rot13") + "\n"
alphabet = sorted(set(poem))
codes = np.array([alphabet.index(character) for character in poem], np.int32)
print(f"{len(poem)} characters, {len(alphabet)} different ones")

# %%
# A table of embeddings, a gated recurrent unit and a matrix to the logits. ``weft.gru`` takes the
# weights of three gates, one below the other. A variable may begin with a random op, which is
# computed once. With a stream of its own it gives the same numbers in every process.

EMBEDDING, HIDDEN = 32, 128


def weight(name, stream, *shape):
    """Return a matrix of weights, drawn from a stream of random numbers."""
    initial = weft.normal(shape, scale=shape[-1] ** -0.5, stream=stream)
    return weft.variable(shape, initial_value=initial, name=name)


table = weight("table", 0, len(alphabet), EMBEDDING)
gates = (
    weight("input", 1, 3 * HIDDEN, EMBEDDING),
    weight("hidden", 2, 3 * HIDDEN, HIDDEN),
    weft.variable((3 * HIDDEN,), initial_value=0, name="input bias"),
    weft.variable((3 * HIDDEN,), initial_value=0, name="hidden bias"),
)
head = weight("head", 3, len(alphabet), HIDDEN)

# %%
# Training reads windows of the poem and predicts, at each place, the next character.

WINDOW, BATCH = 60, 16
tokens = weft.placeholder((WINDOW, BATCH), weft.int32, name="tokens")
following = weft.placeholder((WINDOW, BATCH), weft.int32, name="following")
hidden, _ = weft.gru(weft.embedding(table, tokens), gates)
loss = weft.cross_entropy(hidden @ head.T, following, axis=-1)
update = weft.adam(loss, learning_rate=0.005)

transformer = weft.make_transformer("numpy")
train = transformer.computation([loss, update], tokens, following)

# %%
# Reciting takes one character. The hidden state stays in the transformer between calls: ``assign``
# writes it, and what is built later sees the new value.

token = weft.placeholder((1,), weft.int32, name="token")
memory = weft.persistent_tensor((1, HIDDEN), initial_value=0, name="memory")
weft.assign(memory, weft.gru_cell(weft.embedding(table, token), memory, *gates))
listen = transformer.computation(weft.softmax((memory @ head.T)[0]), token)


def surprise():
    """Return how many bits of information each character is to the model, but for the first."""
    transformer.set_value(memory, np.zeros((1, HIDDEN)))
    chances = [listen([code])[after] for code, after in pairwise(codes)]
    return -np.log2(chances)


def recite(beginning, count):
    """Return a beginning and the most likely characters after it."""
    transformer.set_value(memory, np.zeros((1, HIDDEN)))
    for code in beginning:
        chances = listen([alphabet.index(code)])
    text = beginning
    for _ in range(count):
        text += alphabet[int(np.argmax(chances))]
        chances = listen([alphabet.index(text[-1])])
    return text


# %%
# After 40 steps the model knows words, after 400 the poem. Where two lines go on alike, it may
# still leave one for the other.

random = np.random.default_rng(0)
losses, surprises = [], {}
for number in range(1, 401):
    starts = random.integers(0, len(codes) - WINDOW, BATCH)
    windows = np.stack([codes[start : start + WINDOW + 1] for start in starts], axis=1)
    losses.append(float(train(windows[:-1], windows[1:])[0]))
    if number in (40, 400):
        surprises[number] = surprise()
        print(f"after {number} steps: {surprises[number].mean():.2f} bits a character")

recited = recite("The Zen", 400)
print(recited)
assert recited.startswith(poem[:60])
assert surprises[400].mean() < 0.1 < 1 < surprises[40].mean()

# %%
# Each character on the color of its surprise. Early on, the ends of words are certain and their
# first letters are not.

lines = poem.splitlines()
figure, panels = plt.subplots(1, 2, figsize=(13, 5.2), layout="constrained")
for panel, (number, bits) in zip(panels, surprises.items(), strict=True):
    colors = np.full((len(lines), max(map(len, lines))), np.nan)
    places = [(row, column) for row, line in enumerate(lines) for column in range(len(line) + 1)]
    for (row, column), value in zip(places[1:], bits, strict=True):
        if column < len(lines[row]):
            colors[row, column] = value
            panel.text(column, row, lines[row][column], ha="center", va="center", fontsize=5.5)
    picture = panel.imshow(colors, cmap="YlOrRd", vmin=0, vmax=6, aspect="auto")
    panel.set_title(f"after {number} steps")
    panel.set_axis_off()
figure.colorbar(picture, ax=panels, label="surprise [bits]", shrink=0.8)
plt.show()
