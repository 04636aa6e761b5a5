"""A backend under the name of another one."""

from __future__ import annotations

from typing import Any

from weft import Transformer
from weft.plugins import hookimpl


@hookimpl
def weft_register_backends(register: Any):
    register("toy", Transformer)
