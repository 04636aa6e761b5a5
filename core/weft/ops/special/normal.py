"""The scaled complement of the error function, and the normal distribution.

The approximations are made as those of `weft.ops.special.bessel`.
"""

from __future__ import annotations

import math

from weft.ir.tensor import TensorOp
from weft.ops.pointwise.comparison import equal, less, minimum, where
from weft.ops.pointwise.elementwise import absolute, square
from weft.ops.pointwise.math import exp, log, log1p, sqrt
from weft.ops.pointwise.polynomials import Approximation
from weft.ops.pointwise.rounding import FloorOp
from weft.ops.special.base import SpecialOp
from weft.support.backports import override

# erfc(x) exp(x²) / u for x from 0 on, as a function of u = 2 / (x + 2) between 0 and 1.
_ERFCX = Approximation(
    double=(
        (
            0.491018667511421178, 1.63803414473326029, 3.39600026773031187, 5.3602935972701698,
            6.73551214919320156, 7.41914538810387944, 6.27242995153930835, 5.33827612340658609,
            2.754165831011089, 1.94589427822187374, 0.44369851818391315, 0.282094791773878142,
        ),
        (
            4.72151272114388481e-3, 0.0479074808653317234, 0.302906729896549097,
            0.861930985676120576, 2.76471728368936049, 3.69486408699187414, 8.3037444544724272,
            5.5728555009633712, 10.3130432202818171, 3.18685683934092723, 5.45014531938768044,
            0.572870294392289573, 1.0,
        ),
    ),
    single=(
        (0.02877246077, 0.1404482588, -0.08715369428, 0.4663672556, -0.2280355454, 0.2820947915),
        (0.03688288951, -0.2823689084, 1.008189047, -1.938450674, 2.586606402, -1.80836523, 1.0),
    ),
)  # fmt: skip

# The inverse of the distribution: divided by p - 1/2, as a function of 0.425² less its square; and
# as functions of r - 1.5 for r = sqrt(-log(p)) up to 5, and of r - 5 up to r = 27.4 in
# float64, 10.3 in float32.
_NDTRI = Approximation(
    double=(
        (
            9337.31868254126978, 2.22542298889235691e+5, 8.23211500234892031e+5,
            1.07069609091988058e+6, 6.4254915924901663e+5, 2.0185353648477246e+5,
            3.50975936235428219e+4, 3383.9305070235129, 168.769585905942779, 3.38713287279636686,
        ),
        (
            2.4659993400567432e+4, 2.3739753921448092e+5, 5.86386257252097283e+5,
            5.92776823387446518e+5, 2.97827202547982775e+5, 8.18575377525993919e+4,
            1.28182447155786266e+4, 1135.77012225159123, 52.8319372494289961, 1.0,
        ),
    ),
    single=(
        (642.581218, 1255.02595, 551.6612988, 78.51790562, 3.387132871),
        (58.52150536, 578.2984202, 660.8711468, 219.5089372, 26.18648656, 1.0),
    ),
)  # fmt: skip
_NDTRI_TAIL = Approximation(
    double=(
        (
            1.81634525062977304e-4, 6.01192744204176215e-3, 0.0758209153703778112,
            0.50158841641920163, 1.95596878305161261, 4.61526853359899407, 6.34787780741727179,
            4.54726481488311642, 1.25137292905703355,
        ),
        (
            -3.74554569257994065e-12, 3.57294010664300575e-10, 1.28413206779849153e-4,
            4.05991748890350959e-3, 0.0478720002019581236, 0.290852970984894163,
            1.01878420212799598, 2.07055011306198219, 2.24802199485826693, 1.0,
        ),
    ),
    single=(
        (0.05154577599, 0.6253733966, 2.329800745, 3.16660347, 1.251372941),
        (5.989058811e-7, 0.03641957399, 0.3885893837, 1.144704917, 1.0),
    ),
)  # fmt: skip
_NDTRI_FAR = Approximation(
    double=(
        (
            1.43319206016991847e-11, 4.36747739678396025e-9, 4.62739538556803311e-7,
            2.36420822871954398e-5, 6.70928608166869294e-4, 0.0113973593693918758,
            0.120268113033697382, 0.793401193790461801, 3.17797001382983107, 7.05838539064112367,
            6.65790464350110362,
        ),
        (
            1.45040352169736339e-20, 1.01341845842666341e-11, 3.03761293760021297e-9,
            3.12057424099048869e-7, 1.51666623042957689e-5, 3.99402030904869296e-4,
            6.09543339752652526e-3, 0.0552854816759872985, 0.293290364661952657,
            0.839337060539268184, 1.0,
        ),
    ),
    single=(
        (0.024840814, 0.513636931, 3.306238714, 6.657904647),
        (1.236083657e-7, 0.01755701226, 0.2757743754, 1.0),
    ),
)  # fmt: skip


