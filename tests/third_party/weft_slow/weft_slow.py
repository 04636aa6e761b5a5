"""A backend that takes its time to import."""

from __future__ import annotations

import time
from typing import Any

import weft
from weft.plugins import hookimpl

time.sleep(2)


class SlowTransformer(weft.NumPyTransformer):
    """Works like the NumPy backend once it is there."""

    transformer_name = "slow"


@hookimpl
def weft_register_backends(register: Any):
    register("slow", SlowTransformer)
