"""The programs of `simulations` as loops for numba, as one writes them by hand who knows it well.

Each function takes the module numba and returns a function of the operands, after the number of
steps if there are any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Kernel = Callable[..., Any]


def wave(numba: Any) -> Kernel:
    """The wave equation."""

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def advance(before: Any, now: Any, after: Any) -> None:
        n, m = now.shape
        for i in numba.prange(n):
            for j in range(m):
                total = np.float32(0)
                if i > 0:
                    total += now[i - 1, j]
                if i < n - 1:
                    total += now[i + 1, j]
                if j > 0:
                    total += now[i, j - 1]
                if j < m - 1:
                    total += now[i, j + 1]
                lap = total - np.float32(4) * now[i, j]
                after[i, j] = np.float32(2) * now[i, j] - before[i, j] + np.float32(0.1) * lap

    def run(steps: int, before: Any, now: Any) -> Any:
        before, now, after = before.copy(), now.copy(), np.empty_like(now)
        for _ in range(steps):
            advance(before, now, after)
            before, now, after = now, after, before
        return before, now

    return run


def heat(numba: Any) -> Kernel:
    """The heat equation."""

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def advance(now: Any, after: Any) -> None:
        n, m, q = now.shape
        for i in numba.prange(n):
            for j in range(m):
                for k in range(q):
                    total = np.float32(0)
                    if i > 0:
                        total += now[i - 1, j, k]
                    if i < n - 1:
                        total += now[i + 1, j, k]
                    if j > 0:
                        total += now[i, j - 1, k]
                    if j < m - 1:
                        total += now[i, j + 1, k]
                    if k > 0:
                        total += now[i, j, k - 1]
                    if k < q - 1:
                        total += now[i, j, k + 1]
                    lap = total - np.float32(6) * now[i, j, k]
                    after[i, j, k] = now[i, j, k] + np.float32(0.1) * lap

    def run(steps: int, now: Any) -> Any:
        now, after = now.copy(), np.empty_like(now)
        for _ in range(steps):
            advance(now, after)
            now, after = after, now
        return (now,)

    return run


def life(numba: Any) -> Kernel:
    """The Game of Life."""

    @numba.njit(parallel=True)  # type: ignore[untyped-decorator]
    def advance(now: Any, after: Any) -> None:
        n, m = now.shape
        for i in numba.prange(n):
            above, below = (i - 1) % n, (i + 1) % n
            for j in range(m):
                left, right = j - 1 if j > 0 else m - 1, j + 1 if j < m - 1 else 0
                count = (
                    now[above, left] + now[above, j] + now[above, right]
                    + now[i, left] + now[i, right]
                    + now[below, left] + now[below, j] + now[below, right]
                )  # fmt: skip
                after[i, j] = 1 if count == 3 else (now[i, j] if count == 2 else 0)

    def run(steps: int, now: Any) -> Any:
        now, after = now.copy(), np.empty_like(now)
        for _ in range(steps):
            advance(now, after)
            now, after = after, now
        return (now,)

    return run


def jacobi(numba: Any) -> Kernel:
    """Poisson's equation until nothing moves."""

    @numba.njit(fastmath=True)  # type: ignore[untyped-decorator]
    def run(before: Any, now: Any, source: Any) -> Any:
        before, now = before.copy(), now.copy()
        n, m = now.shape
        moved = np.float32(1)
        while moved > np.float32(1e-3):
            moved = np.float32(0)
            for i in range(n):
                for j in range(m):
                    total = source[i, j]
                    if i > 0:
                        total += now[i - 1, j]
                    if i < n - 1:
                        total += now[i + 1, j]
                    if j > 0:
                        total += now[i, j - 1]
                    if j < m - 1:
                        total += now[i, j + 1]
                    before[i, j] = np.float32(0.25) * total
                    moved = max(moved, abs(before[i, j] - now[i, j]))
            before, now = now, before
        return before, now, source

    return run  # type: ignore[no-any-return]


def black_scholes(numba: Any) -> Kernel:
    """Prices of calls."""
    f = np.float32

    @numba.njit(fastmath=True)  # type: ignore[untyped-decorator]
    def normal(x: Any) -> Any:
        t = f(1) / (f(1) + f(0.2316419) * abs(x))
        tail = t * (f(-1.821255978) + t * f(1.330274429))
        tail = t * (f(-0.356563782) + t * (f(1.781477937) + tail))
        tail = t * (f(0.319381530) + tail)
        tail *= np.exp(f(-0.5) * x * x) * f(0.3989422804)
        return f(1) - tail if x > 0 else tail

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def run(spot: Any, strike: Any, years: Any) -> Any:
        out = np.empty_like(spot)
        for i in numba.prange(spot.size):
            deviation = f(0.3) * np.sqrt(years[i])
            one = (np.log(spot[i] / strike[i]) + f(0.065) * years[i]) / deviation
            later = strike[i] * np.exp(f(-0.02) * years[i])
            out[i] = spot[i] * normal(one) - later * normal(one - deviation)
        return (out,)

    return run  # type: ignore[no-any-return]


