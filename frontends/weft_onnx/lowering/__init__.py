"""The lowerings, one module for each family of ops."""

from weft_onnx.lowering import (
    contraction,
    control,
    convolution,
    creation,
    elementwise,
    indexing,
    learning,
    movement,
    normalization,
    quantization,
    recurrent,
    reduction,
    regions,
    resampling,
    selection,
    sequences,
    signal,
    text,
    training,
)

__all__ = [
    "contraction", "control", "convolution", "creation", "elementwise", "indexing", "learning",
    "movement", "normalization", "quantization", "recurrent", "reduction", "regions", "resampling",
    "selection", "sequences", "signal", "text", "training",
]  # fmt: skip
