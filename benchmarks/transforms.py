"""Fourier transforms, and convolutions by them: weft beside SciPy on all cores, and PyTorch.

Results are compared with NumPy's in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from environment import cores
from side_by_side import Call, Case, main

import weft

Array = np.ndarray[Any, Any]


class Transform(NamedTuple):
    """A transform.

    Attributes
    ----------
    function
        Its name in a namespace such as `numpy.fft`.
    shape
        The axes of the real numbers, or of the complex ones.
    dtype
        The dtype of the real numbers, or of the parts of the complex ones.
    axis
        The axis; not for a transform of two.
    """

    function: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    axis: int = -1

    def __str__(self) -> str:
        axis = f" along axis {self.axis}" if self.axis != -1 else ""
        dtype = f", {self.dtype}" if self.dtype != "float32" else ""
        return f"{self.function}, {' x '.join(map(str, self.shape))}{axis}{dtype}"

    @property
    def operand(self) -> Array:
        """What is transformed."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=self.shape)
        if self.function == "irfft":
            x = np.fft.rfft(x)
        elif self.function != "rfft":
            x = x + 1j * rng.normal(size=self.shape)
        wanted = np.dtype(self.dtype)
        return x.astype(np.result_type(wanted, "c8") if x.dtype.kind == "c" else wanted)

    @property
    def most(self) -> float:
        """Some units of the last place for each factor 2 of the length."""
        return float(4 * np.finfo(self.dtype).eps * (1 + np.log2(np.prod(self.shape))))

    def options(self, axis: str = "axis") -> dict[str, int]:
        """Return the keywords of a function whose axis has a name."""
        length = {"n": self.shape[-1]} if self.function == "irfft" else {}
        return {} if self.function == "fft2" else {axis: self.axis, **length}

    def weft(self, backend: str) -> Call:
        """Return the call of weft."""
        x, transform = self.operand, getattr(weft.fft, self.function)
        call = weft.jit(lambda x: transform(x, **self.options()), backend=backend)
        call(x)
        return lambda: call(x)

    def rivals(self) -> dict[str, Callable[[], Call]]:
        """Return what makes the calls of SciPy and PyTorch."""
        return {"scipy": self._scipy, "torch": self._torch}

    def _scipy(self) -> Call:
        """Return the call of SciPy with as many workers as there are cores."""
        import scipy.fft

        x, transform = self.operand, getattr(scipy.fft, self.function)
        return lambda: transform(x, workers=cores(), **self.options())

    def _torch(self) -> Call:
        import torch

        transform, tensor = getattr(torch.fft, self.function), torch.from_numpy(self.operand)
        return lambda: transform(tensor, **self.options("dim"))

    def error(self, found: Any) -> float:
        """Return the distance from NumPy's result in float64, over the norm of that."""
        x = self.operand
        wanted = getattr(np.fft, self.function)(x.astype(np.result_type(x, "f8")), **self.options())
        return float(np.linalg.norm(np.asarray(found) - wanted) / np.linalg.norm(wanted))


class Convolution(NamedTuple):
    """A convolution of an image with a filter by transforms, of the size of the image.

    Attributes
    ----------
    shape, kernel
        The lengths of the image and of the filter.
    dtype
        The dtype of both.
    """

    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    dtype: str = "float32"

    def __str__(self) -> str:
        image, kernel = (" x ".join(map(str, each)) for each in (self.shape, self.kernel))
        dtype = f", {self.dtype}" if self.dtype != "float32" else ""
        return f"fftconvolve, {image} with {kernel}{dtype}"

    @property
    def operands(self) -> tuple[Array, ...]:
        """The image and the filter."""
        rng = np.random.default_rng(0)
        return tuple(rng.normal(size=each).astype(self.dtype) for each in (self.shape, self.kernel))

    @property
    def most(self) -> float:
        """Some units of the last place for each factor 2 of the length."""
        return float(4 * np.finfo(self.dtype).eps * (1 + np.log2(np.prod(self.shape))))

    def weft(self, backend: str) -> Call:
        """Return the call of weft."""
        image, kernel = self.operands
        call = weft.jit(lambda x, w: weft.signal.fftconvolve(x, w, "same"), backend=backend)
        call(image, kernel)
        return lambda: call(image, kernel)

    def rivals(self) -> dict[str, Callable[[], Call]]:
        """Return what makes the call of SciPy; PyTorch has no such function."""
        return {"scipy": self._scipy}

    def _scipy(self) -> Call:
        """Return the call of SciPy with as many workers as there are cores."""
        import scipy.fft
        import scipy.signal

        image, kernel = self.operands

        def call() -> Any:
            with scipy.fft.set_workers(cores()):
                return scipy.signal.fftconvolve(image, kernel, "same")

        return call

    def error(self, found: Any) -> float:
        """Return the distance from the result in float64 by NumPy, over the norm of that."""
        lengths = [m + n - 1 for m, n in zip(self.shape, self.kernel, strict=True)]
        first, second = (np.fft.rfftn(each.astype("f8"), lengths, (0, 1)) for each in self.operands)
        starts = [(n - 1) // 2 for n in self.kernel]
        kept = tuple(slice(a, a + n) for a, n in zip(starts, self.shape, strict=True))
        wanted = np.fft.irfftn(first * second, lengths, (0, 1))[kept]
        return float(np.linalg.norm(np.asarray(found) - wanted) / np.linalg.norm(wanted))


LENGTHS = [
    Transform(function, (1 << bits,))
    for function in ("fft", "rfft", "irfft")
    for bits in (8, 10, 12, 14, 16, 18, 20)
]
BATCHES = [
    Transform(function, shape)
    for function in ("fft", "rfft", "irfft")
    for shape in ((1024, 256), (256, 1000), (1024, 1024), (16, 1 << 16), (1024, 360), (64, 1009))
]
TRANSFORMS: list[Case] = [
    *LENGTHS,
    *BATCHES,
    Transform("fft", (1009,)),
    Transform("fft2", (512, 512)),
    Transform("fft", (1024, 256), axis=0),
    Transform("fft", (1024, 256), "float64"),
    Transform("fft", (1 << 20,), "float64"),
    Convolution((256, 256), (31, 31)),
    Convolution((512, 512), (63, 63)),
    Convolution((1024, 1024), (127, 127)),
    Convolution((512, 512), (63, 63), "float64"),
]


if __name__ == "__main__":
    main("transform", __doc__ or "", ["scipy", "torch"], TRANSFORMS)