def bodies(numba: Any) -> Kernel:
    """Bodies that attract each other."""
    f = np.float32

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def advance(place: Any, speed: Any, after: Any, faster: Any) -> None:
        for i in numba.prange(len(place)):
            fx, fy, fz = f(0), f(0), f(0)
            for j in range(len(place)):
                x, y = place[j, 0] - place[i, 0], place[j, 1] - place[i, 1]
                z = place[j, 2] - place[i, 2]
                square = x * x + y * y + z * z + f(0.01)
                pull = f(1) / (square * np.sqrt(square))
                fx, fy, fz = fx + x * pull, fy + y * pull, fz + z * pull
            faster[i, 0] = speed[i, 0] + f(1e-5) * fx
            faster[i, 1] = speed[i, 1] + f(1e-5) * fy
            faster[i, 2] = speed[i, 2] + f(1e-5) * fz
            for k in range(3):
                after[i, k] = place[i, k] + f(1e-2) * faster[i, k]

    def run(steps: int, place: Any, speed: Any) -> Any:
        place, speed = place.copy(), speed.copy()
        after, faster = np.empty_like(place), np.empty_like(speed)
        for _ in range(steps):
            advance(place, speed, after, faster)
            place, speed, after, faster = after, faster, place, speed
        return place, speed

    return run


def smoothed(numba: Any) -> Kernel:
    """A separable blur."""
    taps = np.array((0.03, 0.11, 0.22, 0.28, 0.22, 0.11, 0.03), "f4")

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        n, m = x.shape
        across, out = np.empty_like(x), np.empty_like(x)
        for i in numba.prange(n):
            across[i] = 0
            for k in range(7):
                if 0 <= i + k - 3 < n:
                    for j in range(m):
                        across[i, j] += taps[k] * x[i + k - 3, j]
        for i in numba.prange(n):
            row = np.zeros(m + 6, np.float32)
            row[3 : m + 3] = across[i]
            for j in range(m):
                total = np.float32(0)
                for k in range(7):
                    total += taps[k] * row[j + k]
                out[i, j] = total
        return (out,)

    return run  # type: ignore[no-any-return]


def mandelbrot(numba: Any) -> Kernel:
    """Iterations of each point, which end where it leaves the circle."""
    f = np.float32

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def run(steps: int, x: Any, y: Any, a: Any, b: Any, count: Any) -> Any:
        nx, ny, counts = np.empty_like(x), np.empty_like(y), np.empty_like(count)
        for i in numba.prange(x.shape[0]):
            for j in range(x.shape[1]):
                px, py, number = x[i, j], y[i, j], count[i, j]
                for _ in range(steps):
                    xx, yy = px * px, py * py
                    if not xx + yy < f(4):
                        break
                    px, py, number = xx - yy + a[i, j], f(2) * px * py + b[i, j], number + 1
                nx[i, j], ny[i, j], counts[i, j] = px, py, number
        return nx, ny, a, b, counts

    return run  # type: ignore[no-any-return]


def kalman(numba: Any) -> Kernel:
    """A filter of four states for many tracks."""
    f = np.eye(4, dtype="f4") + np.float32(0.1) * np.eye(4, k=2, dtype="f4")
    h = np.eye(2, 4, dtype="f4")
    ft, ht = f.T.copy(), h.T.copy()
    q, r = np.float32(0.01) * np.eye(4, dtype="f4"), np.float32(0.1) * np.eye(2, dtype="f4")

    @numba.njit(fastmath=True)  # type: ignore[untyped-decorator]
    def run(steps: int, x: Any, p: Any, seen: Any) -> Any:
        inverse = np.empty((2, 2), np.float32)
        for _ in range(steps):
            x, p = x @ ft, f @ p @ ft + q
            s = h @ p @ ht + r
            share = np.float32(1) / (s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0])
            inverse[0, 0], inverse[0, 1] = s[1, 1] * share, -s[0, 1] * share
            inverse[1, 0], inverse[1, 1] = -s[1, 0] * share, s[0, 0] * share
            gain = p @ ht @ inverse
            x, p = x + (seen - x @ ht) @ gain.T.copy(), p - gain @ h @ p
        return x, p, seen

    return run  # type: ignore[no-any-return]


def cumulative(numba: Any) -> Kernel:
    """Cumulative sums of rows."""

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        out = np.empty_like(x)
        for i in numba.prange(x.shape[0]):
            total = np.float32(0)
            for j in range(x.shape[1]):
                total += x[i, j]
                out[i, j] = total
        return (out,)

    return run  # type: ignore[no-any-return]


def biquad(numba: Any) -> Kernel:
    """A filter of second order for many channels, one channel after the other."""
    f = np.float32

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def run(steps: int, x: Any, one: Any, two: Any, level: Any) -> Any:
        out = np.empty((4, len(x)), np.float32)
        for i in numba.prange(len(x)):
            a, b, c, total = x[i], one[i], two[i], level[i]
            for _ in range(steps):
                y = f(0.2) * a + b
                b, c = f(0.4) * a + c + f(0.5) * y, f(0.2) * a - f(0.3) * y
                a, total = f(0.99) * a, total + y * y
            out[0, i], out[1, i], out[2, i], out[3, i] = a, b, c, total
        return out[0], out[1], out[2], out[3]

    return run  # type: ignore[no-any-return]
