"""Fourier transforms as in `numpy.fft`, and cosine and sine transforms as in `scipy.fft`."""

from weft.fft import cosines, fourier
from weft.fft.cosines import *
from weft.fft.fourier import *

__all__: list[str] = []
__all__ += cosines.__all__
__all__ += fourier.__all__
