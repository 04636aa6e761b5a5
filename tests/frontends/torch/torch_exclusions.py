"""Entries of torch's operator database that weft does not compute, with the reason.

By the kind of verdict that some of their samples get in place of ``right``, on every backend.
"""

from __future__ import annotations

VALUES = """
    item allclose combinations corrcoef cov equal masked_select narrow tensor_split unique
    unique_consecutive bincount nonzero nn.functional.one_hot argwhere nn.functional.ctc_loss
    nn.functional.gaussian_nll_loss linalg.lstsq linalg.lstsq.grad_oriented
"""
"""What is computed depends on values, in Python or in the shapes: dynamo breaks the graph there."""

NO_RULE = """
    geqrf nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none
    _upsample_bilinear2d_aa histogram histogramdd resize_as_ to_sparse nonzero_static
    nn.functional.embedding hash_tensor linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve
    chalf
"""
"""An op has no rule, or its rule does not cover the arguments or the dtype."""

SPARSE = "sparse.sampled_addmm sparse.mm.reduce"
"""Arguments or results are sparse."""

EAGER = """
    jiterator_unary jiterator_binary jiterator_binary_return_by_ref jiterator_2inputs_2outputs
    jiterator_4inputs_with_extra_args as_strided.partial_views
"""
"""Eager torch does not compute them here: kernels for CUDA, and a view of more memory than the
copies of its sample have."""

OTHER_IN = {
    "gradients": {"data": "index_fill index_put"},
    "complex64": {"lacks": "logcumsumexp"},
    "float16": {"lacks": "complex view_as_complex"},
}
"""The same of the gradients, or of a dtype, only."""

RIGHT_IN = {"gradients": "nn.functional.embedding nn.functional.one_hot"}
"""Entries whose samples are others there, which weft computes."""

INEXACT = {"logcumsumexp": 2e-3}
"""The tolerance of entries whose gradients are differences of large numbers."""


def expected(name: str, what: str) -> set[str]:
    """Return the kinds of verdicts that samples of an entry get beside ``right``.

    `what` is the dtype of the samples, or ``gradients``.
    """
    kinds = {"data": VALUES, "lacks": NO_RULE, "sparse": SPARSE, "eager": EAGER}
    is_right = name in RIGHT_IN.get(what, "").split()
    found = {kind for kind, names in kinds.items() if name in names.split() and not is_right}
    others = OTHER_IN.get(what, {})
    return found | {kind for kind, names in others.items() if name in names.split()}
