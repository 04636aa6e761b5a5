"""Spectra of moving windows, their inverse, and convolutions, as in `scipy.signal`."""

from weft.signal import convolutions, spectra, windows
from weft.signal.convolutions import *
from weft.signal.spectra import *
from weft.signal.windows import *

__all__: list[str] = []
__all__ += convolutions.__all__
__all__ += spectra.__all__
__all__ += windows.__all__
