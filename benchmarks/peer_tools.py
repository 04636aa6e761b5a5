"""The tools that weft is measured beside: each compiles work and returns a call, and its results.

A tool has a namespace of array functions, which the functions in `work` are written in. Weights and
inputs are handed over once, before anything is timed: a call reads them where the tool keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import peer_kernels
from models import cnn
from models.block import EPSILON
from models.program import Program, softmax_loss, training_step
from work import Work

import weft

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]
Prepared = tuple[Call, list[Array]]
"""A call, and the arrays that it gave at first: one, or the losses of some steps of training."""

STEPS = 3
"""The steps of training whose losses are compared."""


class Unavailable(Exception):
    """A tool cannot do some work; the text says why."""


def required(module: str) -> Any:
    """Return a module; raises Unavailable if it cannot be imported."""
    try:
        return import_module(module)
    except ImportError as error:
        raise Unavailable(f"not installed ({error})") from None


def results(call: Call, work: Work, read: Callable[[Any], Array] = np.asarray) -> list[Array]:
    """Return what a call gives: its result, or the losses of the first steps of training."""
    return [np.array(read(call())) for _ in range(1 if work.rate is None else STEPS)]


class Composed:
    """Functions of networks made from those of NumPy, for namespaces that have no better ones."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def __getattr__(self, name: str) -> Any:
        return getattr(self.xp, name)

    def relu(self, x: Any) -> Any:
        """Return the larger one of each element and 0."""
        return self.xp.maximum(x, 0)

    def sigmoid(self, x: Any) -> Any:
        """Return 1 / (1 + exp(-x))."""
        return 1 / (1 + self.xp.exp(-x))

    def softmax(self, x: Any) -> Any:
        """Return softmax over the last axis."""
        powers = self.xp.exp(x - self.xp.max(x, axis=-1, keepdims=True))
        return powers / self.xp.sum(powers, axis=-1, keepdims=True)

    def variance(self, x: Any) -> Any:
        """Return the mean square distance from the mean, of all elements."""
        return self.xp.var(x)

    def layer_norm(self, x: Any, scale: Any, bias: Any) -> Any:
        """Return the last axis standardized, times a scale plus a bias."""
        centered = x - self.xp.mean(x, axis=-1, keepdims=True)
        variance = self.xp.mean(centered * centered, axis=-1, keepdims=True)
        return centered / self.xp.sqrt(variance + np.float32(EPSILON)) * scale + bias

    def rms_norm(self, x: Any, scale: Any) -> Any:
        """Return the last axis over its root mean square, times a scale."""
        square = self.xp.mean(x * x, axis=-1, keepdims=True)
        return x / self.xp.sqrt(square + np.float32(EPSILON)) * scale

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        """Return values weighted by the softmax of scaled products of queries and keys."""
        axes = (*range(q.ndim - 2), q.ndim - 1, q.ndim - 2)
        scores = q @ self.xp.transpose(k, axes) * np.float32(1 / math.sqrt(q.shape[-1]))
        return self.softmax(scores) @ v


class Numpy(Composed):
    """Eager NumPy, as a good user writes it."""

    def __init__(self) -> None:
        super().__init__(np)

    def gelu(self, x: Array) -> Array:
        """Return GELU with SciPy's error function."""
        erf = required("scipy.special").erf
        return 0.5 * x * (1 + erf(x * np.float32(math.sqrt(0.5))))

    def cross_entropy(self, logits: Array, targets: Array) -> Array:
        """Return the mean cross entropy of one-hot targets and softmax."""
        return softmax_loss(logits, targets)[0]

    def convolution(self, x: Array, w: Array, b: Array) -> Array:
        """Return a 3x3 convolution that keeps the size, by products of windows as columns."""
        return cnn.convolved(x, w, b)[1]

    def pooled(self, x: Array) -> Array:
        """Return the maximum of each 2x2 elements."""
        return cnn.pooled(x)


