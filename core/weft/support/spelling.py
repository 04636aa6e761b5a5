"""Names that a user probably meant, for messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

FUNCTIONS = {
    "amax": "max", "amin": "min", "array": "constant",
    "avg_pool2d": "avg_pool", "bmm": "matmul", "cat": "concat", "clamp": "clip",
    "concatenate": "concat", "detach": "stop_gradient",
    "index_select": "take", "masked_fill": "where", "max_pool2d": "max_pool", "mm": "matmul",
    "mul": "multiply", "neg": "negative", "permute": "transpose", "sub": "subtract",
    "tensor": "constant", "true_divide": "divide", "type": "cast",
    "view": "reshape",
}  # fmt: skip
"""What functions of NumPy, PyTorch and JAX are called here."""

_GRADIENT = "weft.grad(f) is a function for the gradient of f"
_VALUE = "an op has no value before it is computed, let the function return it"
_IMMUTABLE = "an op never changes"
_BACKEND = "the backend is chosen for a function, as in weft.jit(f, backend='cupy')"
_CALLED_WITH_MODE = "the mode is an argument of the call, as in layer(params, x, train=True)"
_PARAMS = "parameters are trees of arrays beside the layer: params = layer.init(key, shape)"
_UPDATE = "params, state = optimizer.update(gradients, state, params) performs a step"
_KEY = "weft.random.key(0) makes a key, and split and fold_in others of it"
_TREES = "optree.tree_map maps trees, weft.scan, cond and while_loop are functions of weft"
_MODEL = "a model is a function of params and inputs, and weft.nn.Layer the base of layers"
_FUNCTIONS = "functions of tensors are names of weft, as weft.relu and weft.sum"

ADVICE = {
    "Conv1d": "weft.nn.Conv(channels, kernel)", "Conv2d": "weft.nn.Conv(channels, kernel)",
    "CrossEntropyLoss": "weft.cross_entropy(logits, labels)", "GradientTape": _GRADIENT,
    "Linear": "weft.nn.Dense(features_out)", "Module": _MODEL, "PRNGKey": _KEY,
    "MSELoss": "weft.mean(weft.square(x - y))", "Parameter": _PARAMS, "RandomState": _KEY,
    "Tensor": "functions take arrays of NumPy", "append": f"{_IMMUTABLE}: weft.concat joins two",
    "apply": "layer(params, x) calls a layer", "backward": _GRADIENT, "block_until_ready": _VALUE,
    "clone": f"{_IMMUTABLE}, and needs no copy", "compile": "weft.jit(f)", "cpu": _BACKEND,
    "cuda": _BACKEND, "default_rng": _KEY, "device": _BACKEND, "device_put": _BACKEND,
    "dim": "x.ndim", "double": "x.astype('float64')", "eval": _CALLED_WITH_MODE,
    "expand": "weft.broadcast_to(x, shape)", "fill": f"{_IMMUTABLE}: x.at[:].set(value)",
    "float": "x.astype('float32')", "from_numpy": "functions take arrays of NumPy as they are",
    "function": "weft.jit(f)", "functional": _FUNCTIONS, "grad": _GRADIENT,
    "half": "x.astype('float16')", "inference_mode": _GRADIENT, "int": "x.astype('int32')",
    "item": _VALUE,
    "jacfwd": "weft.jacobian", "jacrev": "weft.jacobian", "lax": _TREES,
    "load_state_dict": _PARAMS, "long": "x.astype('int64')",
    "make_jaxpr": "weft.jit(f).lower(x).graph", "manual_seed": _KEY,
    "no_grad": f"{_GRADIENT}, and nothing else computes any", "numpy": f"{_VALUE}; {_FUNCTIONS}",
    "rand": "weft.random.uniform(key, shape)", "randn": "weft.random.normal(key, shape)",
    "requires_grad": _GRADIENT, "seed": _KEY, "shuffle": "weft.random.permutation(key, x)",
    "state_dict": _PARAMS, "step": _UPDATE, "t": "x.T", "to": f"x.astype(dtype) casts; {_BACKEND}",
    "tolist": _VALUE, "train": _CALLED_WITH_MODE, "tree": _TREES, "tree_map": _TREES,
    "tree_util": _TREES, "zero_grad": "gradients are results, and nothing adds them up",
}  # fmt: skip
"""What to do instead of what other libraries have and weft does not."""

KEYWORDS = {
    "dim": ("axis", "axes", "reduction_axes"), "dims": ("axes", "axis"),
    "keepdim": ("keepdims",), "keep_dims": ("keepdims",), "lr": ("learning_rate",),
    "eps": ("epsilon",), "input": ("x",), "weight": ("scale", "weights"), "betas": ("beta1",),
    "size": ("axes", "shape"), "shape": ("axes",), "params": ("variables",), "type": ("dtype",),
}  # fmt: skip
"""What keywords of PyTorch and others are called here, the first that a function has."""

BACKENDS = {
    "cuda": "cupy", "gpu": "cupy", "nvidia": "cupy", "cpu": "native", "c": "native",
    "gcc": "native", "cl": "opencl", "pocl": "opencl", "np": "numpy",
}  # fmt: skip
"""What backends are called elsewhere."""


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name that is most like a word, or nothing if none is like it.

    >>> closest("transposse", ["tile", "transpose"]), closest("sin", ["matmul"])
    ('transpose', '')
    >>> closest("x", ["X", "Y"])
    'X'
    """
    # Only messages of errors need it.
    import difflib

    spelt = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower(), spelt, n=1, cutoff=cutoff)
    return spelt[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str], elsewhere: str = "") -> str:
    """Return a question that names the closest name, or what it is called here, with a space first.

    >>> did_you_mean("y", ["x", "Y"]), did_you_mean("cuda", ["numpy", "cupy"], "cupy")
    (" Did you mean 'Y'?", " Did you mean 'cupy'?")
    """
    names = list(known)
    close = elsewhere if elsewhere in names else closest(word, names)
    return f" Did you mean {close!r}?" if close else ""


def instead_of(word: str, known: Iterable[str]) -> str:
    """Return what to use for a name that is not there, as the end of a sentence.

    >>> instead_of("backward", []), instead_of("reshap", ["reshape"])
    (': weft.grad(f) is a function for the gradient of f', ". Did you mean 'reshape'?")
    >>> instead_of("add_", ["add"])
    ": an op never changes. Did you mean 'add'?"
    """
    names = list(known)
    bare = word.rstrip("_")
    in_place = f": {_IMMUTABLE}." if bare != word and bare in names else "."
    if word in ADVICE or bare in ADVICE:
        return f": {ADVICE.get(word, ADVICE.get(bare))}"
    return f"{in_place}{did_you_mean(bare or word, names, FUNCTIONS.get(word, ''))}"


def unknown_name(module: str, known: Iterable[str]) -> Callable[[str], NoReturn]:
    """Return a function that raises the error for a name that a module does not have."""

    def refuse(name: str) -> NoReturn:
        problem = f"module {module!r} has no attribute {name!r}"
        raise UnknownAttribute(problem, lambda: instead_of(name, known))

    return refuse


class UnknownAttribute(AttributeError):
    """An attribute that is not there.

    What was meant is looked for when the message is shown, as Python does for its own: programs ask
    for attributes that may be missing all the time.
    """

    def __init__(self, problem: str, hint: Callable[[], str]) -> None:
        super().__init__(problem)
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.args[0]}{self.hint()}"
