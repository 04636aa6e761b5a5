"""Lowering rules of factorizations of small matrices: each work item factorizes one in registers.

Larger and complex matrices are those of LAPACK, on the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import nan

import numpy as np

from weft.ir.op import Op
from weft.ops.products.decompositions import (
    CholeskyOp,
    DeterminantOp,
    InverseOp,
    SolveOp,
    TriangularSolveOp,
)
from weft.ops.products.factorizations import (
    HermitianEigenOp,
    LUOp,
    OrthogonalFactorOp,
    SingularValuesOp,
)
from weft.support.dispatch import ClassTable
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Lowering, rules
from weft_c.ops.on_host import reference_rule
from weft_c.source.values import ValueEmitter, literal, register_type

LARGEST = 32
"""The largest order of matrices that work items factorize."""

_CHOLESKY = """\
FUNCTION i32 cholesky_T(T *a, i32 n) {
    for (i32 j = 0; j < n; j++) {
        T d = a[j * n + j];
        for (i32 k = 0; k < j; k++) d -= a[j * n + k] * a[j * n + k];
        if (!(d > 0)) return 0;
        d = (T)sqrt(d);
        a[j * n + j] = d;
        for (i32 i = j + 1; i < n; i++) {
            T s = a[i * n + j];
            for (i32 k = 0; k < j; k++) s -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = s / d;
        }
    }
    return 1;
}
"""
"""Factorizes the lower triangle in place; 0 if it is not positive definite."""

_LU = """\
FUNCTION i32 lu_T(T *a, i32 *order, i32 m, i32 n) {
    i32 sign = 1, regular = 1;
    for (i32 i = 0; i < m; i++) order[i] = i;
    for (i32 k = 0; k < n; k++) {
        i32 best = k;
        T size = (T)fabs(a[k * n + k]);
        for (i32 i = k + 1; i < m; i++) {
            T other = (T)fabs(a[i * n + k]);
            if (other > size) { size = other; best = i; }
        }
        if (best != k) {
            for (i32 j = 0; j < n; j++) {
                T x = a[k * n + j];
                a[k * n + j] = a[best * n + j];
                a[best * n + j] = x;
            }
            i32 row = order[k];
            order[k] = order[best];
            order[best] = row;
            sign = -sign;
        }
        T d = a[k * n + k];
        if (d == 0) { regular = 0; continue; }
        for (i32 i = k + 1; i < m; i++) {
            T f = a[i * n + k] / d;
            a[i * n + k] = f;
            for (i32 j = k + 1; j < n; j++) a[i * n + j] -= f * a[k * n + j];
        }
    }
    return regular ? sign : 0;
}
FUNCTION void substitute_T(const T *a, T *x, i32 n) {
    for (i32 i = 0; i < n; i++)
        for (i32 k = 0; k < i; k++) x[i] -= a[i * n + k] * x[k];
    for (i32 i = n - 1; i >= 0; i--) {
        for (i32 k = i + 1; k < n; k++) x[i] -= a[i * n + k] * x[k];
        x[i] /= a[i * n + i];
    }
}
"""
"""Factorizes in place with the pivots of LAPACK, and solves; 0 if singular, else the sign."""

_TRIANGULAR = """\
FUNCTION i32 triangular_T(const T *a, T *x, i32 n, i32 lower) {
    i32 regular = 1;
    for (i32 step = 0; step < n; step++) {
        i32 i = lower ? step : n - 1 - step;
        for (i32 k = lower ? 0 : i + 1; k < (lower ? i : n); k++) x[i] -= a[i * n + k] * x[k];
        x[i] /= a[i * n + i];
        regular &= a[i * n + i] != 0;
    }
    return regular;
}
"""
"""Solves with one triangle, for one right-hand side; 0 if it is singular."""

_QR = """\
FUNCTION void reflect_T(T *a, T *tau, i32 m, i32 n) {
    for (i32 k = 0; k < n; k++) {
        T largest = 0, alpha = a[k * n + k], sum = 0;
        for (i32 i = k + 1; i < m; i++) largest = (T)fmax(largest, (T)fabs(a[i * n + k]));
        tau[k] = 0;
        if (largest == 0) continue;
        largest = (T)fmax(largest, (T)fabs(alpha));
        for (i32 i = k; i < m; i++) {
            T x = a[i * n + k] / largest;
            sum += x * x;
        }
        T norm = largest * (T)sqrt(sum), beta = alpha < 0 ? norm : -norm;
        tau[k] = (beta - alpha) / beta;
        for (i32 i = k + 1; i < m; i++) a[i * n + k] /= alpha - beta;
        a[k * n + k] = beta;
        for (i32 j = k + 1; j < n; j++) {
            T s = a[k * n + j];
            for (i32 i = k + 1; i < m; i++) s += a[i * n + k] * a[i * n + j];
            s *= tau[k];
            a[k * n + j] -= s;
            for (i32 i = k + 1; i < m; i++) a[i * n + j] -= s * a[i * n + k];
        }
    }
}
FUNCTION void reflected_T(const T *a, const T *tau, T *q, i32 m, i32 n, i32 columns) {
    for (i32 i = 0; i < m; i++)
        for (i32 j = 0; j < columns; j++) q[i * columns + j] = i == j;
    for (i32 k = n - 1; k >= 0; k--)
        for (i32 j = k; j < columns; j++) {
            T s = q[k * columns + j];
            for (i32 i = k + 1; i < m; i++) s += a[i * n + k] * q[i * columns + j];
            s *= tau[k];
            q[k * columns + j] -= s;
            for (i32 i = k + 1; i < m; i++) q[i * columns + j] -= s * a[i * n + k];
        }
}
"""
"""Makes the Householder reflections of LAPACK's geqrf, and their product."""