def numpy(work: Work) -> Prepared:
    """Eager NumPy; training is that of the model's own eager class."""
    if work.rate is None:
        namespace = Numpy()
        call = lambda: work.function(namespace, work.weights, *work.inputs)  # noqa: E731
        return call, results(call, work)
    kind: Any = next(each for each in EAGER if work.what.startswith(each))
    model = EAGER[kind]()
    train = lambda: model(*work.inputs)  # noqa: E731
    return train, results(train, work)


def _eager_mlp() -> Any:
    return import_module("models.mlp").Eager()


EAGER: dict[str, Callable[[], Any]] = {"MLP step": _eager_mlp, "CNN step": cnn.Eager}
"""By the beginning of the work's name, the model that trains with eager NumPy."""


class Weft(Composed):
    """weft's functions, under the names of the others."""

    def __init__(self) -> None:
        super().__init__(weft)

    softmax = staticmethod(weft.softmax)
    gelu = staticmethod(weft.gelu)
    relu = staticmethod(weft.relu)
    sigmoid = staticmethod(weft.sigmoid)
    attention = staticmethod(weft.attention)
    variance = staticmethod(weft.variance)
    cross_entropy = staticmethod(weft.cross_entropy)

    def layer_norm(self, x: Any, scale: Any, bias: Any) -> Any:
        """Return the last axis standardized, times a scale plus a bias."""
        return weft.layer_norm(x, scale, bias, epsilon=EPSILON)

    def rms_norm(self, x: Any, scale: Any) -> Any:
        """Return the last axis over its root mean square, times a scale."""
        return weft.rms_norm(x, scale, epsilon=EPSILON)

    def concatenate(self, parts: Sequence[Any], axis: int) -> Any:
        """Return arrays joined along an axis."""
        return weft.concat(list(parts), axis)

    def convolution(self, x: Any, w: Any, b: Any) -> Any:
        """Return a 3x3 convolution that keeps the size."""
        return weft.conv2d(x, w, padding=1, bias=b)

    def pooled(self, x: Any) -> Any:
        """Return the maximum of each 2x2 elements."""
        return weft.max_pool(x, 2)


def by_weft(work: Work) -> Prepared:
    """The backend that the command line names."""
    inputs = [weft.placeholder(x.shape, dtype=x.dtype) for x in work.inputs]
    if work.rate is None:
        weights = [weft.constant(w) for w in work.weights]
    else:
        weights = [weft.variable(w.shape, initial_value=w) for w in work.weights]
    value = work.function(Weft(), weights, *inputs)
    if work.rate is None:
        program = Program(value, inputs, weights)
    else:
        program = training_step(value, inputs, weights, work.rate)
    _, computation = program.compiled()
    given = work.inputs
    call = lambda: computation(*given)  # noqa: E731
    read = np.asarray if work.rate is None else lambda found: np.asarray(found[0])
    return call, results(call, work, read)


def jax(work: Work) -> Prepared:
    """JAX on the CPU, jitted; the parameters of training are donated."""
    library = required("jax")
    jnp, lax = library.numpy, library.lax
    library.config.update("jax_platforms", "cpu")

    class Jax(Composed):
        relu = staticmethod(library.nn.relu)
        sigmoid = staticmethod(library.nn.sigmoid)

        def softmax(self, x: Any) -> Any:
            return library.nn.softmax(x)

        def gelu(self, x: Any) -> Any:
            return library.nn.gelu(x, approximate=False)

        def cross_entropy(self, logits: Any, targets: Any) -> Any:
            return -jnp.sum(library.nn.log_softmax(logits) * targets) / len(targets)

        def convolution(self, x: Any, w: Any, b: Any) -> Any:
            return lax.conv_general_dilated(x, w, (1, 1), "SAME") + b[:, None, None]

        def pooled(self, x: Any) -> Any:
            window = (1, 1, 2, 2)
            return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")

    namespace = Jax(jnp)
    held = [jnp.asarray(x) for x in work.inputs]
    weights = [jnp.asarray(w) for w in work.weights]

    def function(weights: Any, *inputs: Any) -> Any:
        return work.function(namespace, weights, *inputs)

    if work.rate is None:
        compiled = library.jit(function)
        call = lambda: compiled(weights, *held).block_until_ready()  # noqa: E731
        return call, results(call, work)

    def step(weights: Any, *inputs: Any) -> Any:
        loss, gradients = library.value_and_grad(function)(weights, *inputs)
        return loss, [w - work.rate * g for w, g in zip(weights, gradients, strict=True)]

    trained = library.jit(step, donate_argnums=0)

    def train() -> Any:
        loss, weights[:] = trained(weights, *held)
        return library.block_until_ready((loss, weights))[0]

    return train, results(train, work)


