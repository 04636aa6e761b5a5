"""A backend under the name of another one."""

from weft import Transformer
from weft.plugins import hookimpl


@hookimpl
def weft_register_backends(register):
    register("toy", Transformer)