_ROTATION = """\
FUNCTION T tangent_T(T ratio) {
    return (ratio < 0 ? (T)-1 : (T)1) / ((T)fabs(ratio) + (T)sqrt(1 + ratio * ratio));
}
FUNCTION void rotate_T(T *a, i32 n, i32 p, i32 q, T c, T s) {
    for (i32 i = 0; i < n; i++) {
        T x = a[p * n + i], y = a[q * n + i];
        a[p * n + i] = c * x - s * y;
        a[q * n + i] = s * x + c * y;
    }
}
FUNCTION T scaled_T(T *a, i32 count) {
    T largest = 0;
    for (i32 i = 0; i < count; i++) largest = (T)fmax(largest, (T)fabs(a[i]));
    if (largest != 0)
        for (i32 i = 0; i < count; i++) a[i] /= largest;
    return largest;
}
"""

_EIGEN = """\
FUNCTION i32 eigen_T(T *a, T *v, i32 n, i32 length) {
    for (i32 i = 0; i < n; i++)
        for (i32 j = 0; j < length; j++) v[i * length + j] = i == j;
    for (i32 sweep = 0; sweep < 40; sweep++) {
        i32 done = 1;
        for (i32 p = 0; p < n; p++)
            for (i32 q = p + 1; q < n; q++) {
                T x = a[p * n + q];
                if (fabs(x) <= EPSILON) { a[p * n + q] = a[q * n + p] = 0; continue; }
                T y = a[p * n + p], z = a[q * n + q];
                T t = tangent_T((z - y) / (2 * x)), c = 1 / (T)sqrt(1 + t * t);
                done = 0;
                rotate_T(a, n, p, q, c, t * c);
                for (i32 k = 0; k < n; k++) {
                    a[k * n + p] = a[p * n + k];
                    a[k * n + q] = a[q * n + k];
                }
                a[p * n + p] = y - t * x;
                a[q * n + q] = z + t * x;
                a[p * n + q] = a[q * n + p] = 0;
                rotate_T(v, length, p, q, c, t * c);
            }
        if (done) return 1;
    }
    return 0;
}
"""
"""Rotates a symmetric matrix, whose largest element is 1, to a diagonal one; 0 if it fails."""

