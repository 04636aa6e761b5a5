"""Ops that only check their arguments."""

from __future__ import annotations

from weft_torch.rules import lowers

CHECKS = (
    "_assert_tensor_metadata _assert_async _assert_scalar sym_constrain_range "
    "sym_constrain_range_for_size _linalg_check_errors"
)
lowers(CHECKS)(lambda: None)
