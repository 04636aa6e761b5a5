r"""
k-means on handwritten digits, with named axes
==============================================

k-means alternates two steps: each image goes to the nearest center, and each center becomes the
mean of its images. Axes with names say which dimension is which, so nothing is reshaped or
transposed.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import weft

digits = load_digits()
pixels = (digits.data / 16).astype(np.float32)

IMAGE = weft.make_axis(len(pixels), "image")
PIXEL = weft.make_axis(64, "pixel")
CENTER = weft.make_axis(12, "center")

# %%
# The centers are a state. ``dot`` contracts the axis that its operands share, here the pixels, so
# the squared distances have the axes that are left: image and center.

images = weft.placeholder([IMAGE, PIXEL], name="images")
chosen = np.random.default_rng(5).choice(len(pixels), CENTER.length, replace=False)
centers = weft.variable([CENTER, PIXEL], initial_value=pixels[chosen], name="centers")

distances = (
    weft.sum(weft.square(images), PIXEL)
    - 2 * weft.dot(images, centers)
    + weft.sum(weft.square(centers), PIXEL)
)
nearest = weft.argmin(distances, CENTER)
cost = weft.mean(weft.min(distances, CENTER), IMAGE)

# %%
# One-hot rows pick the images of each center: another product gives their sum. A center without
# images stays where it is. The new centers are written at the end of the call, which returns the
# cost of the old ones.

members = weft.one_hot(nearest, CENTER)
counts = weft.sum(members, IMAGE)
means = weft.dot(members, images) / weft.maximum(counts, 1)
with weft.saved_user_deps():
    update = weft.assign(centers, weft.where(counts > 0, means, centers))

transformer = weft.make_transformer("numpy")
iterate = transformer.computation([cost, update], images)
assign = transformer.computation([nearest, cost], images)
costs = [float(iterate(pixels)[0]) for _ in range(40)]

# %%
# No iteration makes the cost larger, and the last ones change nothing any more. The labels were
# never looked at, and yet most images share a center with others of their digit.

clusters, final = assign(pixels)
assert all(later <= earlier + 1e-5 for earlier, later in pairwise(costs))
assert abs(costs[-1] - final) < 1e-5
common = [np.bincount(digits.target[clusters == k]).max() for k in range(CENTER.length)]
purity = sum(common) / len(pixels)
print(f"{purity:.0%} of the images show the most frequent digit of their cluster")
assert purity > 0.7

figure = plt.figure(figsize=(11, 4), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=(3, 2))
found = transformer.get_value(centers).reshape(CENTER.length, 8, 8)
for k, panel in enumerate(left.subplots(3, 4).flat):
    panel.imshow(found[k], cmap="gray_r", vmin=0, vmax=1)
    panel.set_title(f"{np.sum(clusters == k)} images", fontsize=9)
    panel.set_axis_off()
left.suptitle("The centers")
panel = right.subplots()
panel.plot(costs, ".-")
panel.set(title="Mean squared distance to the nearest", xlabel="iteration")
panel.grid(alpha=0.3)
plt.show()
