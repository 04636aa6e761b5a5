"""Names that a user probably meant, for messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable

FUNCTIONS = {
    "amax": "max", "amin": "min", "array": "constant",
    "avg_pool2d": "avg_pool", "bmm": "matmul", "cat": "concat", "clamp": "clip",
    "concatenate": "concat", "detach": "stop_gradient",
    "index_select": "take", "masked_fill": "where", "max_pool2d": "max_pool", "mm": "matmul",
    "mul": "multiply", "neg": "negative", "permute": "transpose", "sub": "subtract",
    "tensor": "constant", "to": "cast", "true_divide": "divide", "type": "cast",
    "view": "reshape",
}  # fmt: skip
"""What functions of NumPy, PyTorch and JAX are called here."""

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
