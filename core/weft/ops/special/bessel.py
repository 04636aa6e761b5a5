"""Bessel functions of orders 0 and 1, their modified relatives, and Airy functions.

The approximations are polynomials and rational functions that interpolate at Chebyshev points,
computed for this library with 60 digits by mpmath. (L. N. Trefethen, Approximation Theory and
Approximation Practice, SIAM 2019.) In exact arithmetic their errors are below 2^-57 for float64 and
2^-28 for float32.
"""

from __future__ import annotations

import math

from weft.ir import dtypes
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.comparison import equal, less, minimum, where
from weft.ops.pointwise.elementwise import absolute, sign, square
from weft.ops.pointwise.math import cos, exp, log, sin, sqrt
from weft.ops.pointwise.polynomials import Approximation
from weft.ops.special.base import SpecialOp
from weft.support.backports import override

_OVERFLOW = 1e4
"""I0 and I1 are infinite above this, also in float64."""
_SPLIT = 8.0
"""J and Y are polynomials in x² below this, and a modulus and a phase above."""

# J0, J1 / x, Y0 - 2 / π log(x) J0 and (Y1 - 2 / π (log(x) J1 - 1 / x)) / x, as functions of
# x² / 32 - 1 between -1 and 1.
_J0 = Approximation(
    double=(
        (
            4.00304376406281141e-13, -1.24330113054980578e-11, 3.36345045686666915e-10,
            -7.91532308447919258e-9, 1.5956109057781305e-7, -2.71774922362980734e-6,
            3.84731978563400875e-5, -4.43545922431152036e-4, 4.05807898914080538e-3,
            -0.0284727186108820449, 0.145988848567592685, -0.507468045847100038,
            1.03837946114372106, -0.808088807669687211, -0.648469283087183639,
            0.930301247295857124, 0.0458296648598137695,
        ),
    ),
    single=(
        (
            3.891361227e-5, -4.510579108e-4, 4.057638053e-3, -0.02846519434, 0.1459890416,
            -0.5074713402, 1.038379427, -0.8080882192, -0.6484692814, 0.9303012179, 0.04582966486,
        ),
    ),
)  # fmt: skip
_J1 = Approximation(
    double=(
        (
            -4.00376328157967517e-13, 1.16589718840365157e-11, -2.94301683382949199e-10,
            6.43119017895857042e-9, -1.19670818223410486e-7, 1.86845260371827373e-6,
            -2.40457486600347879e-5, 2.49494581359727664e-4, -2.02903949457045749e-3,
            0.0124568143922633749, -0.0547458182128472489, 0.15858376432721839,
            -0.259594865285930266, 0.151516651438066373, 0.0810586603858979548,
            -0.0581438279559910704,
        ),
    ),
    single=(
        (
            1.886194486e-6, -2.437626249e-5, 2.494768214e-4, -2.028708524e-3, 0.01245682217,
            -0.0547459631, 0.1585837629, -0.2595948394, 0.1515166515, 0.08105865909,
            -0.05814382796,
        ),
    ),
)  # fmt: skip
_Y0 = Approximation(
    double=(
        (
            -8.83846839430902207e-13, 2.69269371099878026e-11, -7.13046804012611255e-10,
            1.63908750176193935e-8, -3.21850783390970198e-7, 5.32131881039440119e-6,
            -7.2795418825445164e-5, 8.06158605961640037e-4, -7.02574105727054622e-3,
            0.0463670476813751246, -0.218957470961716394, 0.672177078343167876,
            -1.0775477338215995, 0.144126323693024739, 1.64709647887454667, -0.82843589036045878,
            -0.382250654459425016,
        ),
    ),
    single=(
        (
            5.370642899e-6, -7.376498958e-5, 8.061030612e-4, -7.024648827e-3, 0.0463670765,
            -0.2189580377, 0.6721770716, -1.077547601, 0.1441263243, 1.647096467, -0.8284358904,
            -0.3822506543,
        ),
    ),
)  # fmt: skip
_Y1 = Approximation(
    double=(
        (
            8.75816637873406263e-13, -2.49953143482249639e-11, 6.16969490937600213e-10,
            -1.31531473709921278e-8, 2.38049303173106034e-7, -3.60100002258509934e-6,
            4.46743301272520005e-5, -4.43817343442018341e-4, 3.42249073991852719e-3,
            -0.0196287568331171095, 0.0785478692224253827, -0.196398398599302039,
            0.235072092066697539, 0.0233675717209934793, -0.243377430791931138,
            0.0707598588211800541,
        ),
    ),
    single=(
        (
            -3.637291468e-6, 4.53319409e-5, -4.437810133e-4, 3.421832172e-3, -0.01962877274,
            0.07854815754, -0.1963983958, 0.2350720406, 0.02336757158, -0.2433774282,
            0.07075985882,
        ),
    ),
)  # fmt: skip

