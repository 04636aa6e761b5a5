"""Registers another name than its entry point says."""

from weft import Transformer
from weft.plugins import hookimpl


@hookimpl
def weft_register_backends(register):
    register("mistaken", Transformer)
