"""A backend for plugin hooks that this weft does not have."""

from weft import Transformer
from weft.plugins import hookimpl

WEFT_API = "2.0"


@hookimpl
def weft_register_backends(register):
    register("future", Transformer)