_SINGULAR = """\
FUNCTION i32 singular_T(T *w, T *v, T *s, i32 m, i32 n, i32 length) {
    i32 done = 0;
    for (i32 i = 0; i < n; i++)
        for (i32 j = 0; j < length; j++) v[i * length + j] = i == j;
    for (i32 sweep = 0; sweep < 60 && !done; sweep++) {
        done = 1;
        for (i32 p = 0; p < n; p++)
            for (i32 q = p + 1; q < n; q++) {
                T x = 0, y = 0, z = 0;
                for (i32 i = 0; i < m; i++) {
                    x += w[p * m + i] * w[p * m + i];
                    y += w[q * m + i] * w[q * m + i];
                    z += w[p * m + i] * w[q * m + i];
                }
                if (fabs(z) <= m * EPSILON * (T)sqrt(x) * (T)sqrt(y)) continue;
                T t = tangent_T((y - x) / (2 * z)), c = 1 / (T)sqrt(1 + t * t);
                if (t == 0) continue;
                done = 0;
                rotate_T(w, m, p, q, c, t * c);
                rotate_T(v, length, p, q, c, t * c);
            }
    }
    for (i32 j = 0; j < n; j++) {
        T x = 0;
        for (i32 i = 0; i < m; i++) x += w[j * m + i] * w[j * m + i];
        s[j] = (T)sqrt(x);
        for (i32 i = 0; i < m && s[j] != 0; i++) w[j * m + i] /= s[j];
    }
    for (i32 j = 0; j < n; j++) {
        T longest = 0;
        for (i32 start = 0; start < m && s[j] == 0 && longest < (T)0.1; start++) {
            for (i32 i = 0; i < m; i++) w[j * m + i] = i == start;
            for (i32 pass = 0; pass < 2; pass++)
                for (i32 k = 0; k < n; k++) {
                    if (k == j || (k > j && s[k] == 0)) continue;
                    T x = 0;
                    for (i32 i = 0; i < m; i++) x += w[k * m + i] * w[j * m + i];
                    for (i32 i = 0; i < m; i++) w[j * m + i] -= x * w[k * m + i];
                }
            longest = 0;
            for (i32 i = 0; i < m; i++) longest += w[j * m + i] * w[j * m + i];
            longest = (T)sqrt(longest);
            for (i32 i = 0; i < m; i++) w[j * m + i] /= longest;
        }
    }
    return done;
}
"""
"""Rotates rows until they are orthogonal (Hestenes, 1958), and completes those that are zero."""


