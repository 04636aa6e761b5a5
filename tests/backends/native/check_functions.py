"""Compares vector functions of native programs with double precision, over all float32 numbers.

    python tests/backends/native/check_functions.py [exp log ...]

Prints the largest error of each in units in the last place of the true value, and where it is.
Takes one or two minutes for each function on two processors. Functions of two operands are
compared on random pairs and on all pairs of some special values.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np

from weft_c.source.helpers import HELPERS
from weft_native import compiler
from weft_native.dialect import host_dialect
from weft_native.shared_library import load

UNARY = (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cbrt",
)  # fmt: skip
BINARY = ("pow",)

SPECIAL = tuple(
    float(np.float32(sign * size))
    for size in (
        0, 1e-45, 1e-38, 1e-20, 0.25, 1 / 3, 0.5, 1 - 2**-24, 1, 1 + 2**-23, 1.5, 2, 2.5, 3, 4, 5,
        127, 128, 149, 150, 151, 2**23 - 0.5, 2**23 + 1, 2**24 - 1, 2**24, 2**24 + 2, 2**31, 2**32,
        1e20, 3.4e38, np.inf, np.nan,
    )
    for sign in (1, -1)
)  # fmt: skip
"""Operands of functions of two; special cases of C99's pow are among their pairs."""

BLOCK = 2**16
"""The consecutive numbers that a call compares."""

CHECK = """
static double error_in_ulp(f32 found, double exact) {
    f32 expected = (f32)exact;
    if (exact != exact || found != found)
        return (exact != exact) == (found != found) ? 0 : INFINITY;
    if (isinf(expected) || isinf(found))
        return expected == found ? 0 : (fabs)(exact) > 3.4e38 ? 1 : INFINITY;
    if (found == 0 && expected == 0) return !signbit(found) == !signbit(expected) ? 0 : INFINITY;
    /* The unit is 2^-23 of the power of two below the exact value, at least 2^-149. */
    i64 exponent = (i64)(bits_of_f64(exact) >> 52 & 2047) - 23;
    double unit = f64_of_bits((u64)(exponent > 1023 - 149 ? exponent : 1023 - 149) << 52);
    return (fabs)((double)found - exact) / unit;
}
__attribute__((visibility("default"))) double check(u64 first, u64 last, u32 *worst) {
    double most = 0;
    for (u64 bits = first; bits < last; bits += LANES) {
        VF v;
        for (int i = 0; i < LANES; i++) v[i] = f32_of_bits((u32)(bits + i));
        VF found = UNARY;
        for (int i = 0; i < LANES; i++) {
            double error = error_in_ulp(found[i], (UNARY_NAME)((double)v[i]));
            if (error > most) most = error, *worst = (u32)(bits + i);
        }
    }
    return most;
}
__attribute__((visibility("default"))) double check_pairs(
        const f32 *x, const f32 *y, i64 count, i64 *worst) {
    double most = 0;
    for (i64 at = 0; at + LANES <= count; at += LANES) {
        VF v, w;
        memcpy(&v, x + at, sizeof v);
        memcpy(&w, y + at, sizeof w);
        VF found = BINARY(v, w);
        for (int i = 0; i < LANES; i++) {
            double error = error_in_ulp(found[i], (BINARY)((double)v[i], (double)w[i]));
            if (error > most) most = error, *worst = at + i;
        }
    }
    return most;
}
"""


def library_of(unary: str, binary: str = "pow") -> ctypes.CDLL:
    """Compile the comparison of a function of one operand and one of two."""
    lanes = compiler.vectors().lanes
    helper = HELPERS[f"weft_tanh_f32x{lanes}"].text if unary == "tanh" else ""
    called = f"weft_tanh_f32x{lanes}(v)" if unary == "tanh" else f"{unary}(v)"
    check = CHECK.replace("UNARY_NAME", unary).replace("UNARY", called).replace("BINARY", binary)
    text = host_dialect(lanes).prelude + helper + check
    library = load(text, f"the check of {unary}", ["check", "check_pairs"])
    library.check.restype = library.check_pairs.restype = ctypes.c_double
    return library


def largest_error(name: str, step: int = 1) -> tuple[float, float]:
    """Return the largest error of a function of one operand in ulp, and its operand.

    With a step, only one in so many blocks of consecutive numbers is compared.
    """
    library = library_of(name)

    def check(block: int) -> tuple[float, int]:
        worst = ctypes.c_uint32()
        first, last = ctypes.c_uint64(block * BLOCK), ctypes.c_uint64((block + 1) * BLOCK)
        return library.check(first, last, ctypes.byref(worst)), worst.value

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        error, at = max(pool.map(check, range(0, 2**32 // BLOCK, step)))
    return error, ctypes.c_float.from_buffer(ctypes.c_uint32(at)).value


def pairs(rounds: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield operands: all pairs of special values, any bits, and powers within the range."""
    special = np.array(list(product(SPECIAL, SPECIAL)), np.float32)
    yield special[:, 0].copy(), special[:, 1].copy()
    generator = np.random.default_rng(0)
    for _ in range(rounds):
        x, y = generator.integers(0, 2**32, (2, BLOCK), np.uint32).view(np.float32)
        yield x, y
        with np.errstate(all="ignore"):
            exponents = generator.uniform(-151, 129, BLOCK) / np.log2(np.abs(x), dtype=np.float64)
            near = (1 + generator.uniform(-1, 1, BLOCK) ** 5 / 2).astype(np.float32)
            others = generator.uniform(-151, 129, BLOCK) / np.log2(near, dtype=np.float64)
            yield x, exponents.astype(np.float32)
            yield x, np.rint(exponents).astype(np.float32)
            yield near, others.astype(np.float32)


def largest_error_of_pairs(name: str, rounds: int = 2000) -> tuple[float, tuple[float, float]]:
    """Return the largest error of a function of two operands in ulp, and the operands."""
    library = library_of("exp", name)

    def check(pair: tuple[np.ndarray, np.ndarray]) -> tuple[float, tuple[float, float]]:
        x, y = pair
        worst = ctypes.c_int64()
        places = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
        error = library.check_pairs(*places, ctypes.c_int64(len(x)), ctypes.byref(worst))
        return error, (float(x[worst.value]), float(y[worst.value]))

    return max(map(check, pairs(rounds)))


if __name__ == "__main__":
    for function in sys.argv[1:] or (*UNARY, *BINARY):
        measure = largest_error_of_pairs if function in BINARY else largest_error
        error, operand = measure(function)
        print(f"{function}: {error:.2f} ulp at {operand!r}", flush=True)
