r"""
Wrong labels, found by the gradient of each example
===================================================

Some images of digits have a wrong label. A network that is trained on the mean gradient learns it,
too. :func:`weft.vmap` of :func:`weft.grad` is the gradient of each example. Clipped one by one,
as in private training (Abadi and others: Deep learning with differential privacy, 2016), no example
has much influence, and those with wrong labels are left with the longest gradients.
"""

import matplotlib.pyplot as plt
import numpy as np
import optree
from sklearn.datasets import load_digits

import weft
from weft import nn

EPOCHS, BATCH, LIMIT, WRONG = 40, 100, 0.3, 280

# %%
# A fifth of 1,400 labels is replaced by others; the rest of the images is held out.

digits = load_digits()
images, labels = (digits.data / 16).astype("float32"), digits.target.astype("int32")
rng = np.random.default_rng(0)
order = rng.permutation(len(labels))
train, held_out = order[:1400], order[1400:]
is_wrong = np.zeros(len(labels), bool)
is_wrong[rng.choice(train, WRONG, replace=False)] = True
given = np.where(is_wrong, (labels + rng.integers(1, 10, labels.shape)) % 10, labels).astype(
    "int32"
)

# %%
# The loss is that of one example. `vmap` gives its gradient a leading axis for the examples of a
# batch, which all share the parameters.

model = nn.Sequential(nn.Dense(64, activation=weft.relu), nn.Dense(10))


def loss(params, image, label):
    """Return the cross entropy of one image."""
    return weft.cross_entropy(model(params, image), label)


each_gradient = weft.vmap(weft.grad(loss), in_axes=(None, 0, 0))


def lengths(gradients):
    """Return the norm of each example's gradient, over all parameters."""
    leaves = optree.tree_leaves(gradients)
    return weft.sqrt(sum(weft.sum(leaf**2, axis=range(1, leaf.ndim)) for leaf in leaves))


first = model.init(weft.random.key(0), (1, 64))
several = weft.jit(each_gradient)(first, images[:5], given[:5])
alone = weft.jit(weft.grad(loss))(first, images[3], given[3])
np.testing.assert_allclose(several["1"]["weight"][3], alone["1"]["weight"], rtol=1e-4, atol=1e-6)

# %%
# Without a limit the factors are 1, and the step is the usual one on the mean gradient.

optimizer = weft.optim.adam(0.01)


@weft.jit(donate_argnums=("params", "state"), static_argnames="limit")
def step(params, state, images, labels, limit):
    """Return parameters and state after a step on clipped gradients."""
    gradients = each_gradient(params, images, labels)
    factors = weft.minimum(1, limit / lengths(gradients))
    mean = optree.tree_map(lambda leaf: weft.tensordot(factors, leaf, 1) / BATCH, gradients)
    return optimizer.update(mean, state, params)


def trained(limit):
    """Return the parameters after all epochs."""
    params = model.init(weft.random.key(0), (1, 64))
    state = optimizer.init(params)
    rng = np.random.default_rng(1)
    for _ in range(EPOCHS):
        for chosen in rng.permutation(train).reshape(-1, BATCH):
            params, state = step(params, state, images[chosen], given[chosen], limit)
    return params


@weft.jit
def accuracy(params, images, labels):
    """Return the share of images that are classified correctly."""
    return weft.mean(weft.argmax(model(params, images), -1) == labels)


results = {"usual": trained(float("inf")), "clipped": trained(LIMIT)}
right = {
    name: accuracy(params, images[held_out], labels[held_out]).item()
    for name, params in results.items()
}
for name, share in right.items():
    print(f"{name}: {share:.1%} of the held-out digits are classified correctly")
assert right["clipped"] > max(0.94, right["usual"])

# %%
# After the clipped training the longest gradients are nearly all of wrong labels.

norms = weft.jit(lambda params, *batch: lengths(each_gradient(params, *batch)))
of_each = {name: norms(params, images[train], given[train]) for name, params in results.items()}
suspects = train[np.argsort(-of_each["clipped"])][:WRONG]
found = is_wrong[suspects].mean()
print(f"{found:.0%} of the {WRONG} longest gradients belong to wrong labels")
assert found > 0.9

figure = plt.figure(figsize=(11, 4), layout="constrained")
left, rest = figure.subfigures(1, 2)
for panel, (name, norm) in zip(left.subplots(1, 2, sharey=True), of_each.items(), strict=True):
    both = [np.minimum(norm[each], 16) for each in (~is_wrong[train], is_wrong[train])]
    panel.hist(both, bins=np.linspace(0, 16, 30), stacked=True, color=["C0", "C3"])
    panel.set(title=f"{name} training", xlabel="norm of the gradient", yscale="log")
panel.legend(["right label", "wrong label"], fontsize=8)
rest.suptitle("The longest gradients of the clipped training")
for panel, index in zip(rest.subplots(3, 6).flat, suspects, strict=False):
    panel.imshow(images[index].reshape(8, 8), cmap="gray_r")
    panel.set_title(f"{given[index]}", fontsize=9, color="C3" if is_wrong[index] else "k")
    panel.set(xticks=[], yticks=[])
plt.show()