class _Matrices:
    """Writes what a work item does with its matrix.

    Attributes
    ----------
    type
        The type of elements in C.
    m, n
        The numbers of rows and columns.
    """

    def __init__(self, op: Op, lowering: Lowering) -> None:
        self.op, self.lowering = op, lowering
        self.builder = lowering.kernel(type(op).__name__.removesuffix("Op"))
        self.code = self.builder.code
        layout = lowering.args[0]
        self.dtype = layout.dtype
        self.type = register_type(self.dtype)
        *self.head, self.m, self.n = layout.shape
        self.operands = [self.builder.array("x", each) for each in lowering.args]
        self.out = self.builder.array("out", lowering.out, written=True)
        self.at: tuple[str, ...] = ()

    def write(self, body: Callable[[_Matrices], None]) -> None:
        """Write the loop over matrices."""

        def each(at: tuple[str, ...], emitter: ValueEmitter) -> None:
            self.at = at[: len(self.head)]
            body(self)

        cost = max(self.m, self.n, 1) ** 3
        parallel_for(self.builder, self.head, each, cost=cost)

    def call(self, name: str, *args: object) -> str:
        """Return the call of a helper, whose text the kernel gets."""
        epsilon = literal(np.finfo(self.dtype).eps, self.dtype)
        for text in _TEXTS[name]:
            typed = re.sub(r"\bT\b", self.type, re.sub(r"_T\b", f"_{self.type}", text))
            self.code.add_helpers(typed.replace("EPSILON", epsilon))
        return f"{name}_{self.type}({', '.join(map(str, args))})"

    def local(self, hint: str, count: int, kind: str = "") -> str:
        """Declare an array of the work item."""
        name = self.code.name(hint)
        self.code.line(f"{kind or self.type} {name}[{max(count, 1)}];")
        return name

    def each(self, rows: int, columns: int, statement: Callable[[str, str], str]) -> None:
        """Write a statement for each row and column."""
        i, j = self.code.name("i"), self.code.name("j")
        with self.code.loop("i32", i, 0, rows), self.code.loop("i32", j, 0, columns):
            self.code.line(statement(i, j))

    def load(self, get: Callable[[str, str], str], rows: int, columns: int) -> tuple[str, str]:
        """Return an array with a matrix, and the name of the flag whether all are finite."""
        a = self.local("a", rows * columns)
        is_finite = self.code.define("i32", "finite", "1")
        self.each(rows, columns, lambda i, j: f"{a}[{i} * {columns} + {j}] = {get(i, j)};")
        element = self.code.name("e")
        with self.code.loop("i32", element, 0, rows * columns):
            self.code.line(f"{is_finite} &= {a}[{element}] - {a}[{element}] == 0;")
        return a, is_finite

    def element(self, i: str, j: str) -> str:
        """Return an element of the matrix in memory."""
        return self.operands[0].get(*self.at, i, j)

    def store(self, condition: str, value: str, i: str, j: str) -> str:
        """Return the statement that stores an element of the result, NaN under no condition."""
        chosen = f"{condition} ? {value} : {literal(nan, self.dtype)}"
        return self.out.set(chosen, *self.at, i, j)


def _cholesky(kernel: _Matrices) -> None:
    n = kernel.n
    a, _ = kernel.load(kernel.element, n, n)
    done = kernel.code.define("const i32", "done", kernel.call("cholesky", a, n))

    def store(i: str, j: str) -> str:
        return kernel.store(f"{j} > {i} ? 0 : {done}", f"{a}[{i} * {n} + {j}]", i, j)

    kernel.each(n, n, store)


def _lu(kernel: _Matrices) -> None:
    m, n = kernel.m, kernel.n
    a, is_finite = kernel.load(kernel.element, m, n)
    order = kernel.local("order", m, "i32")
    kernel.code.line(kernel.call("lu", a, order, m, n) + ";")
    kernel.each(m, n, lambda i, j: kernel.store(is_finite, f"{a}[{i} * {n} + {j}]", i, j))
    kernel.each(m, 1, lambda i, j: kernel.store(is_finite, f"{order}[{i}]", i, str(n)))


def _solve(kernel: _Matrices) -> None:
    """Solve for each column of the right-hand side; the inverse for each one of the identity."""
    n, code = kernel.n, kernel.code
    a, _ = kernel.load(kernel.element, n, n)
    order, x = kernel.local("order", n, "i32"), kernel.local("x", n)
    sign = code.define("const i32", "sign", kernel.call("lu", a, order, n, n))
    column, i = code.name("column"), code.name("i")
    sides = kernel.operands[1] if len(kernel.operands) > 1 else None
    with code.loop("i32", column, 0, kernel.out.layout.shape[-1]):
        with code.loop("i32", i, 0, n):
            row = f"{order}[{i}]"
            given = sides.get(*kernel.at, row, column) if sides else f"{row} == {column}"
            code.line(f"{x}[{i}] = {given};")
        code.line(kernel.call("substitute", a, x, n) + ";")
        kernel.each(n, 1, lambda i, j: kernel.store(sign, f"{x}[{i}]", i, column))


