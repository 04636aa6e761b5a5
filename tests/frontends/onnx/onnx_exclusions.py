"""The tests of onnx's own suite that weft does not pass, each with the reason."""

from __future__ import annotations

import re

REASONS = {
    r"(basic_)?deform_conv": "deformable convolutions have no lowering",
    r"image_decoder": "images are not decoded",
    r"gradient_of_add": "the preview op Gradient has no lowering: weft.deriv gives gradients",
    r"not_[234]d": "the models are of opset 1",
    r"scan_sum": "Scan of opset 8, with a batch, has no lowering",
    r"bernoulli|training_dropout(?!_zero)": "random numbers are other ones than NumPy's",
    r"dft_inverse(_opset19)?_cpu": "the expected zeros are rounding errors of a fast transform",
    r"attention_4d_causal_fp16": "the expected numbers are rounded to float16 between the ops",
    r"loop16_seq_none": "the expected result is not a sequence, though the model declares one",
}
"""By a pattern of names."""


def exclusion(name: str) -> str | None:
    """Return why a test is excluded, or None."""
    for pattern, reason in REASONS.items():
        if re.search(f"test_({pattern})", name):
            return reason
    return None
