"""Windows that slide over images: convolutions and pooling as C."""

from weft_c.sliding import convolutions, pooling

__all__ = ["convolutions", "pooling"]