def _triangular(kernel: _Matrices) -> None:
    assert isinstance(kernel.op, TriangularSolveOp)
    n, code, lower = kernel.n, kernel.code, int(kernel.op.lower)
    inside = ">=" if lower else "<="
    a, _ = kernel.load(lambda i, j: f"{i} {inside} {j} ? {kernel.element(i, j)} : 0", n, n)
    x, column = kernel.local("x", n), code.name("column")
    sides = kernel.operands[1]
    with code.loop("i32", column, 0, kernel.out.layout.shape[-1]):
        kernel.each(n, 1, lambda i, j: f"{x}[{i}] = {sides.get(*kernel.at, i, column)};")
        regular = code.define("const i32", "regular", kernel.call("triangular", a, x, n, lower))
        kernel.each(n, 1, lambda i, j: kernel.store(regular, f"{x}[{i}]", i, column))


def _determinant(kernel: _Matrices) -> None:
    n, code, type_ = kernel.n, kernel.code, kernel.type
    a, _ = kernel.load(kernel.element, n, n)
    order = kernel.local("order", n, "i32")
    sign = code.define(type_, "sign", kernel.call("lu", a, order, n, n))
    total = code.define(type_, "total", "0")
    i = code.name("i")
    with code.loop("i32", i, 0, n):
        d = code.define(f"const {type_}", "d", f"{a}[{i} * {n + 1}]")
        code.line(f"if ({d} < 0) {sign} = -{sign};")
        code.line(f"if ({d} != {d}) {sign} = {d};")
        code.line(f"{total} += ({type_})log(({type_})fabs({d}));")
    code.line(kernel.out.set(sign, *kernel.at, "0"))
    infinite = literal(float("-inf"), kernel.dtype)
    code.line(kernel.out.set(f"{sign} == 0 ? {infinite} : {total}", *kernel.at, "1"))


def _orthogonal(kernel: _Matrices) -> None:
    m, n, (rows, columns) = kernel.m, kernel.n, kernel.out.layout.shape[-2:]
    a, is_finite = kernel.load(kernel.element, m, n)
    tau, q = kernel.local("tau", n), kernel.local("q", m * columns)
    kernel.code.line(kernel.call("reflect", a, tau, m, n) + ";")
    kernel.code.line(kernel.call("reflected", a, tau, q, m, n, columns) + ";")
    kernel.each(
        m, columns, lambda i, j: kernel.store(is_finite, f"{q}[{i} * {columns} + {j}]", i, j)
    )

    def upper(i: str, j: str) -> str:
        value = f"({i} > {j} ? 0 : {a}[{i} * {n} + {j}])"
        return kernel.store(is_finite, value, f"{i} + {m}", j)

    kernel.each(rows - m, n, upper)


def _eigen(kernel: _Matrices) -> None:
    n, code = kernel.n, kernel.code
    rows = kernel.out.layout.shape[-2] - 1

    def lower(i: str, j: str) -> str:
        return f"({i} > {j} ? {kernel.element(i, j)} : {kernel.element(j, i)})"

    a, is_finite = kernel.load(lower, n, n)
    v = kernel.local("v", rows * n)
    size = code.define(f"const {kernel.type}", "size", kernel.call("scaled", a, n * n))
    done = f"{is_finite} && {kernel.call('eigen', a, v, n, rows)}"
    done = code.define("const i32", "done", done)
    order = _descending(kernel, lambda i: f"-{a}[{i} * {n + 1}]", n)
    kernel.each(
        1, n, lambda i, j: kernel.store(done, f"{a}[{order}[{j}] * {n + 1}] * {size}", i, j)
    )
    kernel.each(
        rows, n, lambda i, j: kernel.store(done, f"{v}[{order}[{j}] * {n} + {i}]", f"{i} + 1", j)
    )


