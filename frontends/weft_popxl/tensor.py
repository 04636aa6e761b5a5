"""The classes of tensors, under PopXL's name of their module."""

from weft_popxl.program import Constant, Tensor, TensorByRef, Variable
from weft_popxl.tensor_spec import TensorSpec

__all__ = ["Constant", "Tensor", "TensorByRef", "TensorSpec", "Variable"]