# J + iY = sqrt(2 / (πx)) exp(i (x - π / 4 - order π / 2)) (P + 8 i Q / x), where P and Q are
# functions of 64 / x² between 0 and 1 (H. Hankel; Abramowitz and Stegun, 9.2.5).
_P0 = Approximation(
    double=(
        (
            3.40388028796135935e-5, 6.00895789185254604e-3, 0.139555134619874999,
            0.873315760693867921, 1.75822377633875798, 0.999999999999999997,
        ),
        (
            3.83181673895727158e-5, 6.14279945715316464e-3, 0.14047069349718119,
            0.875221229136666499, 1.75932240915125722, 1.0,
        ),
    ),
    single=((0.07066516249, 0.9999999991), (5.161167617e-5, 0.07176376677, 1.0)),
)  # fmt: skip
_Q0 = Approximation(
    double=(
        (
            -5.79198176798835197e-7, -1.03201771778274036e-4, -2.4362514095463895e-3,
            -0.01728215539243069, -0.0460465819319583251, -0.047527717561781454, -0.015625,
        ),
        (
            7.02037430560765658e-5, 7.73992776379035905e-3, 0.165113614639668429,
            1.13198945357019375, 2.9744697643701112, 3.05092919739151231, 1.0,
        ),
    ),
    single=(
        (-6.185415162e-5, -3.493864601e-3, -0.01562499999),
        (5.646461334e-3, 0.2327625657, 1.0),
    ),
)  # fmt: skip
_P1 = Approximation(
    double=(
        (
            3.12677717508685805e-5, 5.34831944476168181e-3, 0.129433010377548511,
            0.837074860449731226, 1.72655217718758413, 1.0,
        ),
        (
            2.48042687942567854e-5, 5.13932736606940951e-3, 0.12796413472388081,
            0.833952005747031662, 1.72472112250008498, 1.0,
        ),
    ),
    single=((0.06145355068, 1.000000001), (-7.415887458e-5, 0.05962253228, 1.0)),
)  # fmt: skip
_Q1 = Approximation(
    double=(
        (
            4.11818724559462679e-5, 2.06050462248985029e-3, 0.0231556679030940216,
            0.086098185760996346, 0.115292524832573539, 0.0468749999999999997,
        ),
        (
            1.14452152861534469e-6, 1.01194194673552362e-3, 0.0458117119413824228,
            0.501454303729106755, 1.84710726957774029, 2.46384632403240022, 1.0,
        ),
    ),
    single=((1.830805552e-4, 0.01011193782, 0.04687499998), (4.665059902e-3, 0.2199937847, 1.0)),
)  # fmt: skip

