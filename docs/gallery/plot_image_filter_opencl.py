r"""
A bilateral filter on OpenCL
============================

The bilateral filter removes noise and keeps edges: each pixel becomes a mean of its neighbors,
weighted by how near they are in space and in brightness,

.. math::

    g(p) = \frac{1}{W} \sum_q
    e^{-|p - q|^2 / 2 \sigma_s^2} \, e^{-(f(p) - f(q))^2 / 2 \sigma_r^2} f(q) .

A graph says nothing of where it runs: that is the transformer's part.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import weft
from weft import plugins

# %%
# The status of a backend says whether there is a device, and otherwise what is missing.

status = plugins.backend_status("opencl")
print("OpenCL device:", status.device.reason if status.usable else "none, so this runs on NumPy")
if not status.usable:
    print(status.usable.reason)
transformer = weft.make_transformer("opencl" if status.usable else "numpy")

# %%
# A photograph that comes with scikit-learn, in shades of grey, and noise.

photograph = load_sample_image("china.jpg")[:400, 160:600].mean(axis=2) / 255
noisy = photograph + np.random.default_rng(0).normal(scale=0.1, size=photograph.shape)
noisy = noisy.astype(np.float32)
height, width = noisy.shape

# %%
# The weights are an expression for each of the 49 places of the window, on 49 views of one padded
# image. Fusion makes a few kernels of these 450 ops, which move a tenth of the bytes.

RADIUS, SPACE, RANGE = 3, 1.7, 0.3

image = weft.placeholder((height, width), name="image")
padded = weft.pad(image, [RADIUS, RADIUS], mode="reflect")
total, weights = 0, 0
for down in range(2 * RADIUS + 1):
    for across in range(2 * RADIUS + 1):
        neighbor = padded[down : down + height, across : across + width]
        distance = ((down - RADIUS) ** 2 + (across - RADIUS) ** 2) / (2 * SPACE**2)
        weight = weft.exp(-weft.square(neighbor - image) / (2 * RANGE**2) - distance)
        total, weights = total + weight * neighbor, weights + weight
smooth = total / weights

# %%
# The edges are the length of the gradient of the brightness, by two convolutions.

SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32) / 8
filters = weft.constant(np.stack([SOBEL, SOBEL.T])[:, None])


def edges(picture):
    """Return the length of Sobel's gradient at each pixel."""
    slopes = weft.conv2d(weft.reshape(picture, (1, 1, height, width)), filters, padding=1)
    return weft.sqrt(weft.sum(weft.square(slopes[0]), axis=0))


denoise = transformer.computation([smooth, edges(image), edges(smooth)], image)
denoised, edges_before, edges_after = denoise(noisy)
statistics = denoise.fusion_statistics
print(statistics)
assert statistics.bytes_moved < statistics.bytes_op_by_op / 5

# %%
# NumPy computes the same. The filter takes away a third of the error: what remains is noise, and
# the leaves of the trees, which it takes for noise.

reference = weft.make_transformer("numpy").computation(smooth, image)(noisy)
np.testing.assert_allclose(denoised, reference, atol=1e-5)
assert np.std(denoised - photograph) < 0.67 * np.std(noisy - photograph)

figure, panels = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
pictures = {
    "with noise": (noisy, "gray", 1),
    "filtered": (denoised, "gray", 1),
    "edges of the noisy image": (edges_before, "magma", 0.25),
    "edges of the filtered image": (edges_after, "magma", 0.25),
}
for panel, (title, (picture, colors, brightest)) in zip(panels.flat, pictures.items(), strict=True):
    panel.imshow(picture, cmap=colors, vmin=0, vmax=brightest)
    panel.set_title(title)
    panel.set_axis_off()
plt.show()
