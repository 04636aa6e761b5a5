"""Entries of torch's operator database that weft does not compute, with the reason.

By the kind of verdict that some of their samples get in place of ``right``.
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
    _upsample_bilinear2d_aa nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
    histogram histogramdd resize_as_ to_sparse nonzero_static nn.functional.embedding
    hash_tensor _segment_reduce.lengths _segment_reduce.offsets linalg.ldl_factor
    linalg.ldl_factor_ex linalg.ldl_solve chalf
"""
"""An op has no rule, or its rule does not cover the arguments or the dtype."""

SPARSE = "sparse.sampled_addmm sparse.mm.reduce"
"""Arguments or results are sparse."""

OTHER_IN_GRADIENTS = {
    "data": "index_fill index_put",
    "lacks": "nn.functional.embedding_bag",
}
"""The same of the gradients only."""

RIGHT_IN_GRADIENTS = "nn.functional.embedding nn.functional.one_hot"
"""Entries whose samples for gradients are others, which weft computes."""

INEXACT = {"logcumsumexp": 2e-3}
"""The tolerance of entries whose gradients are differences of large numbers."""

LACKING_ON = {"numpy": "", "native": ""}
"""By backend: entries of which it lacks an op."""


def expected(name: str, backend: str, with_gradients: bool) -> set[str]:
    """Return the kinds of verdicts that samples of an entry get beside ``right``."""
    kinds = {"data": VALUES, "lacks": NO_RULE, "sparse": SPARSE}
    found = {kind for kind, names in kinds.items() if name in names.split()}
    if with_gradients:
        found = set() if name in RIGHT_IN_GRADIENTS.split() else found
        found |= {kind for kind, names in OTHER_IN_GRADIENTS.items() if name in names.split()}
    return found | ({"error"} if name in LACKING_ON[backend].split() else set())
