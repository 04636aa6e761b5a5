"""A backend for plugin hooks that this weft does not have."""

from __future__ import annotations

from typing import Any

from weft import Transformer
from weft.plugins import hookimpl

WEFT_API = "2.0"


@hookimpl
def weft_register_backends(register: Any):
    register("future", Transformer)
