"""Fourier transforms as in `numpy.fft`, and cosine and sine transforms as in `scipy.fft`."""

from weft.fft.cosines import *
from weft.fft.fourier import *
from weft.support import exports

exports.declare(globals())
