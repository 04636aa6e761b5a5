"""Spectra of moving windows, their inverse, and convolutions, as in `scipy.signal`."""

from weft.signal.convolutions import *
from weft.signal.spectra import *
from weft.signal.windows import *
from weft.support import exports

exports.declare(globals())
