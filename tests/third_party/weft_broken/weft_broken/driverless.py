"""Needs a module that is not installed."""

import weft_driver_that_nobody_wrote  # noqa: F401
