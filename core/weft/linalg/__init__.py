"""Linear algebra under the names of the array API standard, NumPy and SciPy."""

from weft.linalg.factorizations import (
    eig,
    eigh,
    eigvals,
    eigvalsh,
    ldl,
    lu,
    lu_factor,
    qr,
    svd,
    svdvals,
)
from weft.linalg.norms import cond, matrix_norm, matrix_rank, vector_norm
from weft.linalg.systems import (
    expm_multiply,
    lstsq,
    lu_solve,
    matrix_exp,
    pinv,
    solve_triangular,
)
from weft.ops.products.contraction import outer, tensordot, vecdot
from weft.ops.products.decompositions import (
    cholesky,
    cholesky_solve,
    det,
    inv,
    matrix_power,
    slogdet,
    solve,
)
from weft.ops.products.linalg import cross, diagonal, matmul, matrix_transpose, trace

__all__ = [
    "cholesky",
    "cholesky_solve",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm_multiply",
    "inv",
    "ldl",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
