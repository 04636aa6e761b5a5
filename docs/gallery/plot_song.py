r"""
An instrument tuned by the spectrogram of a song
================================================

Somebody plays a song on an instrument of six strings, none of which is in tune. How far is each of
them off? The phases of the recording are unknown, so samples cannot be compared. The spectrogram
has no phases: it says how much power there is around each time and frequency.
:func:`weft.value_and_grad` differentiates it, back to the frequencies of the strings.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import weft

RATE, SAMPLES, OVERTONES, NOISE = 8000, 3200, 4, 0.02
STRINGS = dict(zip("CDEFGA", (261.6, 293.7, 329.6, 349.2, 392.0, 440.0), strict=True))
NOTES = ["CDEFGA".index(name) for name in "CCGGAAGFFEEDDC"]

# %%
# The strings are tuned in cents, of which an octave has 1200. A note is a string's frequency and
# its multiples, which fade away: all notes and overtones are one array.


def song(cents, phases=0.0):
    """Return the samples of the song on strings that are so many cents off."""
    pitches = np.array(list(STRINGS.values())) * 2 ** (cents / 1200)
    time = np.arange(SAMPLES) / RATE
    overtones = np.arange(1, OVERTONES + 1)[:, None]
    angles = 2 * np.pi * overtones * pitches[np.array(NOTES), None, None] * time + phases
    return weft.reshape(weft.sum(weft.sin(angles) / overtones**2 * np.exp(-6 * time), 1), -1)


def spectrogram(samples, size):
    """Return frequencies, times and magnitudes of segments of a size."""
    return weft.signal.spectrogram(samples, RATE, "hann", size, size // 2, mode="magnitude")


random = np.random.default_rng(1)
truth = random.uniform(-40, 40, len(STRINGS))
phases = random.uniform(0, 2 * np.pi, (len(NOTES), OVERTONES, 1))
recording = weft.jit(song)(truth, phases)
recording += NOISE * random.normal(size=recording.size)

# %%
# The loss compares spectrograms. In short segments a string that is off overlaps with the recorded
# one, and the gradient says which way to turn the peg. Long segments resolve finer frequencies, and
# finish the tuning. The gradient is a transform backward, and agrees with central differences.


def loss(cents, size):
    """Return how far the spectrogram of the song is from that of the recording."""
    (_, _, played), (_, _, recorded) = spectrogram(song(cents), size), spectrogram(recording, size)
    return weft.log(weft.sum((played - recorded) ** 2))


slope = weft.jit(weft.value_and_grad(loss), static_argnames="size")
tunings = [np.zeros(len(STRINGS))]
for number, step in enumerate(1e-4 * np.eye(len(STRINGS))):
    (above, _), (below, _) = slope(tunings[0] + step, 256), slope(tunings[0] - step, 256)
    np.testing.assert_allclose(slope(tunings[0], 256)[1][number], (above - below) / 2e-4, rtol=1e-5)

for size in (256, 2048):
    found = minimize(slope, tunings[-1], size, jac=True, method="BFGS", callback=tunings.append)
    print(f"segments of {size}: {found.nfev} evaluations, loss {found.fun:.3f}")

# %%
# Trained ears hear some five cents. The strings are found to one.

errors = np.array(tunings) - truth
for name, cents in zip(STRINGS, errors[-1], strict=True):
    print(f"{name}: {cents:+.2f} cents")
assert abs(errors[-1]).max() < 1

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
frequencies, times, power = weft.jit(spectrogram, static_argnames="size")(recording, size=512)
left.pcolormesh(times, frequencies, 20 * np.log10(power), vmin=-80, vmax=-30, cmap="magma")
left.set(title="The recording", xlabel="seconds", ylabel="frequency", ylim=(0, 2000))
right.plot(errors, label=list(STRINGS))
right.axhspan(-5, 5, color="0.9")
right.set(title="The six strings", xlabel="iteration", ylabel="cents off")
right.legend(fontsize=8)
plt.show()