# I0 and I1 / x as functions of x², up to 15 in float64 and sqrt(60) in float32; above, their
# products with sqrt(x) exp(-x) as functions of 1 / x.
_I0 = Approximation(
    double=(
        (
            1.50454015497165975e-55, -6.49023484694734378e-53, 2.77994878213702629e-49,
            1.77491067386203919e-46, 3.82298181304232849e-43, 4.51831872430204803e-40,
            5.33808854847867382e-37, 5.4426719922583432e-34, 4.90220059758843163e-31,
            3.84283938584187186e-28, 2.59780890690999958e-25, 1.49633392699835911e-22,
            7.24225876619178807e-20, 2.89690337837367138e-17, 9.38596699542023021e-15,
            2.40280754938085328e-12, 4.70950279709778955e-10, 6.78168402777336605e-8,
            6.78168402777821381e-6, 4.34027777777775133e-4, 0.0156250000000000085,
            0.249999999999999989, 1.0,
        ),
    ),
    single=(
        (
            2.773725702e-22, 5.034609363e-20, 3.105874077e-17, 9.262842699e-15, 2.407554448e-12,
            4.7082886e-10, 6.781887751e-8, 6.781662413e-6, 4.340279128e-4, 0.01562499956,
            0.2500000005, 0.9999999999,
        ),
    ),
)  # fmt: skip
_I1 = Approximation(
    double=(
        (
            6.62388764956560106e-54, -2.72527594051377271e-51, 1.1107765458961272e-47,
            6.76087754608167954e-45, 1.37511757862254228e-41, 1.53676820031769856e-38,
            1.70800846690951443e-35, 1.63284627773368527e-32, 1.37260768363304215e-29,
            9.99139489009347819e-27, 6.23473994245425836e-24, 3.29193476802731424e-21,
            1.4484517442669375e-18, 5.21442608589249583e-16, 1.50175471907078153e-13,
            3.36393056919260003e-11, 5.65140335650444077e-9, 6.78168402777528988e-7,
            5.42534722222238742e-5, 2.60416666666666085e-3, 0.0625000000000000081,
            0.499999999999999998,
        ),
    ),
    single=(
        (
            6.105431663e-21, 1.008435498e-18, 5.585119421e-16, 1.482723827e-13, 3.370147728e-11,
            5.6501062e-9, 6.781852139e-7, 5.425334545e-5, 2.604167156e-3, 0.06249999926,
            0.5000000002,
        ),
    ),
)  # fmt: skip
_I0_FAR = Approximation(
    double=(
        (
            -1.04069732830293849e+5, 6.48435060171607763e+5, -1.96548547597798609e+5,
            2.86228643599977565e+4, -2380.73242091189292, 144.697914705322073,
            -2.67931197982553546, 0.822058949756979946, 0.226028494571918634,
            0.0906312008201672735, 0.0447419991318814652, 0.0292194062750176343,
            0.0280506290884597989, 0.0498677850501811422, 0.398942280401432678,
        ),
    ),
    single=(
        (
            1.934545745, -0.3419324429, 0.08965458267, 0.0269981203, 0.02810091908, 0.04986736885,
            0.398942281,
        ),
    ),
)  # fmt: skip
_I1_FAR = Approximation(
    double=(
        (
            -1.81687578678124188e+5, -5.60394182458343469e+5, 1.83752995155443979e+5,
            -2.75731467614063673e+4, 2317.66463982997585, -143.696996048186169,
            2.30284482729823897, -0.92721420144984095, -0.267564173294571501,
            -0.110765142493302357, -0.0575254890588577078, -0.0409071683966577423,
            -0.0467510484822742811, -0.149603355150539315, 0.398942280401432678,
        ),
    ),
    single=(
        (
            -2.184330495, 0.3738862487, -0.1078448059, -0.03841781943, -0.04680742231,
            -0.1496028885, 0.3989422798,
        ),
    ),
)  # fmt: skip

