"""The base of backends on array libraries that follow the array API standard."""

from weft_array_api.transformer import ArrayTransformer

__all__ = ["ArrayTransformer"]
