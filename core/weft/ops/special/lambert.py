"""The real branches of Lambert's W."""

from __future__ import annotations

import math

from weft.ir import dtypes
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.comparison import equal, less, maximum, where
from weft.ops.pointwise.math import exp, log, log1p, sqrt
from weft.ops.pointwise.polynomials import Coefficients, polynomial
from weft.ops.special.base import SpecialOp
from weft.support.backports import override

_BRANCH_POINT = {
    dtypes.float32: (0.3678794503211975, -9.149755619830557e-09),
    dtypes.float64: (0.36787944117144233, -1.2428753672788363e-17),
}
"""1 / e as the sum of two numbers of a dtype: near the branch point the distance is exact."""

# The power series of W in p = ±sqrt(2 (e x + 1)) about the branch point (R. Corless et al., On the
# Lambert W function, Adv. Comput. Math. 5, 1996, equation 4.22), which converges up to sqrt(2).
_SERIES: Coefficients = (
    8.16353198249661217e-6, -1.20403527395599769e-5, 1.77903458050795854e-5,
    -2.63380647472310987e-5, 3.90766848674390516e-5, -5.81136075044138168e-5,
    8.66503580520812717e-5, -1.29574266852748819e-4, 1.94387276054539318e-4,
    -2.92677224729627445e-4, 4.4247306181462091e-4, -6.72061631156136204e-4,
    1.02626332050760715e-3, -1.57693034468678425e-3, 2.44087799114398267e-3,
    -3.81129803489199923e-3, 6.01454325295611786e-3, -9.61689202429943171e-3,
    0.0156356325323339212, -0.0259847148736037625, 0.0445023148148148148,
    -0.0796296296296296296, 0.152777777777777778, -0.333333333333333333, 1.0, -1.0,
)  # fmt: skip
_NEAR = 0.2
"""The largest p for which the series is the result, in as many terms as a dtype needs."""
_FEW = 11
"""The number of terms for float32."""


class LambertwOp(SpecialOp):
    """The solution w of w exp(w) = x on a real branch; NaN below -1 / e.

    Attributes
    ----------
    branch
        0 for the solution from -1 up, -1 for that from -1 down, which needs a negative x.
    """

    branch: int

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        high, low = _BRANCH_POINT[x.dtype]
        p = sqrt(maximum(x + high + low, 0) * (2 * math.e))
        p = p if self.branch == 0 else -p
        terms = _SERIES if x.dtype == dtypes.float64 else _SERIES[-_FEW:]
        near = polynomial(p, terms)
        w = self._guess(x, p)
        is_near = less(p, _NEAR) if self.branch == 0 else less(-_NEAR, p)
        # 0, infinity and what has no solution would give NaN on the way.
        is_regular = less(-high, x) & less(x, math.inf if self.branch == 0 else 0)
        is_regular = is_regular & ~equal(x, 0) & ~is_near
        start = 1.0 if self.branch == 0 else -1.0
        w, place = where(is_regular, w, start), where(is_regular, x, start)
        for _ in range(2 if x.dtype == dtypes.float32 else 3):
            w = self._improved(w, place)
        outside = x if self.branch == 0 else where(equal(x, 0), -math.inf, math.nan)
        result = where(is_near, near, where(is_regular, w, outside))
        return where(less(x, -high), math.nan, result)

    def _guess(self, x: TensorOp, p: TensorOp) -> TensorOp:
        """Return w with a relative error of a few percent."""
        near = polynomial(p, _SERIES[-6:])
        if self.branch == 0:
            # S. Winitzki, Uniform approximations for transcendental functions, ICCSA 2003.
            size = log1p(x)
            return where(less(x, -0.2), near, size * (1 - log1p(size) / (size + 2)))
        size = log(-x)
        return where(less(x, -0.2), near, size - log(-size) + log(-size) / size)

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return exp(-w) / (1 + w)."""
        return (exp(-self) / (self + 1),)

    def _improved(self, w: TensorOp, x: TensorOp) -> TensorOp:
        """Return w with an error of its fourth power (F. Fritsch et al., Comm. ACM 16, 1973)."""
        # The quotient is exact for small x, and the difference where the quotient is subnormal.
        ratio = log(x / w) if self.branch == 0 else log(-x) - log(-w)
        z = ratio - w
        q = (w + 1) * 2 * (w + 1 + z * (2 / 3))
        return w * (z / (w + 1) * ((q - z) / (q - z * 2)) + 1)