# K0 + log(x) I0, (K1 - log(x) I1 - 1 / x) / x, I0 and I1 / x as functions of x² up to 1; above, the
# products of K0 and K1 with sqrt(x) exp(x) as functions of 1 / x.
_K0 = Approximation(
    double=(
        (
            6.61590355164431377e-12, 1.20825152076242463e-9, 1.62710709002642651e-7,
            1.49147192298592129e-5, 8.46035090725896084e-4, 0.0252489299321604848,
            0.278982878914603217, 0.115931515658412448,
        ),
    ),
    single=((1.53264407e-5, 8.456734509e-4, 0.02524905931, 0.2789828627, 0.115931516),),
)  # fmt: skip
_K1 = Approximation(
    double=(
        (
            -4.22247479945370316e-13, -8.87090797558401885e-11, -1.4030172071522579e-8,
            -1.55928876627743486e-6, -1.12536070367305468e-4, -4.64218276647143519e-3,
            -0.085370719728650784, -0.307965757829206224,
        ),
    ),
    single=((-1.594726886e-6, -1.125049606e-4, -4.642193893e-3, -0.08537071834, -0.3079657579),),
)  # fmt: skip
_I0_NEAR = Approximation(
    double=(
        (
            2.44062789485416764e-12, 4.70888673979970547e-10, 6.7816892466325077e-8,
            6.7816840032982539e-6, 4.34027777784011416e-4, 0.0156249999999992206,
            0.250000000000000037, 1.0,
        ),
    ),
    single=((6.953152567e-6, 4.338772039e-4, 0.01562505386, 0.2499999933, 1.0),),
)  # fmt: skip
_I1_NEAR = Approximation(
    double=(
        (
            1.52275060360481901e-13, 3.36358864833274915e-11, 5.65140625268816768e-9,
            6.78168401419374435e-7, 5.42534722225681218e-5, 2.60416666666662342e-3,
            0.0625000000000000021, 0.5,
        ),
    ),
    single=((6.924343956e-7, 5.424095103e-5, 2.604171145e-3, 0.06249999944, 0.5),),
)  # fmt: skip
_K0_FAR = Approximation(
    double=(
        (
            0.265402284495272402, 12.4827860649614909, 154.814887828716899, 783.796656058441828,
            1947.62185088727954, 2610.09984024772627, 1977.18188528412974, 857.128888721699796,
            207.44891838393374, 25.7012599730363717, 1.25331413731550025,
        ),
        (
            1.86968427549350526e-3, 0.518713023698148715, 16.319212265682086, 167.043795396727835,
            757.019597092979661, 1755.67426861560027, 2250.19827562502765, 1655.08683309869637,
            703.516103463943963, 168.028931449503605, 20.6316385256663837, 1.0,
        ),
    ),
    single=(
        (0.04862650908, 1.372890298, 5.118126522, 4.966058199, 1.253314135),
        (0.09021353803, 1.446627848, 4.524290733, 4.087340809, 1.0),
    ),
)  # fmt: skip
_K1_FAR = Approximation(
    double=(
        (
            6.78722270983618591e-3, 1.13959082107634353, 28.3106009226622972, 248.217941669282431,
            1016.12797081679539, 2214.26748562454874, 2744.91117279477655, 1992.92221698814095,
            847.593045279836399, 204.278311752641464, 25.435039610543469, 1.25331413731550026,
        ),
        (
            0.126222369859609437, 6.53282222394314151, 87.0922425464475014, 469.030920651660772,
            1231.4035519613916, 1734.21670203720966, 1373.90655252546316, 620.148903953069261,
            155.637989026057669, 19.919225408661966, 1.0,
        ),
    ),
    single=(
        (0.19637472, 2.194103072, 5.83161115, 5.046507867, 1.253314142),
        (0.02233000527, 0.8009825847, 3.400797103, 3.651531298, 1.0),
    ),
)  # fmt: skip


def _near(size: TensorOp) -> TensorOp:
    """Return the variable of the polynomials below the split."""
    return square(size) * (2 / _SPLIT**2) - 1


def _waves(size: TensorOp, order: int) -> tuple[TensorOp, TensorOp]:
    """Return J and Y above the split; both are 0 at infinity.

    The error is a few units of the amplitude, also near zeros.
    """
    modulus, phase = (_P0, _Q0) if order == 0 else (_P1, _Q1)
    is_infinite = equal(size, math.inf)
    size = where(is_infinite, _SPLIT, size)
    z = _SPLIT / size
    p, q = modulus(square(z)), phase(square(z)) * z
    sine, cosine = sin(size), cos(size)
    # Cosine and sine of x - π / 4 - order π / 2, times sqrt(2).
    high, low = (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -sine - cosine)
    amplitude = where(is_infinite, 0, 1 / (sqrt(size) * math.sqrt(math.pi)))
    return (p * high - q * low) * amplitude, (p * low + q * high) * amplitude


def _divided(value: TensorOp, x: TensorOp, limit: float) -> TensorOp:
    """Return the quotient of an odd function and x, with its limit at 0."""
    is_zero = equal(x, 0)
    return where(is_zero, limit, value / where(is_zero, 1, x))


def _odd(size: TensorOp, x: TensorOp) -> TensorOp:
    """Return values for the absolute value of x with the sign of x."""
    return where(less(x, 0), -size, size)


