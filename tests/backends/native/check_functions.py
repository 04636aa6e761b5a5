"""Compares vector functions of native programs with double precision, over all float32 numbers.

    python tests/backends/native/check_functions.py [exp log ...]

Prints the largest error of each in units in the last place of the true value, and where it is.
Takes about a minute for each function.
"""

from __future__ import annotations

import ctypes
import sys

from weft_c.source.helpers import HELPERS
from weft_native import compiler
from weft_native.dialect import host_dialect

FUNCTIONS = {
    **{name: f"{name}(v)" for name in ("exp", "exp2", "expm1", "log", "log1p", "sin", "cos")},
    "tanh": "weft_tanh_WIDE(v)",
}
"""Expressions of a vector."""

CHECK = """
__attribute__((visibility("default"))) double check(u64 first, u64 last, u32 *worst) {
    double most = 0;
    for (u64 bits = first; bits < last; bits += LANES) {
        VF v;
        for (int i = 0; i < LANES; i++) v[i] = f32_of_bits((u32)(bits + i));
        VF found = EXPRESSION;
        for (int i = 0; i < LANES; i++) {
            double exact = (NAME)((double)v[i]);
            float expected = (float)exact;
            double error;
            if (exact != exact || found[i] != found[i])
                error = (exact != exact) == (found[i] != found[i]) ? 0 : INFINITY;
            else if (isinf(expected) || isinf(found[i]))
                error = expected == found[i] ? 0 : fabs(exact) > 3.4e38 ? 1 : INFINITY;
            else {
                int exponent;
                frexp(exact == 0 ? 0x1p-149 : exact, &exponent);
                double unit = ldexp(1, exponent - 24);
                error = fabs((double)found[i] - exact) / (unit < 0x1p-149 ? 0x1p-149 : unit);
            }
            if (error > most) most = error, *worst = (u32)(bits + i);
        }
    }
    return most;
}
"""


def largest_error(name: str, step: int = 1) -> tuple[float, float]:
    """Return the largest error of a function in ulp and its operand.

    With a step, only one in so many blocks of 2**16 consecutive numbers is compared.
    """
    lanes = compiler.vectors().lanes
    dialect = host_dialect(lanes)
    helper = HELPERS[f"weft_tanh_f32x{lanes}"].text if name == "tanh" else ""
    check = CHECK.replace("NAME", name).replace(
        "EXPRESSION", FUNCTIONS[name].replace("WIDE", f"f32x{lanes}")
    )
    library = compiler.load(dialect.prelude + helper + check, f"the check of {name}")
    library.check.restype = ctypes.c_double
    most, at = 0.0, 0
    for block in range(0, 2**16, step):
        worst = ctypes.c_uint32()
        first = ctypes.c_uint64(block << 16)
        error = library.check(first, ctypes.c_uint64((block + 1) << 16), ctypes.byref(worst))
        if error > most:
            most, at = error, worst.value
    return most, ctypes.c_float.from_buffer(ctypes.c_uint32(at)).value


if __name__ == "__main__":
    for function in sys.argv[1:] or FUNCTIONS:
        error, operand = largest_error(function)
        print(f"{function}: {error:.2f} ulp at {operand!r}")