def _torch_namespace(library: Any) -> Any:
    functions = library.nn.functional

    class Torch:
        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

        def maximum(self, x: Any, least: float) -> Any:
            return library.clamp(x, min=least)

        def softmax(self, x: Any) -> Any:
            return functions.softmax(x, -1)

        def variance(self, x: Any) -> Any:
            return library.var(x, correction=0)

        def mean(self, x: Any, axis: int) -> Any:
            return library.mean(x, axis)

        def transpose(self, x: Any, axes: Sequence[int]) -> Any:
            return x.permute(*axes)

        def layer_norm(self, x: Any, scale: Any, bias: Any) -> Any:
            return functions.layer_norm(x, x.shape[-1:], scale, bias, EPSILON)

        def rms_norm(self, x: Any, scale: Any) -> Any:
            return functions.rms_norm(x, x.shape[-1:], scale, EPSILON)

        def gelu(self, x: Any) -> Any:
            return functions.gelu(x)

        def attention(self, q: Any, k: Any, v: Any) -> Any:
            return functions.scaled_dot_product_attention(q, k, v)

        def cross_entropy(self, logits: Any, targets: Any) -> Any:
            return functions.cross_entropy(logits, targets)

        def convolution(self, x: Any, w: Any, b: Any) -> Any:
            return functions.conv2d(x, w, b, padding=1)

        def pooled(self, x: Any) -> Any:
            return functions.max_pool2d(x, 2)

    return Torch()


def _torch(work: Work, compiled: bool) -> Prepared:
    library = required("torch")
    namespace = _torch_namespace(library)
    held = [library.from_numpy(x) for x in work.inputs]
    weights = [library.from_numpy(w.copy()) for w in work.weights]

    def function(*inputs: Any) -> Any:
        return work.function(namespace, weights, *inputs)

    run = library.compile(function) if compiled else function
    if work.rate is None:

        def call() -> Any:
            with library.inference_mode():
                return run(*held)

        return call, results(call, work)
    optimizer = library.optim.SGD([w.requires_grad_() for w in weights], lr=work.rate)

    def train() -> Any:
        optimizer.zero_grad()
        loss = run(*held)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train, results(train, work)


def torch(work: Work) -> Prepared:
    """PyTorch, op by op."""
    return _torch(work, compiled=False)


def inductor(work: Work) -> Prepared:
    """PyTorch's compiler."""
    return _torch(work, compiled=True)


def onnxruntime(work: Work) -> Prepared:
    """Onnxruntime on the CPU, which does not train; weights are initializers of the model."""
    if work.rate is not None:
        raise Unavailable("no training")
    runtime, recorder = required("onnxruntime"), required("onnx_recorder")
    model = recorder.model(work)
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feed = {f"x{number}": x for number, x in enumerate(work.inputs)}
    call = lambda: session.run(None, feed)[0]  # noqa: E731
    return call, results(call, work)


def numba(work: Work) -> Prepared:
    """Loops written by hand, for what has them."""
    required("numba")
    make = peer_kernels.KERNELS.get(work.what)
    if make is None:
        raise Unavailable("no loops written by hand")
    kernel = make()
    call = lambda: kernel(*work.weights, *work.inputs)  # noqa: E731
    return call, results(call, work)


TOOLS: dict[str, Callable[[Work], Prepared]] = {
    "numpy": numpy,
    "weft": by_weft,
    "onnxruntime": onnxruntime,
    "jax": jax,
    "torch": torch,
    "inductor": inductor,
    "numba": numba,
}
"""By name, what compiles some work; the first one is the reference."""