class BesselOp(SpecialOp):
    """The base of Bessel functions.

    Attributes
    ----------
    nu
        Their order, 0 or 1.
    """

    nu: int


class FirstKindOp(BesselOp):
    """The Bessel function J of the first kind."""

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        size = absolute(x)
        far, _ = _waves(size, self.nu)
        place = _near(size)
        near = _J0(place) if self.nu == 0 else x * _J1(place)
        return where(less(size, _SPLIT), near, far if self.nu == 0 else _odd(far, x))

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return -J1, and J0 - J1 / x (Abramowitz and Stegun, 9.1.27)."""
        other = FirstKindOp(x, nu=1 - self.nu)
        return (-other if self.nu == 0 else other - _divided(self, x, 0.5),)


class SecondKindOp(BesselOp):
    """The Bessel function Y of the second kind; minus infinity at 0, and NaN below."""

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        _, far = _waves(x, self.nu)
        place, is_pole = _near(x), equal(x, 0)
        # The product of x and its logarithm would be NaN at 0.
        logarithm = log(where(is_pole, 1, x)) * (2 / math.pi)
        if self.nu == 0:
            near = logarithm * _J0(place) + _Y0(place)
        else:
            near = x * (logarithm * _J1(place) + _Y1(place)) - (2 / math.pi) / x
        near = where(is_pole, -math.inf, near)
        return where(less(x, _SPLIT), near, far)

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return -Y1, and Y0 - Y1 / x."""
        other = SecondKindOp(x, nu=1 - self.nu)
        return (-other if self.nu == 0 else other - self / x,)


class ModifiedOp(BesselOp):
    """The base of modified Bessel functions.

    Attributes
    ----------
    scaled
        Whether they are multiplied by the exponential that cancels their own.
    """

    scaled: bool

    def like(self, x: TensorOp) -> TensorOp:
        """Return the function of the other order."""
        return type(self)(x, nu=1 - self.nu, scaled=self.scaled)


class ModifiedFirstKindOp(ModifiedOp):
    """The modified Bessel function I of the first kind; scaled by exp(-abs(x))."""

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        near, far = (_I0, _I0_FAR) if self.nu == 0 else (_I1, _I1_FAR)
        split = 15.0 if x.dtype == dtypes.float64 else 60**0.5
        size = absolute(x)
        is_near = less(size, split)
        below = near(square(where(is_near, size, 0)))
        if self.nu == 1:
            below = below * x
        large = where(is_near, split, size)
        if self.scaled:
            below = below * exp(-size)
            above = far(1 / large) / sqrt(large)
        else:
            # exp(x) overflows where the result does not. Results are infinite from the limit on.
            large = minimum(large, _OVERFLOW)
            half = exp(large * 0.5)
            above = far(1 / large) / sqrt(large) * half * half
        return where(is_near, below, above if self.nu == 0 else _odd(above, x))

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return I1, and I0 - I1 / x; less the function itself times the sign, if scaled."""
        other = self.like(x)
        slope = other if self.nu == 0 else other - _divided(self, x, 0.5)
        return (slope - self * sign(x) if self.scaled else slope,)


class ModifiedSecondKindOp(ModifiedOp):
    """The modified Bessel function K of the second kind, scaled by exp(x); NaN below 0."""

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        far = _K0_FAR if self.nu == 0 else _K1_FAR
        is_near, is_pole = less(x, 1), equal(x, 0)
        t = square(where(is_near, x, 0))
        logarithm = log(where(is_pole, 1, x))
        if self.nu == 0:
            below = _K0(t) - logarithm * _I0_NEAR(t)
        else:
            below = x * (_K1(t) + logarithm * _I1_NEAR(t)) + 1 / x
        below = where(is_pole, math.inf, below)
        large = where(is_near, 1, x)
        above = far(1 / large) / sqrt(large)
        if self.scaled:
            return where(is_near, below * exp(where(is_near, x, 0)), above)
        return where(is_near, below, above * exp(-large))

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return -K1, and -K0 - K1 / x; plus the function itself, if scaled."""
        other = self.like(x)
        slope = -other if self.nu == 0 else -other - self / x
        return (slope + self if self.scaled else slope,)