def _singular(kernel: _Matrices) -> None:
    """Rotate the rows of the matrix, or those of its transpose, whichever are fewer."""
    is_wide = kernel.m < kernel.n
    m, n = (kernel.n, kernel.m) if is_wide else (kernel.m, kernel.n)
    has_vectors = kernel.out.layout.shape[-2] > 1
    get = kernel.element
    w, is_finite = kernel.load(get if is_wide else (lambda i, j: get(j, i)), n, m)
    length = n if has_vectors else 0
    s, v = kernel.local("s", n), kernel.local("v", length * n)
    size = kernel.code.define(f"const {kernel.type}", "size", kernel.call("scaled", w, m * n))
    done = f"{is_finite} && {kernel.call('singular', w, v, s, m, n, length)}"
    done = kernel.code.define("const i32", "done", done)
    order = _descending(kernel, lambda i: f"{s}[{i}]", n)
    kernel.each(1, n, lambda i, j: kernel.store(done, f"{s}[{order}[{j}]] * {size}", i, j))
    first = 1
    for vectors, count in ((v, n), (w, m)) if is_wide else ((w, m), (v, n)):
        if has_vectors:
            _store_vectors(kernel, done, vectors, order, first, count)
        first += count


def _store_vectors(
    kernel: _Matrices, done: str, vectors: str, order: str, first: int, count: int
) -> None:
    """Store the rows of an array, in an order, as columns from the row `first` on."""

    def store(i: str, j: str) -> str:
        return kernel.store(done, f"{vectors}[{order}[{j}] * {count} + {i}]", f"{i} + {first}", j)

    kernel.each(count, kernel.out.layout.shape[-1], store)


def _descending(kernel: _Matrices, value: Callable[[str], str], count: int) -> str:
    """Return an array with the numbers of some values, from the largest on."""
    order, code = kernel.local("order", count, "i32"), kernel.code
    i, k = code.name("i"), code.name("k")
    with code.loop("i32", i, 0, count):
        code.line(f"i32 {k} = {i};")
        before = value(f"{order}[{k} - 1]")
        with code.block(f"for (; {k} > 0 && {before} < {value(i)}; {k}--)"):
            code.line(f"{order}[{k}] = {order}[{k} - 1];")
        code.line(f"{order}[{k}] = {i};")
    return order


_TEXTS = {
    "cholesky": (_CHOLESKY,),
    "lu": (_LU,),
    "substitute": (_LU,),
    "triangular": (_TRIANGULAR,),
    "reflect": (_QR,),
    "reflected": (_QR,),
    "scaled": (_ROTATION,),
    "eigen": (_ROTATION, _EIGEN),
    "singular": (_ROTATION, _SINGULAR),
}
"""The texts of the helpers."""

_BODIES = ClassTable[Callable[[_Matrices], None]](
    {
        CholeskyOp: _cholesky,
        DeterminantOp: _determinant,
        HermitianEigenOp: _eigen,
        InverseOp: _solve,
        LUOp: _lu,
        OrthogonalFactorOp: _orthogonal,
        SingularValuesOp: _singular,
        SolveOp: _solve,
        TriangularSolveOp: _triangular,
    }
)


@rules.on_type(CholeskyOp, DeterminantOp, HermitianEigenOp, InverseOp)
@rules.on_type(LUOp, OrthogonalFactorOp, SingularValuesOp, SolveOp, TriangularSolveOp)
def small_matrix_rule(op: Op, lowering: Lowering) -> None:
    """Factorize a matrix in each work item if it is small and real, else all on the host."""
    x = lowering.args[0]
    is_complex = x.dtype.kind == "c" or getattr(op, "is_complex", False)
    if is_complex or max(x.shape[-2:]) > LARGEST:
        reference_rule(op, lowering)
    else:
        body = _BODIES.nearest(type(op))
        assert body is not None
        _Matrices(op, lowering).write(body)