def _scaled(size: TensorOp) -> TensorOp:
    """Return erfc(x) exp(x²) for x from 0 on."""
    place = 2 / (size + 2)
    return _ERFCX(place) * place


def _power(x: TensorOp, sign: int) -> TensorOp:
    """Return exp(±x² / 2) with a small relative error."""
    # The square of a multiple of 1/16 is exact, so exp amplifies no rounding error of it.
    size = minimum(absolute(x), 100.0)
    coarse = FloorOp(size * 16) * (1 / 16)
    return exp(square(coarse) * (sign / 2)) * exp((size - coarse) * (size + coarse) * (sign / 2))


class ErfcxOp(SpecialOp):
    """The complement of the error function times exp(x²)."""

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        scaled = _scaled(absolute(x))
        # exp(x²) as the square of exp(x² / 2), whose argument is split.
        return where(less(x, 0), square(_power(x, 1)) * 2 - scaled, scaled)

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return 2 x erfcx(x) - 2 / sqrt π."""
        return ((x * self - 1 / math.sqrt(math.pi)) * 2,)


def _tail(x: TensorOp) -> TensorOp:
    """Return the distribution below -abs(x)."""
    return _power(x, -1) * _scaled(absolute(x) * math.sqrt(0.5)) * 0.5


def _density(x: TensorOp) -> TensorOp:
    return exp(square(x) * -0.5) * (1 / math.sqrt(2 * math.pi))


class NdtrOp(SpecialOp):
    """The distribution function of the standard normal distribution."""

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        tail = _tail(x)
        return where(less(x, 0), tail, 1 - tail)

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return the density."""
        return (_density(x),)


class LogNdtrOp(SpecialOp):
    """The logarithm of the distribution function of the standard normal distribution."""

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        scaled = _scaled(absolute(x) * math.sqrt(0.5))
        far = log(scaled * 0.5) - square(x) * 0.5
        return where(less(x, -1), far, log1p(-where(less(x, 0), 1 - _tail(x), _tail(x))))

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return the density divided by the distribution: sqrt(2 / π) / erfcx(-x / sqrt 2)."""
        return (math.sqrt(2 / math.pi) / ErfcxOp(x * -math.sqrt(0.5)),)


class NdtriOp(SpecialOp):
    """The inverse of `NdtrOp`: infinite at 0 and 1, NaN outside."""

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        center = x - 0.5
        middle = center * _NDTRI(0.425**2 - square(center))
        share = where(less(center, 0), x, 1 - x)
        root = sqrt(-log(where(equal(share, 0), 1, share)))
        size = where(less(root, 5), _NDTRI_TAIL(root - 1.5), _NDTRI_FAR(root - 5))
        size = where(equal(share, 0), math.inf, size)
        tail = where(less(center, 0), -size, size)
        return where(less(absolute(center), 0.425), middle, tail)

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return 1 / density of the result."""
        return (exp(square(self) * 0.5) * math.sqrt(2 * math.pi),)
